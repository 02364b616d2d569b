// Batches of matrices: their elements, checks of their shapes, and loops over them.
#pragma once

#include "core/arguments.h"
#include "core/element.h"
#include "core/extremes.h"
#include "core/loop.h"
#include "linalg/complex_operators.h"

namespace husk::host {
namespace {

// A matrix of a batch, with the strides of its rows and columns.
template <class T>
struct Matrix {
  Cancellation& cancellation;
  T* data;
  int64_t rows, columns, row, column;
  T& operator()(int64_t i, int64_t j) const { return data[i * row + j * column]; }
  Matrix transposed() const { return {cancellation, data, columns, rows, column, row}; }
};

template <class T>
Matrix<T> matrix_at(const Arguments& args, ArgumentPlace at, int64_t offset) {
  const husk_op_arg& tensor = args[at];
  const int32_t r = tensor.rank - 2;
  return {args.cancellation, writable<T>(tensor) + offset, tensor.sizes[r], tensor.sizes[r + 1],
          tensor.strides[r], tensor.strides[r + 1]};
}

// Replaces each element by its conjugate.
template <class T>
void conjugate(const Matrix<T>& m) {
  if constexpr (is_complex<T>) {
    each_index_while(m.cancellation, m.rows, [&](int64_t i) {
      return each_index(m.cancellation, m.columns, [&](int64_t j) { m(i, j) = conj(m(i, j)); });
    });
  }
}

// The dtype of the absolute value of an element.
inline int32_t real_dtype(int32_t dtype) {
  return dtype == HUSK_C64 ? HUSK_F32 : dtype == HUSK_C128 ? HUSK_F64 : dtype;
}

// The tensor has the batch dimensions of argument `like` (all but the last two) and `element_rank`
// dimensions after them.
inline husk_status check_batch(const Arguments& args, ArgumentPlace at, ArgumentPlace like,
                               int32_t element_rank) {
  const int32_t count = args[like].rank - 2;
  HUSK_TRY(args.check_tensor(at, count + element_rank, count + element_rank));
  for (int32_t d = 0; d < count; ++d)
    HUSK_TRY(args.check_size(at, d, args[like].sizes[d], "the batch"));
  return HUSK_OK;
}

// The tensor is a batch of matrices, in the batch shape and dtype of argument `like`.
inline husk_status check_matrices(const Arguments& args, ArgumentPlace at, ArgumentPlace like,
                                  int64_t rows, int64_t columns) {
  HUSK_TRY(check_batch(args, at, like, 2));
  HUSK_TRY(args.check_same_dtype(at, like));
  HUSK_TRY(args.check_size(at, args[at].rank - 2, rows, "rows"));
  return args.check_size(at, args[at].rank - 1, columns, "columns");
}

// The tensor is a batch of vectors, in the batch shape of argument `like`.
inline husk_status check_vectors(const Arguments& args, ArgumentPlace at, ArgumentPlace like,
                                 int64_t length, int32_t dtype) {
  HUSK_TRY(check_batch(args, at, like, 1));
  HUSK_TRY(args.check_dtype(at, dtype));
  return args.check_size(at, args[at].rank - 1, length, "one for each column");
}

// The tensor is a batch of numbers, in the batch shape of argument `like`.
inline husk_status check_numbers(const Arguments& args, ArgumentPlace at, ArgumentPlace like,
                                 int32_t dtype) {
  HUSK_TRY(check_batch(args, at, like, 0));
  return args.check_dtype(at, dtype);
}

// The argument is a batch of square matrices.
inline husk_status check_square(const Arguments& args, ArgumentPlace at) {
  HUSK_TRY(args.check_tensor(at, 2, kMaxRank));
  return args.check_size(at, args[at].rank - 1, args[at].sizes[args[at].rank - 2], "it is square");
}

// A loop over the batch dimensions of argument `like`, for N tensors of that batch shape.
template <int N>
Loop<N> batch_loop(const Arguments& args, ArgumentPlace like, const ArgumentPlace (&operands)[N]) {
  Loop<N> loop(args);
  loop.rank = args[like].rank - 2;
  for (int32_t d = 0; d < loop.rank; ++d) loop.sizes[d] = args[like].sizes[d];
  for (int n = 0; n < N; ++n) {
    const husk_op_arg tensor = with_safe_strides(args[operands[n]]);
    for (int32_t d = 0; d < loop.rank; ++d) loop.strides[n][d] = tensor.strides[d];
  }
  // The loops over rows and columns of a small matrix report nothing.
  const int64_t* const sizes = args[like].sizes + loop.rank;
  const int64_t rows = smaller(sizes[0], kUnreportedWork),
                columns = smaller(sizes[1], kUnreportedWork);
  loop.work = 1 + rows * columns * smaller(rows, columns);
  return loop;
}

// The tensor has `element_rank` dimensions after batch dimensions that broadcast to those of the
// checked output `out`, a batch of matrices.
inline husk_status check_broadcast(const Arguments& args, ArgumentPlace at, ArgumentPlace out,
                                   int32_t element_rank, int32_t dtype) {
  const int32_t most = args[out].rank - 2;
  HUSK_TRY(args.check_tensor(at, element_rank, most + element_rank));
  HUSK_TRY(args.check_dtype(at, dtype));
  const int32_t count = args[at].rank - element_rank;
  for (int32_t d = 0; d < count; ++d) {
    if (args[at].sizes[d] != 1)
      HUSK_TRY(args.check_size(at, d, args[out].sizes[most - count + d], "the batch"));
  }
  return HUSK_OK;
}

// A loop over the batch dimensions of argument `out`, for N tensors whose batch dimensions
// broadcast to them. `element_ranks` are the numbers of their other dimensions.
template <int N>
Loop<N> broadcast_loop(const Arguments& args, ArgumentPlace out, const ArgumentPlace (&operands)[N],
                       const int32_t (&element_ranks)[N]) {
  Loop<N> loop(args);
  loop.rank = args[out].rank - 2;
  for (int32_t d = 0; d < loop.rank; ++d) loop.sizes[d] = args[out].sizes[d];
  for (int n = 0; n < N; ++n) {
    husk_op_arg tensor = with_safe_strides(args[operands[n]]);
    tensor.rank -= element_ranks[n];
    broadcast(tensor, loop.sizes, loop.rank, loop.strides[n]);
  }
  return loop;
}

}  // namespace
}  // namespace husk::host
