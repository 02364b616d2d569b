// Matrix factorizations and what is computed with them: LU (solve, inverse, determinants),
// Cholesky, and triangular systems. Matrices are factored in the memory of the results, in the
// dtype of the matrix (f32 or f64), with partial pivoting. Source: Golub and Van Loan, "Matrix
// Computations", chapters 3 to 5.
#include <cmath>
#include <cstring>

#include "core/arguments.h"
#include "core/element.h"
#include "core/loop.h"
#include "error.h"

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
Matrix<T> matrix_at(const Arguments& args, uint32_t at, int64_t offset) {
  const husk_op_arg& tensor = args[at];
  const int32_t r = tensor.rank - 2;
  return {args.cancellation, writable<T>(tensor) + offset, tensor.sizes[r], tensor.sizes[r + 1],
          tensor.strides[r], tensor.strides[r + 1]};
}

// The tensor has the batch dimensions of argument `like` (all but the last two) and `element_rank`
// dimensions after them.
husk_status check_batch(const Arguments& args, uint32_t at, uint32_t like, int32_t element_rank) {
  const int32_t count = args[like].rank - 2;
  HUSK_TRY(args.check_tensor(at, count + element_rank, count + element_rank));
  for (int32_t d = 0; d < count; ++d)
    HUSK_TRY(args.check_size(at, d, args[like].sizes[d], "the batch"));
  return HUSK_OK;
}

// The tensor is a batch of matrices, in the batch shape and dtype of argument `like`.
husk_status check_matrices(const Arguments& args, uint32_t at, uint32_t like, int64_t rows,
                           int64_t columns) {
  HUSK_TRY(check_batch(args, at, like, 2));
  HUSK_TRY(args.check_same_dtype(at, like));
  HUSK_TRY(args.check_size(at, args[at].rank - 2, rows, "rows"));
  return args.check_size(at, args[at].rank - 1, columns, "columns");
}

// The tensor is a batch of vectors, in the batch shape of argument `like`.
husk_status check_vectors(const Arguments& args, uint32_t at, uint32_t like, int64_t length,
                          int32_t dtype) {
  HUSK_TRY(check_batch(args, at, like, 1));
  HUSK_TRY(args.check_dtype(at, dtype));
  return args.check_size(at, args[at].rank - 1, length, "one for each column");
}

// The tensor is a batch of numbers, in the batch shape of argument `like`.
husk_status check_numbers(const Arguments& args, uint32_t at, uint32_t like, int32_t dtype) {
  HUSK_TRY(check_batch(args, at, like, 0));
  return args.check_dtype(at, dtype);
}

// The argument is a batch of square matrices.
husk_status check_square(const Arguments& args, uint32_t at) {
  HUSK_TRY(args.check_tensor(at, 2, kMaxRank));
  return args.check_size(at, args[at].rank - 1, args[at].sizes[args[at].rank - 2], "it is square");
}

// A loop over the batch dimensions of argument `like`, for N tensors of that batch shape.
template <int N>
Loop<N> batch_loop(const Arguments& args, uint32_t like, const uint32_t (&operands)[N]) {
  Loop<N> loop(args);
  loop.rank = args[like].rank - 2;
  for (int32_t d = 0; d < loop.rank; ++d) loop.sizes[d] = args[like].sizes[d];
  for (int n = 0; n < N; ++n) {
    const husk_op_arg tensor = with_safe_strides(args[operands[n]]);
    for (int32_t d = 0; d < loop.rank; ++d) loop.strides[n][d] = tensor.strides[d];
  }
  return loop;
}

template <class T>
void swap_rows(const Matrix<T>& m, int64_t a, int64_t b) {
  if (a == b) return;
  each_index(m.cancellation, m.columns, [&](int64_t j) {
    const T swapped = m(a, j);
    m(a, j) = m(b, j);
    m(b, j) = swapped;
  });
}

// The number of the row from k on whose element in column k has the largest absolute value.
template <class T>
int64_t largest_below(const Matrix<T>& m, int64_t k) {
  int64_t best = k;
  each_index(m.cancellation, m.rows - k - 1, [&](int64_t below) {
    if (std::fabs(m(k + 1 + below, k)) > std::fabs(m(best, k))) best = k + 1 + below;
  });
  return best;
}

// Subtracts `factor` times row k of `from` from row i of `to`, from column `first` on. Returns
// false if the call is to end.
template <class T>
bool subtract_row(const Matrix<T>& to, int64_t i, const Matrix<T>& from, int64_t k, T factor,
                  int64_t first) {
  return each_index(to.cancellation, to.columns - first,
                    [&](int64_t j) { to(i, first + j) -= factor * from(k, first + j); });
}

// Replaces m by its LU factors. Pivots are row numbers counted from 1, as in LAPACK. Returns the
// number of the first zero pivot, counted from 1, or 0. If the call is to end, the pivots are
// undefined.
template <class T>
int32_t factor_lu(const Matrix<T>& m, int32_t* pivots, int64_t pivots_stride, bool pivot) {
  int32_t info = 0;
  const int64_t steps = m.rows < m.columns ? m.rows : m.columns;
  each_index(m.cancellation, steps, [&](int64_t k) {
    const int64_t best = pivot ? largest_below(m, k) : k;
    pivots[k * pivots_stride] = static_cast<int32_t>(best + 1);
    swap_rows(m, k, best);
    if (m(k, k) == 0) {
      if (info == 0) info = static_cast<int32_t>(k + 1);
      return;
    }
    each_index_while(m.cancellation, m.rows - k - 1, [&](int64_t below) {
      const int64_t i = k + 1 + below;
      const T factor = m(i, k) /= m(k, k);
      return factor == 0 || subtract_row(m, i, m, k, factor, k + 1);
    });
  });
  return info;
}

// x = a^-1 x for a triangular matrix a.
template <class T>
void solve_triangle(const Matrix<T>& a, const Matrix<T>& x, bool upper, bool unit) {
  each_index_while(x.cancellation, a.rows, [&](int64_t step) {
    const int64_t k = upper ? a.rows - 1 - step : step, first = upper ? 0 : k + 1;
    each_index(x.cancellation, unit ? 0 : x.columns, [&](int64_t j) { x(k, j) /= a(k, k); });
    return each_index_while(x.cancellation, (upper ? k : a.rows) - first, [&](int64_t after) {
      const int64_t i = first + after;
      return a(i, k) == 0 || subtract_row(x, i, x, k, a(i, k), 0);
    });
  });
}

// Computes the determinant of a factored matrix, its sign, and the logarithm of its absolute value.
template <class T>
void determinant(const Matrix<T>& lu, const int32_t* pivots, int64_t stride, T& value, T& sign,
                 T& log) {
  value = sign = 1;
  log = 0;
  each_index(lu.cancellation, lu.rows, [&](int64_t k) {
    const T d = lu(k, k);
    if (pivots[k * stride] != k + 1) {
      value = -value;
      sign = -sign;
    }
    value *= d;
    sign *= d < 0 ? T(-1) : d > 0 ? T(1) : d;
    log += std::log(std::fabs(d));
  });
}

husk_status factorization_error(const Arguments& args, int64_t info, const char* reason) {
  return fail(args.error, HUSK_INVALID_INPUT, "%s: %s (pivot %lld is zero)", args.op, reason,
              static_cast<long long>(info));
}

// Copies argument 0 to output `lu_at` and factors it there. Writes the pivots, and, if info_at
// differs from lu_at, the number of the first zero pivot of each matrix.
husk_status factor(const Arguments& args, uint32_t lu_at, uint32_t pivots_at, uint32_t info_at,
                   bool pivot, bool check) {
  const int64_t rows = args[0].sizes[args[0].rank - 2], columns = args[0].sizes[args[0].rank - 1];
  // A pivot is the i32 number of a row.
  if (rows > INT32_MAX && columns > 0)
    return args.argument_error(0, HUSK_UNSUPPORTED, "has more than 2147483647 rows");
  HUSK_TRY(check_matrices(args, lu_at, 0, rows, columns));
  HUSK_TRY(check_vectors(args, pivots_at, 0, rows < columns ? rows : columns, HUSK_I32));
  const bool writes_info = info_at != lu_at;
  if (writes_info) HUSK_TRY(check_numbers(args, info_at, 0, HUSK_I32));
  HUSK_TRY(copy_elements(args, lu_at, 0));
  int32_t failed_info = 0;
  const husk_op_arg& pivots = args[pivots_at];
  HUSK_TRY(visit_argument<Floats>(args, 0, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(batch_loop(args, 0, {lu_at, pivots_at, info_at}), [&](const int64_t(&at)[3]) {
      const int32_t info = factor_lu(matrix_at<T>(args, lu_at, at[0]),
                                     writable<int32_t>(pivots) + at[1],
                                     pivots.strides[pivots.rank - 1], pivot);
      if (writes_info) writable<int32_t>(args[info_at])[at[2]] = info;
      if (info) failed_info = info;
    });
  }));
  return check && failed_info ? factorization_error(args, failed_info, "the matrix is singular")
                              : husk_status{HUSK_OK};
}

}  // namespace

husk_status lu_factor(const Arguments& args) {
  HUSK_TRY(args.check_tensor(0, 2, kMaxRank));
  bool pivot = true, check = false;
  HUSK_TRY(args.get_bool(1, pivot));
  HUSK_TRY(args.get_bool(2, check));
  return factor(args, 3, 4, 5, pivot, check);
}

husk_status linear_det(const Arguments& args) {
  HUSK_TRY(check_square(args, 0));
  HUSK_TRY(check_numbers(args, 1, 0, args[0].dtype));
  HUSK_TRY(factor(args, 2, 3, 2, true, false));
  return visit_argument<Floats>(args, 0, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(batch_loop(args, 0, {1, 2, 3}), [&](const int64_t(&at)[3]) {
      T sign, log;
      determinant(matrix_at<T>(args, 2, at[1]), data_of<int32_t>(args[3]) + at[2],
                  args[3].strides[args[3].rank - 1], writable<T>(args[1])[at[0]], sign, log);
    });
  });
}

husk_status linear_slogdet(const Arguments& args) {
  HUSK_TRY(check_square(args, 0));
  HUSK_TRY(check_numbers(args, 1, 0, args[0].dtype));
  HUSK_TRY(check_numbers(args, 2, 0, args[0].dtype));
  HUSK_TRY(factor(args, 3, 4, 3, true, false));
  return visit_argument<Floats>(args, 0, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(batch_loop(args, 0, {1, 2, 3, 4}), [&](const int64_t(&at)[4]) {
      T value;
      determinant(matrix_at<T>(args, 3, at[2]), data_of<int32_t>(args[4]) + at[3],
                  args[4].strides[args[4].rank - 1], value, writable<T>(args[1])[at[0]],
                  writable<T>(args[2])[at[1]]);
    });
  });
}

namespace {

// x = a^-1 x for a factored matrix a.
template <class T>
void solve_factored(const Matrix<T>& lu, const int32_t* pivots, int64_t stride,
                    const Matrix<T>& x) {
  each_index(x.cancellation, lu.rows, [&](int64_t k) { swap_rows(x, k, pivots[k * stride] - 1); });
  solve_triangle(lu, x, false, true);
  solve_triangle(lu, x, true, false);
}

// x = x a^-1 for a factored matrix a: solves the transposed triangular systems, then applies the
// pivots in reverse order.
template <class T>
void solve_factored_right(const Matrix<T>& lu, const int32_t* pivots, int64_t stride,
                          const Matrix<T>& x) {
  const Matrix<T> rows = x.transposed();
  solve_triangle(lu.transposed(), rows, false, false);
  solve_triangle(lu.transposed(), rows, true, true);
  each_index(x.cancellation, lu.rows, [&](int64_t done) {
    const int64_t k = lu.rows - 1 - done;
    swap_rows(rows, k, pivots[k * stride] - 1);
  });
}

}  // namespace

husk_status linear_solve(const Arguments& args) {
  HUSK_TRY(check_square(args, 0));
  bool left = true, check = false;
  HUSK_TRY(args.get_bool(2, left));
  HUSK_TRY(args.get_bool(3, check));
  const int64_t n = args[0].sizes[args[0].rank - 1];
  HUSK_TRY(args.check_tensor(1, 1, args[0].rank));
  HUSK_TRY(args.check_same_dtype(1, 0));
  // A right-hand side with one dimension less than the matrices is a batch of vectors.
  const bool vector = args[1].rank == args[0].rank - 1;
  HUSK_TRY(args.check_tensor(4, args[1].rank, args[1].rank));
  HUSK_TRY(args.check_same_dtype(4, 0));
  HUSK_TRY(check_batch(args, 4, 0, vector ? 1 : 2));
  if (!vector) HUSK_TRY(args.check_tensor(1, args[0].rank, args[0].rank));
  HUSK_TRY(args.check_size(4, args[4].rank - (vector || !left ? 1 : 2), n, "the matrix"));
  HUSK_TRY(copy_elements(args, 4, 1));
  HUSK_TRY(factor(args, 5, 6, 7, true, check));
  return visit_argument<Floats>(args, 0, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const husk_op_arg &pivots = args[6], &result = args[4];
    each(batch_loop(args, 0, {4, 5, 6}), [&](const int64_t(&at)[3]) {
      const Matrix<T> lu = matrix_at<T>(args, 5, at[1]),
                      x = vector ? Matrix<T>{args.cancellation,
                                             writable<T>(result) + at[0],
                                             n,
                                             1,
                                             result.strides[result.rank - 1],
                                             0}
                                 : matrix_at<T>(args, 4, at[0]);
      const int32_t* order = data_of<int32_t>(pivots) + at[2];
      const int64_t stride = pivots.strides[pivots.rank - 1];
      if (left || vector)
        solve_factored(lu, order, stride, x);
      else
        solve_factored_right(lu, order, stride, x);
    });
  });
}

namespace {

// Replaces m by its inverse (Gauss-Jordan elimination). It works in place, because there is no
// memory for a factored matrix besides the result. `order` is scratch for one number per row.
// Returns the number of the first zero pivot, counted from 1, or 0.
template <class T>
int32_t invert(const Matrix<T>& m, int32_t* order) {
  for (int64_t k = 0; k < m.rows; ++k) {
    const int64_t best = largest_below(m, k);
    order[k] = static_cast<int32_t>(best);
    swap_rows(m, k, best);
    const T pivot = m(k, k);
    if (pivot == 0) return static_cast<int32_t>(k + 1);
    m(k, k) = 1;
    for (int64_t j = 0; j < m.columns; ++j) m(k, j) /= pivot;
    const bool subtracted = each_index_while(m.cancellation, m.rows, [&](int64_t i) {
      const T factor = m(i, k);
      if (i == k || factor == 0) return true;
      m(i, k) = 0;
      return subtract_row(m, i, m, k, factor, 0);
    });
    if (!subtracted) return 0;
  }
  for (int64_t k = m.rows; k-- > 0;) swap_rows(m.transposed(), k, order[k]);
  return 0;
}

constexpr int64_t kMaxInverseRows = 32768;  // rows whose pivots fit on the stack

}  // namespace

husk_status linear_inverse(const Arguments& args) {
  HUSK_TRY(check_square(args, 0));
  const int64_t n = args[0].sizes[args[0].rank - 1];
  bool check = false;
  HUSK_TRY(args.get_bool(1, check));
  HUSK_TRY(check_matrices(args, 2, 0, n, n));
  HUSK_TRY(check_numbers(args, 3, 0, HUSK_I32));
  if (n > kMaxInverseRows)
    return args.argument_error(0, HUSK_UNSUPPORTED, "has more than 32768 rows");
  HUSK_TRY(copy_elements(args, 2, 0));
  int32_t failed_info = 0;
  HUSK_TRY(visit_argument<Floats>(args, 0, [&](auto tag) {
    using T = typename decltype(tag)::type;
    int32_t order[kMaxInverseRows];
    each(batch_loop(args, 0, {2, 3}), [&](const int64_t(&at)[2]) {
      const int32_t info = invert(matrix_at<T>(args, 2, at[0]), order);
      writable<int32_t>(args[3])[at[1]] = info;
      if (info) failed_info = info;
    });
  }));
  return check && failed_info ? factorization_error(args, failed_info, "the matrix is singular")
                              : husk_status{HUSK_OK};
}

husk_status linear_cholesky(const Arguments& args) {
  HUSK_TRY(check_square(args, 0));
  const int64_t n = args[0].sizes[args[0].rank - 1];
  bool upper = false, check = false;
  HUSK_TRY(args.get_bool(1, upper));
  HUSK_TRY(args.get_bool(2, check));
  HUSK_TRY(check_matrices(args, 3, 0, n, n));
  HUSK_TRY(check_numbers(args, 4, 0, HUSK_I32));
  HUSK_TRY(copy_elements(args, 3, 0));
  int32_t failed_info = 0;
  HUSK_TRY(visit_argument<Floats>(args, 0, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(batch_loop(args, 0, {3, 4}), [&](const int64_t(&at)[2]) {
      const Matrix<T> whole = matrix_at<T>(args, 3, at[0]), m = upper ? whole.transposed() : whole;
      int32_t info = 0;
      each_index_while(args.cancellation, n, [&](int64_t j) {
        T d = m(j, j);
        each_index(args.cancellation, j, [&](int64_t k) { d -= m(j, k) * m(j, k); });
        if (!(d > 0)) info = static_cast<int32_t>(j + 1);
        m(j, j) = std::sqrt(d);
        return !info && each_index_while(args.cancellation, n - j - 1, [&](int64_t below) {
          const int64_t i = j + 1 + below;
          T sum = m(i, j);
          const bool summed = each_index(args.cancellation, j,
                                         [&](int64_t k) { sum -= m(i, k) * m(j, k); });
          m(i, j) = sum / m(j, j);
          return summed;
        });
      });
      each_index_while(args.cancellation, n, [&](int64_t i) {
        return each_index(args.cancellation, n - i - 1, [&](int64_t j) { m(i, i + 1 + j) = 0; });
      });
      writable<int32_t>(args[4])[at[1]] = info;
      if (info) failed_info = info;
    });
  }));
  return check && failed_info
             ? factorization_error(args, failed_info, "the matrix is not positive definite")
             : husk_status{HUSK_OK};
}

husk_status linear_triangle(const Arguments& args) {
  HUSK_TRY(check_square(args, 0));
  const int32_t rank = args[0].rank;
  bool upper = false, left = true, unit = false;
  HUSK_TRY(args.get_bool(2, upper));
  HUSK_TRY(args.get_bool(3, left));
  HUSK_TRY(args.get_bool(4, unit));
  HUSK_TRY(args.check_tensor(1, 2, rank));
  HUSK_TRY(args.check_same_dtype(1, 0));
  HUSK_TRY(args.check_same_dtype(5, 0));
  HUSK_TRY(check_batch(args, 5, 0, 2));
  HUSK_TRY(args.check_size(5, rank - (left ? 2 : 1), args[0].sizes[rank - 1], "the matrix"));
  HUSK_TRY(copy_elements(args, 5, 1));
  if (numel(args[5]) == 0) return HUSK_OK;
  return visit_argument<Floats>(args, 0, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(batch_loop(args, 0, {0, 5}), [&](const int64_t(&at)[2]) {
      const Matrix<T> a = matrix_at<T>(args, 0, at[0]), x = matrix_at<T>(args, 5, at[1]);
      if (left)
        solve_triangle(a, x, upper, unit);
      else
        solve_triangle(a.transposed(), x.transposed(), !upper, unit);
    });
  });
}

// Fails if an element of `info` is not 0.
husk_status linear_check(const Arguments& args) {
  HUSK_TRY(args.check_tensor(0));
  HUSK_TRY(args.check_dtype(0, HUSK_I32));
  const char* name = args[1].kind == HUSK_ARG_STRING && args[1].string ? args[1].string
                                                                       : "linear algebra";
  Loop<1> loop(args);
  loop.shape(args[0]);
  int32_t info = 0;
  if (each_while(loop, [&](const int64_t(&at)[1]) {
        return (info = data_of<int32_t>(args[0])[at[0]]) == 0;
      }))
    return HUSK_OK;
  return fail(args.error, HUSK_INVALID_INPUT,
              "%s: %s failed: the matrix is singular, or not positive definite (info %d)", args.op,
              name, info);
}

}  // namespace husk::host
