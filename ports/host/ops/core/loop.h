// Loops over the elements of tensors of one shape with any strides, and over numbers. All of them
// end early if the call is to end (core/cancellation.h).
#pragma once

#include <utility>

#include "core/arguments.h"

namespace husk::host {

// A shape and the strides, in elements, of N operands of that shape.
template <int N>
struct Loop {
  Cancellation* cancellation;
  int32_t rank = 0;
  int64_t sizes[kMaxRank];
  int64_t strides[N][kMaxRank];
  int64_t work = 1;  // of one element, as Cancellation counts it; at most kWorkBetweenQuestions

  explicit Loop(const Arguments& args) : cancellation(&args.cancellation) {}
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
  // Moves a dimension along which the elements of all operands are adjacent to the end, so that
  // rows of tensors of images in the channels-last format are adjacent elements, too. Rows of few
  // elements would take longer than a loop with strides.
  void end_with_adjacent() {
    constexpr int64_t kLeast = 16;
    for (int32_t d = 0; d + 1 < rank; ++d) {
      bool moves = sizes[d] >= kLeast;
      for (int n = 0; n < N; ++n) moves = moves && strides[n][d] == 1;
      if (!moves) continue;
      for (int32_t at = d; at + 1 < rank; ++at) {
        std::swap(sizes[at], sizes[at + 1]);
        for (int n = 0; n < N; ++n) std::swap(strides[n][at], strides[n][at + 1]);
      }
      return;
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
// element of operand n, steps[n] the stride from one element to the next. A long row comes in
// several pieces. Goes on until f returns false. Returns true if f never did and the call is not to
// end.
template <int N, class F>
bool each_row_while(const Loop<N>& loop, F&& f) {
  int64_t at[N] = {}, steps[N] = {}, index[kMaxRank] = {};
  for (int32_t d = 0; d < loop.rank; ++d)
    if (loop.sizes[d] == 0) return true;
  const int32_t last = loop.rank - 1;
  for (int n = 0; n < N && last >= 0; ++n) steps[n] = loop.strides[n][last];
  const int64_t length = last < 0 ? int64_t{1} : loop.sizes[last];
  const int64_t most = kWorkBetweenQuestions / loop.work;
  int64_t done = 0;  // elements of the row before the piece
  int64_t count = length < most ? length : most;
  int64_t unreported = count;  // elements
  if (loop.cancellation->ended()) return false;
  for (;;) {
    if (!f(at, count, steps)) return false;
    done += count;
    if (done < length) {
      for (int n = 0; n < N; ++n) at[n] += steps[n] * count;
    } else {
      for (int n = 0; n < N; ++n) at[n] -= steps[n] * (done - count);
      done = 0;
      int32_t d = last - 1;
      for (; d >= 0; --d) {
        for (int n = 0; n < N; ++n) at[n] += loop.strides[n][d];
        if (++index[d] < loop.sizes[d]) break;
        for (int n = 0; n < N; ++n) at[n] -= loop.strides[n][d] * loop.sizes[d];
        index[d] = 0;
      }
      if (d < 0)
        return unreported <= kUnreportedWork || !loop.cancellation->ends(unreported * loop.work);
    }
    const int64_t rest = length - done;
    count = rest < most ? rest : most;
    unreported += count;
    if (unreported < most) continue;
    if (loop.cancellation->ends(unreported * loop.work)) return false;
    unreported = 0;
  }
}

// Calls f(at, count, steps) for each row. Returns false if the call is to end.
template <int N, class F>
bool each_row(const Loop<N>& loop, F&& f) {
  return each_row_while(loop, [&](const int64_t(&at)[N], int64_t count, const int64_t(&steps)[N]) {
    f(at, count, steps);
    return true;
  });
}

// Calls f(at) for each element in order: at[n] is the offset of the element of operand n. Returns
// false if the call is to end.
template <int N, class F>
bool each(const Loop<N>& loop, F&& f) {
  return each_row(loop, [&](const int64_t(&row)[N], int64_t count, const int64_t(&steps)[N]) {
    int64_t at[N];
    for (int n = 0; n < N; ++n) at[n] = row[n];
    for (int64_t i = 0; i < count; ++i) {
      f(at);
      for (int n = 0; n < N; ++n) at[n] += steps[n];
    }
  });
}

// Calls f(at) for each element in order until f returns false. Returns true if f never did and the
// call is not to end.
template <int N, class F>
bool each_while(const Loop<N>& loop, F&& f) {
  return each_row_while(loop, [&](const int64_t(&row)[N], int64_t count, const int64_t(&steps)[N]) {
    int64_t at[N];
    for (int n = 0; n < N; ++n) at[n] = row[n];
    for (int64_t i = 0; i < count; ++i) {
      if (!f(at)) return false;
      for (int n = 0; n < N; ++n) at[n] += steps[n];
    }
    return true;
  });
}

// Calls f(i) for i = 0 ... count - 1 until f returns false. Returns true if f never did and the
// call is not to end.
template <class F>
[[gnu::always_inline]] inline bool each_index_while(Cancellation& cancellation, int64_t count,
                                                    F&& f) {
  // `f` is called at one place only, so that the compiler inlines it.
  for (int64_t i = 0; i < count;) {
    const int64_t rest = count - i,
                  length = rest < kWorkBetweenQuestions ? rest : kWorkBetweenQuestions;
    if (count <= kUnreportedWork ? cancellation.ended() : cancellation.ends(length)) return false;
    for (const int64_t end = i + length; i < end; ++i)
      if (!f(i)) return false;
  }
  return true;
}

// Calls f(i) for i = 0 ... count - 1. Returns false if the call is to end.
template <class F>
[[gnu::always_inline]] inline bool each_index(Cancellation& cancellation, int64_t count, F&& f) {
  return each_index_while(cancellation, count, [&](int64_t i) {
    f(i);
    return true;
  });
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
