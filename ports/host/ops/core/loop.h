// Loops over the elements of tensors of one shape with any strides.
#pragma once

#include "core/arguments.h"

namespace husk::host {

// A shape and the strides, in elements, of N operands of that shape.
template <int N>
struct Loop {
  int32_t rank = 0;
  int64_t sizes[kMaxRank];
  int64_t strides[N][kMaxRank];

  // Takes the shape from a checked tensor, which becomes operand `which`.
  void shape(const husk_op_arg& tensor, int which = 0) {
    rank = tensor.rank;
    for (int32_t d = 0; d < rank; ++d) {
      sizes[d] = tensor.sizes[d];
      strides[which][d] = tensor.strides[d];
    }
  }
  // Makes a tensor of the same shape operand `which`.
  void add(int which, const husk_op_arg& tensor) {
    for (int32_t d = 0; d < rank; ++d) strides[which][d] = tensor.strides[d];
  }
  // Removes a dimension from the loop.
  void drop(int32_t dim) {
    --rank;
    for (int32_t d = dim; d < rank; ++d) {
      sizes[d] = sizes[d + 1];
      for (int n = 0; n < N; ++n) strides[n][d] = strides[n][d + 1];
    }
  }
  // Merges adjacent dimensions that all operands can walk with one stride, so that rows get longer.
  // A loop without elements becomes one empty row, because the product of its other sizes need not
  // fit an int64_t.
  void merge() {
    for (int32_t d = 0; d < rank; ++d) {
      if (sizes[d] != 0) continue;
      rank = 1;
      sizes[0] = 0;
      for (int n = 0; n < N; ++n) strides[n][0] = 0;
      return;
    }
    int32_t to = 0;
    for (int32_t d = 0; d < rank; ++d) {
      if (sizes[d] == 1) continue;
      bool joins = to > 0;
      for (int n = 0; n < N && joins; ++n) joins = strides[n][to - 1] == strides[n][d] * sizes[d];
      if (joins) --to;
      const int64_t before = joins ? sizes[to] : 1;
      sizes[to] = before * sizes[d];
      for (int n = 0; n < N; ++n) strides[n][to] = strides[n][d];
      ++to;
    }
    rank = to;
  }
};

// Calls f(at, count, steps) for each row along the last dimension: at[n] is the offset of the first
// element of operand n, steps[n] the stride from one element to the next.
template <int N, class F>
void each_row(const Loop<N>& loop, F&& f) {
  int64_t at[N] = {}, steps[N] = {}, index[kMaxRank] = {};
  for (int32_t d = 0; d < loop.rank; ++d)
    if (loop.sizes[d] == 0) return;
  const int32_t last = loop.rank - 1;
  for (int n = 0; n < N && last >= 0; ++n) steps[n] = loop.strides[n][last];
  for (;;) {
    f(at, last < 0 ? int64_t{1} : loop.sizes[last], steps);
    int32_t d = last - 1;
    for (; d >= 0; --d) {
      for (int n = 0; n < N; ++n) at[n] += loop.strides[n][d];
      if (++index[d] < loop.sizes[d]) break;
      for (int n = 0; n < N; ++n) at[n] -= loop.strides[n][d] * loop.sizes[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

// Calls f(at) for each element in order: at[n] is the offset of the element of operand n.
template <int N, class F>
void each(const Loop<N>& loop, F&& f) {
  each_row(loop, [&](const int64_t(&row)[N], int64_t count, const int64_t(&steps)[N]) {
    int64_t at[N];
    for (int n = 0; n < N; ++n) at[n] = row[n];
    for (int64_t i = 0; i < count; ++i) {
      f(at);
      for (int n = 0; n < N; ++n) at[n] += steps[n];
    }
  });
}

// Calls f(at) for each element in order until f returns false. Returns true if f never did.
template <int N, class F>
bool each_while(const Loop<N>& loop, F&& f) {
  bool goes_on = true;
  each_row(loop, [&](const int64_t(&row)[N], int64_t count, const int64_t(&steps)[N]) {
    int64_t at[N];
    for (int n = 0; n < N; ++n) at[n] = row[n];
    for (int64_t i = 0; i < count && goes_on; ++i) {
      goes_on = f(at);
      for (int n = 0; n < N; ++n) at[n] += steps[n];
    }
  });
  return goes_on;
}

// Writes the strides with which a tensor broadcasts to `sizes`: 0 along a broadcast dimension.
// Returns false if the shapes do not broadcast.
inline bool broadcast(const husk_op_arg& tensor, const int64_t* sizes, int32_t rank,
                      int64_t* strides) {
  if (tensor.rank > rank) return false;
  for (int32_t d = 0; d < rank; ++d) {
    const int32_t source_dim = d - (rank - tensor.rank);
    strides[d] = 0;
    if (source_dim < 0 || tensor.sizes[source_dim] == 1) continue;
    if (tensor.sizes[source_dim] != sizes[d]) return false;
    strides[d] = tensor.strides[source_dim];
  }
  return true;
}

}  // namespace husk::host
