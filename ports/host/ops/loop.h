// Loops over the elements of tensors of one shape, whatever their strides.
#ifndef HUSK_HOST_LOOP_H
#define HUSK_HOST_LOOP_H

#include "arguments.h"

namespace husk::host {

// N operands, one shape; strides are in elements.
template <int N>
struct Loop {
  int32_t rank = 0;
  int64_t sizes[most_dims];
  int64_t strides[N][most_dims];

  // The shape of a checked tensor, which becomes operand `which`.
  void shape(const husk_op_arg& tensor, int which = 0) {
    rank = tensor.rank;
    for (int32_t d = 0; d < rank; d++) {
      sizes[d] = tensor.sizes[d];
      strides[which][d] = tensor.strides[d];
    }
  }
  // Another operand: a tensor of the same shape.
  void add(int which, const husk_op_arg& tensor) {
    for (int32_t d = 0; d < rank; d++) strides[which][d] = tensor.strides[d];
  }
  // A dimension that is left out.
  void drop(int32_t dim) {
    rank--;
    for (int32_t d = dim; d < rank; d++) {
      sizes[d] = sizes[d + 1];
      for (int n = 0; n < N; n++) strides[n][d] = strides[n][d + 1];
    }
  }
  // Neighbouring dimensions that one stride walks become one, so that rows are long.
  void merge() {
    int32_t to = 0;
    for (int32_t d = 0; d < rank; d++) {
      if (sizes[d] == 1) continue;
      bool joins = to > 0;
      for (int n = 0; n < N && joins; n++) joins = strides[n][to - 1] == strides[n][d] * sizes[d];
      if (joins) to--;
      const int64_t before = joins ? sizes[to] : 1;
      sizes[to] = before * sizes[d];
      for (int n = 0; n < N; n++) strides[n][to] = strides[n][d];
      to++;
    }
    rank = to;
  }
};

// Calls f(at, count, steps) for each row along the last dimension: at[n] is the first element of operand n, steps[n]
// the stride from one to the next.
template <int N, class F>
void each_row(const Loop<N>& loop, F&& f) {
  int64_t at[N] = {}, steps[N] = {}, index[most_dims] = {};
  for (int32_t d = 0; d < loop.rank; d++) {
    if (loop.sizes[d] == 0) return;
  }
  const int32_t last = loop.rank - 1;
  for (int n = 0; n < N && last >= 0; n++) steps[n] = loop.strides[n][last];
  for (;;) {
    f(at, last < 0 ? int64_t{1} : loop.sizes[last], steps);
    int32_t d = last - 1;
    for (; d >= 0; d--) {
      for (int n = 0; n < N; n++) at[n] += loop.strides[n][d];
      if (++index[d] < loop.sizes[d]) break;
      for (int n = 0; n < N; n++) at[n] -= loop.strides[n][d] * loop.sizes[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

// Calls f(at) for each element, in order.
template <int N, class F>
void each(const Loop<N>& loop, F&& f) {
  each_row(loop, [&](const int64_t(&row)[N], int64_t count, const int64_t(&steps)[N]) {
    int64_t at[N];
    for (int n = 0; n < N; n++) at[n] = row[n];
    for (int64_t i = 0; i < count; i++) {
      f(at);
      for (int n = 0; n < N; n++) at[n] += steps[n];
    }
  });
}

// The same for f(at) that says whether to go on; returns whether it always did.
template <int N, class F>
bool each_while(const Loop<N>& loop, F&& f) {
  bool going = true;
  each_row(loop, [&](const int64_t(&row)[N], int64_t count, const int64_t(&steps)[N]) {
    int64_t at[N];
    for (int n = 0; n < N; n++) at[n] = row[n];
    for (int64_t i = 0; i < count && going; i++) {
      going = f(at);
      for (int n = 0; n < N; n++) at[n] += steps[n];
    }
  });
  return going;
}

// A tensor as strides over the last dimensions of `sizes`: 0 where it broadcasts. False if it does not.
inline bool broadcast(const husk_op_arg& tensor, const int64_t* sizes, int32_t rank, int64_t* strides) {
  if (tensor.rank > rank) return false;
  for (int32_t d = 0; d < rank; d++) {
    const int32_t own = d - (rank - tensor.rank);
    strides[d] = 0;
    if (own < 0 || tensor.sizes[own] == 1) continue;
    if (tensor.sizes[own] != sizes[d]) return false;
    strides[d] = tensor.strides[own];
  }
  return true;
}

}  // namespace husk::host

#endif
