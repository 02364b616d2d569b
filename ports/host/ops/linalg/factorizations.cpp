// Matrix factorizations and what is computed with them: LU (solve, inverse, determinants),
// Cholesky, and triangular systems. Matrices are factored in the memory of the results, in the
// dtype of the matrix, with partial pivoting. Source: Golub and Van Loan, "Matrix
// Computations", chapters 3 to 5.
#include <cmath>
#include <cstring>

#include "contracts.h"
#include "core/scratch.h"
#include "error.h"
#include "linalg/blocks.h"

namespace husk::host {

namespace {

// Computes the determinant of a factored matrix, its sign, and the logarithm of its absolute value.
template <class T>
void determinant(const Matrix<T>& lu, const int32_t* pivots, int64_t stride, T& value, T& sign,
                 Real<T>& log) {
  value = sign = from_real<T>(1);
  log = 0;
  each_index(lu.cancellation, lu.rows, [&](int64_t k) {
    const T d = lu(k, k);
    const Real<T> size = magnitude(d);
    if (pivots[k * stride] != k + 1) {
      value = -value;
      sign = -sign;
    }
    value *= d;
    sign *= size > 0 ? d / from_real<T>(size) : d;
    log += std::log(size);
  });
}

husk_status factorization_error(const Arguments& args, int64_t info, const char* reason) {
  return fail(args.error, HUSK_INVALID_INPUT, "%s: %s (pivot %lld is zero)", args.op, reason,
              static_cast<long long>(info));
}

// Copies A to output `lu_at` and factors it there. Writes the pivots, and, if info_at
// differs from lu_at, the number of the first zero pivot of each matrix.
husk_status factor(const Arguments& args, ArgumentPlace lu_at, ArgumentPlace pivots_at,
                   ArgumentPlace info_at, bool pivot, bool check) {
  constexpr ArgumentsOf named("linear_det", "linear_slogdet", "linear_solve", "lu_factor");
  constexpr uint32_t kA = named["A"];
  const int64_t rows = args[kA].sizes[args[kA].rank - 2],
                columns = args[kA].sizes[args[kA].rank - 1];
  // A pivot is the i32 number of a row.
  if (rows > INT32_MAX && columns > 0)
    return args.argument_error(kA, HUSK_UNSUPPORTED, "has more than 2147483647 rows");
  HUSK_TRY(check_matrices(args, lu_at, kA, rows, columns));
  HUSK_TRY(check_vectors(args, pivots_at, kA, rows < columns ? rows : columns, HUSK_I32));
  const bool writes_info = info_at != lu_at;
  if (writes_info) HUSK_TRY(check_numbers(args, info_at, kA, HUSK_I32));
  HUSK_TRY(copy_elements(args, lu_at, kA));
  int32_t failed_info = 0;
  const husk_op_arg& pivots = args[pivots_at];
  Blocks blocks{};
  HUSK_TRY(blocks.open(args));
  HUSK_TRY(visit_argument<Floats | Complexes>(args, kA, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(batch_loop(args, kA, {lu_at, pivots_at, info_at}), [&](const int64_t(&at)[3]) {
      const int32_t info = factor_lu(blocks, matrix_at<T>(args, lu_at, at[0]),
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
  constexpr ArgumentsOf named("lu_factor");
  constexpr uint32_t kA = named["A"], kPivot = named["pivot"], kCheckErrors = named["check_errors"],
                     kLu = named["LU"], kPivots = named["pivots"], kInfo = named["info"];
  HUSK_TRY(args.check_tensor(kA, 2, kMaxRank));
  bool pivot = true, check = false;
  HUSK_TRY(args.get_bool(kPivot, pivot));
  HUSK_TRY(args.get_bool(kCheckErrors, check));
  return factor(args, kLu, kPivots, kInfo, pivot, check);
}

husk_status linear_det(const Arguments& args) {
  constexpr ArgumentsOf named("linear_det");
  constexpr uint32_t kA = named["A"], kResult = named["result"], kLu = named["LU"],
                     kPivots = named["pivots"];
  HUSK_TRY(check_square(args, kA));
  HUSK_TRY(check_numbers(args, kResult, kA, args[kA].dtype));
  HUSK_TRY(factor(args, kLu, kPivots, kLu, true, false));
  return visit_argument<Floats | Complexes>(args, kA, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(batch_loop(args, kA, {kResult, kLu, kPivots}), [&](const int64_t(&at)[3]) {
      T sign;
      Real<T> log;
      determinant(matrix_at<T>(args, kLu, at[1]), data_of<int32_t>(args[kPivots]) + at[2],
                  args[kPivots].strides[args[kPivots].rank - 1], writable<T>(args[kResult])[at[0]],
                  sign, log);
    });
  });
}

husk_status linear_slogdet(const Arguments& args) {
  constexpr ArgumentsOf named("linear_slogdet");
  constexpr uint32_t kA = named["A"], kSign = named["sign"], kLogabsdet = named["logabsdet"],
                     kLu = named["LU"], kPivots = named["pivots"];
  HUSK_TRY(check_square(args, kA));
  HUSK_TRY(check_numbers(args, kSign, kA, args[kA].dtype));
  HUSK_TRY(check_numbers(args, kLogabsdet, kA, real_dtype(args[kA].dtype)));
  HUSK_TRY(factor(args, kLu, kPivots, kLu, true, false));
  return visit_argument<Floats | Complexes>(args, kA, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(batch_loop(args, kA, {kSign, kLogabsdet, kLu, kPivots}), [&](const int64_t(&at)[4]) {
      T value;
      determinant(matrix_at<T>(args, kLu, at[2]), data_of<int32_t>(args[kPivots]) + at[3],
                  args[kPivots].strides[args[kPivots].rank - 1], value,
                  writable<T>(args[kSign])[at[0]], writable<Real<T>>(args[kLogabsdet])[at[1]]);
    });
  });
}

husk_status linear_solve(const Arguments& args) {
  constexpr ArgumentsOf named("linear_solve");
  constexpr uint32_t kA = named["A"], kB = named["B"], kLeft = named["left"],
                     kCheckErrors = named["check_errors"], kResult = named["result"],
                     kLu = named["LU"], kPivots = named["pivots"], kInfo = named["info"];
  HUSK_TRY(check_square(args, kA));
  bool left = true, check = false;
  HUSK_TRY(args.get_bool(kLeft, left));
  HUSK_TRY(args.get_bool(kCheckErrors, check));
  const int64_t n = args[kA].sizes[args[kA].rank - 1];
  HUSK_TRY(args.check_tensor(kB, 1, args[kA].rank));
  HUSK_TRY(args.check_same_dtype(kB, kA));
  // A right-hand side with one dimension less than the matrices is a batch of vectors.
  const bool vector = args[kB].rank == args[kA].rank - 1;
  HUSK_TRY(args.check_tensor(kResult, args[kB].rank, args[kB].rank));
  HUSK_TRY(args.check_same_dtype(kResult, kA));
  HUSK_TRY(check_batch(args, kResult, kA, vector ? 1 : 2));
  if (!vector) HUSK_TRY(args.check_tensor(kB, args[kA].rank, args[kA].rank));
  HUSK_TRY(
      args.check_size(kResult, args[kResult].rank - (vector || !left ? 1 : 2), n, "the matrix"));
  HUSK_TRY(copy_elements(args, kResult, kB));
  HUSK_TRY(factor(args, kLu, kPivots, kInfo, true, check));
  Blocks blocks{};
  HUSK_TRY(blocks.open(args));
  return visit_argument<Floats | Complexes>(args, kA, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const husk_op_arg &pivots = args[kPivots], &result = args[kResult];
    each(batch_loop(args, kA, {kResult, kLu, kPivots}), [&](const int64_t(&at)[3]) {
      const Matrix<T> lu = matrix_at<T>(args, kLu, at[1]),
                      x = vector ? Matrix<T>{args.cancellation,
                                             writable<T>(result) + at[0],
                                             n,
                                             1,
                                             result.strides[result.rank - 1],
                                             0}
                                 : matrix_at<T>(args, kResult, at[0]);
      const int32_t* order = data_of<int32_t>(pivots) + at[2];
      const int64_t stride = pivots.strides[pivots.rank - 1];
      if (left || vector)
        solve_factored(blocks, lu, order, stride, x);
      else
        solve_factored_right(blocks, lu, order, stride, x);
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
    if (pivot == from_real<T>(0)) return static_cast<int32_t>(k + 1);
    m(k, k) = from_real<T>(1);
    for (int64_t j = 0; j < m.columns; ++j) m(k, j) /= pivot;
    const bool subtracted = each_index_while(m.cancellation, m.rows, [&](int64_t i) {
      const T factor = m(i, k);
      if (i == k || factor == from_real<T>(0)) return true;
      m(i, k) = from_real<T>(0);
      return subtract_row(m, i, m, k, factor, 0);
    });
    if (!subtracted) return 0;
  }
  for (int64_t k = m.rows; k-- > 0;) swap_rows(m.transposed(), k, order[k]);
  return 0;
}

}  // namespace

husk_status linear_inverse(const Arguments& args) {
  constexpr ArgumentsOf named("linear_inverse");
  constexpr uint32_t kA = named["A"], kCheckErrors = named["check_errors"],
                     kInverse = named["inverse"], kInfo = named["info"];
  HUSK_TRY(check_square(args, kA));
  const int64_t n = args[kA].sizes[args[kA].rank - 1];
  bool check = false;
  HUSK_TRY(args.get_bool(kCheckErrors, check));
  HUSK_TRY(check_matrices(args, kInverse, kA, n, n));
  HUSK_TRY(check_numbers(args, kInfo, kA, HUSK_I32));
  if (n > kMaxInverseRows)
    return args.argument_error(kA, HUSK_UNSUPPORTED, "has more than 32768 rows");
  HUSK_TRY(copy_elements(args, kInverse, kA));
  int32_t failed_info = 0;
  Blocks blocks{};
  HUSK_TRY(blocks.open(args));
  HUSK_TRY(visit_argument<Floats | Complexes>(args, kA, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto order = reinterpret_cast<int32_t*>(static_cast<char*>(args.scratch()) +
                                                  kProductScratch);
    each(batch_loop(args, kA, {kInverse, kInfo}), [&](const int64_t(&at)[2]) {
      const Matrix<T> m = matrix_at<T>(args, kInverse, at[0]);
      int32_t info = 0;
      if constexpr (is_complex<T>)
        info = invert(m, order);
      else
        info = Blocks::divides<T>(n) ? invert_by_blocks(blocks, m, order) : invert(m, order);
      writable<int32_t>(args[kInfo])[at[1]] = info;
      if (info) failed_info = info;
    });
  }));
  return check && failed_info ? factorization_error(args, failed_info, "the matrix is singular")
                              : husk_status{HUSK_OK};
}

husk_status linear_cholesky(const Arguments& args) {
  constexpr ArgumentsOf named("linear_cholesky");
  constexpr uint32_t kSelf = named["self"], kUpper = named["upper"],
                     kCheckErrors = named["check_errors"], kL = named["L"], kInfo = named["info"];
  HUSK_TRY(check_square(args, kSelf));
  const int64_t n = args[kSelf].sizes[args[kSelf].rank - 1];
  bool upper = false, check = false;
  HUSK_TRY(args.get_bool(kUpper, upper));
  HUSK_TRY(args.get_bool(kCheckErrors, check));
  HUSK_TRY(check_matrices(args, kL, kSelf, n, n));
  HUSK_TRY(check_numbers(args, kInfo, kSelf, HUSK_I32));
  HUSK_TRY(copy_elements(args, kL, kSelf));
  int32_t failed_info = 0;
  Blocks blocks{};
  HUSK_TRY(blocks.open(args));
  HUSK_TRY(visit_argument<Floats | Complexes>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(batch_loop(args, kSelf, {kL, kInfo}), [&](const int64_t(&at)[2]) {
      const Matrix<T> whole = matrix_at<T>(args, kL, at[0]), m = upper ? whole.transposed() : whole;
      const int32_t info = factor_cholesky(blocks, m);
      writable<int32_t>(args[kInfo])[at[1]] = info;
      if (info) failed_info = info;
    });
  }));
  return check && failed_info
             ? factorization_error(args, failed_info, "the matrix is not positive definite")
             : husk_status{HUSK_OK};
}

husk_status linear_triangle(const Arguments& args) {
  constexpr ArgumentsOf named("linear_triangle");
  constexpr uint32_t kSelf = named["self"], kB = named["B"], kUpper = named["upper"],
                     kLeft = named["left"], kUnitriangular = named["unitriangular"],
                     kOut = named["out"];
  HUSK_TRY(check_square(args, kSelf));
  const int32_t rank = args[kSelf].rank;
  bool upper = false, left = true, unit = false;
  HUSK_TRY(args.get_bool(kUpper, upper));
  HUSK_TRY(args.get_bool(kLeft, left));
  HUSK_TRY(args.get_bool(kUnitriangular, unit));
  HUSK_TRY(args.check_tensor(kB, 2, rank));
  HUSK_TRY(args.check_same_dtype(kB, kSelf));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  HUSK_TRY(check_batch(args, kOut, kSelf, 2));
  HUSK_TRY(args.check_size(kOut, rank - (left ? 2 : 1), args[kSelf].sizes[rank - 1], "the matrix"));
  HUSK_TRY(copy_elements(args, kOut, kB));
  if (numel(args[kOut]) == 0) return HUSK_OK;
  Blocks blocks{};
  HUSK_TRY(blocks.open(args));
  return visit_argument<Floats | Complexes>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(batch_loop(args, kSelf, {kSelf, kOut}), [&](const int64_t(&at)[2]) {
      const Matrix<T> a = matrix_at<T>(args, kSelf, at[0]), x = matrix_at<T>(args, kOut, at[1]);
      if (left)
        solve_triangle(blocks, a, x, upper, unit);
      else
        solve_triangle(blocks, a.transposed(), x.transposed(), !upper, unit);
    });
  });
}

// Fails if an element of `info` is not 0.
husk_status linear_check(const Arguments& args) {
  constexpr ArgumentsOf named("linear_check");
  constexpr uint32_t kInfo = named["info"], kApiName = named["api_name"];
  HUSK_TRY(args.check_tensor(kInfo));
  HUSK_TRY(args.check_dtype(kInfo, HUSK_I32));
  const char* name = args[kApiName].kind == HUSK_ARG_STRING && args[kApiName].string
                         ? args[kApiName].string
                         : "linear algebra";
  Loop<1> loop(args);
  loop.shape(args[kInfo]);
  int32_t info = 0;
  if (each_while(loop, [&](const int64_t(&at)[1]) {
        return (info = data_of<int32_t>(args[kInfo])[at[0]]) == 0;
      }))
    return HUSK_OK;
  return fail(args.error, HUSK_INVALID_INPUT,
              "%s: %s failed: the matrix is singular, or not positive definite (info %d)", args.op,
              name, info);
}

}  // namespace husk::host
