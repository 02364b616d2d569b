// LU and Cholesky factorizations, and systems of equations.
#include "ops/linalg_call.h"

namespace husk::cuda::linalg {

namespace {

constexpr const char* kSingular = "the matrix is singular";

bool same_sizes(const Matrices& one, const Matrices& other) {
  return one.rows == other.rows && one.columns == other.columns && one.batch == other.batch;
}

// The elements of scratch memory that factoring such matrices takes.
husk_status lu_work(LinalgCall& call, const Matrices& lu, int* count) {
  const Cusolver& library = call.library();
  const auto size_of_work = call.is_double() ? library.cusolverDnDgetrf_bufferSize
                                             : library.cusolverDnSgetrf_bufferSize;
  return call.check(
      size_of_work(library.handle, static_cast<int>(lu.rows), static_cast<int>(lu.columns),
                   call.unread(lu.data), static_cast<int>(lu.rows), count),
      "cusolverDnXgetrf_bufferSize");
}

// Factors matrix `index` in place. Without pivots, `pivots` is null.
husk_status factor_lu(LinalgCall& call, const Matrices& lu, int64_t index, int32_t* pivots,
                      int32_t* info) {
  const Cusolver& library = call.library();
  const auto factor = call.is_double() ? library.cusolverDnDgetrf : library.cusolverDnSgetrf;
  return call.check(factor(library.handle, static_cast<int>(lu.rows), static_cast<int>(lu.columns),
                           lu.at(index), static_cast<int>(lu.rows), call.work(), pivots, info),
                    "cusolverDnXgetrf");
}

// Replaces the right sides `x` by the solutions for a factored matrix, or for its transpose.
// `ignored` is a number in device memory.
husk_status solve_lu(LinalgCall& call, const Matrices& lu, const int32_t* pivots, bool transposed,
                     const Matrices& x, int64_t index, int32_t* ignored) {
  const Cusolver& library = call.library();
  const auto solve = call.is_double() ? library.cusolverDnDgetrs : library.cusolverDnSgetrs;
  return call.check(
      solve(library.handle, transposed ? CUBLAS_OP_T : CUBLAS_OP_N, static_cast<int>(lu.rows),
            static_cast<int>(x.columns), lu.at(index), static_cast<int>(lu.rows),
            pivots + index * lu.rows, x.at(index), static_cast<int>(x.rows), ignored),
      "cusolverDnXgetrs");
}

// The bytes of `count` pivots and of a number that is ignored.
size_t pivot_bytes(int64_t count) { return static_cast<size_t>(count + 1) * sizeof(int32_t); }

husk_status square(LinalgCall& call, uint32_t index, Matrices* out) {
  HUSK_TRY(call.matrices(index, out));
  return call.expect(out->rows == out->columns, "the matrix is square");
}

}  // namespace

husk_status lu_factor(LinalgCall& call) {
  constexpr ArgumentPlaces at = places::lu_factor;
  constexpr uint32_t kA = at["A"], kPivot = at["pivot"], kCheck = at["check_errors"],
                     kLu = at["LU"], kPivots = at["pivots"], kInfo = at["info"];
  Matrices a, lu;
  HUSK_TRY(call.matrices(kA, &a));
  HUSK_TRY(call.matrices(kLu, &lu));
  HUSK_TRY(call.expect(same_sizes(a, lu), "LU is as large as A"));
  const int64_t few = a.rows < a.columns ? a.rows : a.columns;
  int32_t *pivots = nullptr, *infos = nullptr;
  HUSK_TRY(call.dense(kPivots, HUSK_I32, few * a.batch, &pivots));
  HUSK_TRY(call.dense(kInfo, HUSK_I32, a.batch, &infos));
  int count = 0;
  if (!a.is_empty()) HUSK_TRY(lu_work(call, lu, &count));
  HUSK_TRY(call.reserve(0, static_cast<size_t>(count * a.element_bytes)));
  if (call.is_prepared()) return HUSK_OK;
  if (a.is_empty()) return call.zero(infos, a.batch * static_cast<int64_t>(sizeof *infos));
  HUSK_TRY(call.copy(lu.data, a.data, a.bytes() * a.batch));
  const bool pivoting = call.flag(kPivot);
  for (int64_t i = 0; i < a.batch; ++i) {
    int32_t* own_pivots = pivots + i * few;
    if (!pivoting) HUSK_TRY(call.set_ints(own_pivots, 1, few));
    HUSK_TRY(factor_lu(call, lu, i, pivoting ? own_pivots : nullptr, infos + i));
  }
  if (call.flag(kCheck)) call.check_later(infos, a.batch, kSingular);
  return HUSK_OK;
}

// Equations with the unknown on the left, X A = B, are those of the transposes, which lie row by
// row. The library exchanges rows by the pivots without a check, so it gets a copy that nobody else
// can change, and that was checked.
husk_status lu_solve(LinalgCall& call) {
  constexpr ArgumentPlaces at = places::lu_solve;
  constexpr uint32_t kLu = at["LU"], kPivots = at["pivots"], kB = at["B"], kLeft = at["left"],
                     kAdjoint = at["adjoint"], kOut = at["out"];
  Matrices lu, b, x;
  HUSK_TRY(square(call, kLu, &lu));
  const bool transposed = !call.flag(kLeft);
  HUSK_TRY(call.matrices(kB, &b, transposed));
  HUSK_TRY(call.matrices(kOut, &x, transposed));
  HUSK_TRY(call.expect(same_sizes(b, x) && b.rows == lu.rows && b.batch == lu.batch,
                       "B and the result fit LU"));
  int32_t* pivots = nullptr;
  HUSK_TRY(call.dense(kPivots, HUSK_I32, lu.rows * lu.batch, &pivots));
  const int64_t count = lu.rows * lu.batch;
  HUSK_TRY(call.reserve(pivot_bytes(count), 0));
  if (call.is_prepared() || b.is_empty()) return HUSK_OK;
  auto* const checked = static_cast<int32_t*>(call.own());
  HUSK_TRY(call.copy(checked, pivots, count * static_cast<int64_t>(sizeof *pivots)));
  HUSK_TRY(call.check_rows(kPivots, checked, count, lu.rows));
  HUSK_TRY(call.copy(x.data, b.data, b.bytes() * b.batch));
  for (int64_t i = 0; i < b.batch; ++i)
    HUSK_TRY(solve_lu(call, lu, checked, transposed != call.flag(kAdjoint), x, i, checked + count));
  return HUSK_OK;
}

// The library's pivots lie in memory that nobody else can change until they have been used.
husk_status solve(LinalgCall& call) {
  constexpr ArgumentPlaces at = places::solve;
  constexpr uint32_t kA = at["A"], kB = at["B"], kLeft = at["left"], kCheck = at["check_errors"],
                     kResult = at["result"], kLu = at["LU"], kPivots = at["pivots"],
                     kInfo = at["info"];
  Matrices a, b, x, lu;
  HUSK_TRY(square(call, kA, &a));
  const bool transposed = !call.flag(kLeft);
  HUSK_TRY(call.matrices(kB, &b, transposed));
  HUSK_TRY(call.matrices(kResult, &x, transposed));
  HUSK_TRY(call.matrices(kLu, &lu));
  HUSK_TRY(
      call.expect(same_sizes(a, lu) && same_sizes(b, x) && b.rows == a.rows && b.batch == a.batch,
                  "B and the results fit A"));
  int32_t *pivots = nullptr, *infos = nullptr;
  HUSK_TRY(call.dense(kPivots, HUSK_I32, a.rows * a.batch, &pivots));
  HUSK_TRY(call.dense(kInfo, HUSK_I32, a.batch, &infos));
  int count = 0;
  if (!a.is_empty()) HUSK_TRY(lu_work(call, lu, &count));
  const int64_t pivot_count = a.rows * a.batch;
  HUSK_TRY(call.reserve(pivot_bytes(pivot_count), static_cast<size_t>(count * a.element_bytes)));
  if (call.is_prepared()) return HUSK_OK;
  if (a.is_empty()) return call.zero(infos, a.batch * static_cast<int64_t>(sizeof *infos));
  HUSK_TRY(call.copy(lu.data, a.data, a.bytes() * a.batch));
  HUSK_TRY(call.copy(x.data, b.data, b.bytes() * b.batch));
  auto* const own_pivots = static_cast<int32_t*>(call.own());
  for (int64_t i = 0; i < a.batch; ++i) {
    HUSK_TRY(factor_lu(call, lu, i, own_pivots + i * a.rows, infos + i));
    if (!x.is_empty())
      HUSK_TRY(solve_lu(call, lu, own_pivots, transposed, x, i, own_pivots + pivot_count));
  }
  HUSK_TRY(call.copy(pivots, own_pivots, pivot_count * static_cast<int64_t>(sizeof *pivots)));
  if (call.flag(kCheck)) call.check_later(infos, a.batch, kSingular);
  return HUSK_OK;
}

// The inverse is the solution for the identity matrix.
husk_status inverse(LinalgCall& call) {
  constexpr ArgumentPlaces at = places::inverse;
  constexpr uint32_t kA = at["A"], kCheck = at["check_errors"], kInverse = at["inverse"],
                     kInfo = at["info"];
  Matrices a, x;
  HUSK_TRY(square(call, kA, &a));
  HUSK_TRY(call.matrices(kInverse, &x));
  HUSK_TRY(call.expect(same_sizes(a, x), "the inverse is as large as A"));
  int32_t* infos = nullptr;
  HUSK_TRY(call.dense(kInfo, HUSK_I32, a.batch, &infos));
  int count = 0;
  if (!a.is_empty()) HUSK_TRY(lu_work(call, a, &count));
  const int64_t lu_bytes = a.bytes() * a.batch;
  HUSK_TRY(call.reserve(static_cast<size_t>(lu_bytes) + pivot_bytes(a.rows * a.batch),
                        static_cast<size_t>(count * a.element_bytes)));
  if (call.is_prepared()) return HUSK_OK;
  if (a.is_empty()) return call.zero(infos, a.batch * static_cast<int64_t>(sizeof *infos));
  const Matrices lu = {static_cast<char*>(call.own()), a.rows, a.columns, a.batch, a.element_bytes};
  int32_t* pivots = reinterpret_cast<int32_t*>(lu.data + lu_bytes);
  HUSK_TRY(call.copy(lu.data, a.data, lu_bytes));
  HUSK_TRY(call.set_identity(x));
  for (int64_t i = 0; i < a.batch; ++i) {
    HUSK_TRY(factor_lu(call, lu, i, pivots + i * a.rows, infos + i));
    HUSK_TRY(solve_lu(call, lu, pivots, false, x, i, pivots + a.rows * a.batch));
  }
  if (call.flag(kCheck)) call.check_later(infos, a.batch, kSingular);
  return HUSK_OK;
}

// The library leaves the other triangle as it was.
husk_status cholesky(LinalgCall& call) {
  constexpr ArgumentPlaces at = places::cholesky;
  constexpr uint32_t kSelf = at["self"], kUpper = at["upper"], kCheck = at["check_errors"],
                     kFactor = at["L"], kInfo = at["info"];
  Matrices a, factor;
  HUSK_TRY(square(call, kSelf, &a));
  HUSK_TRY(call.matrices(kFactor, &factor));
  HUSK_TRY(call.expect(same_sizes(a, factor), "L is as large as the matrix"));
  int32_t* infos = nullptr;
  HUSK_TRY(call.dense(kInfo, HUSK_I32, a.batch, &infos));
  const Cusolver& library = call.library();
  const bool upper = call.flag(kUpper);
  const auto triangle = upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
  size_t work = 0, host = 0;
  if (!a.is_empty())
    HUSK_TRY(call.check(library.cusolverDnXpotrf_bufferSize(
                            library.handle, library.params, triangle, a.rows, call.type(),
                            call.unread(factor.data), a.rows, call.type(), &work, &host),
                        "cusolverDnXpotrf_bufferSize"));
  HUSK_TRY(call.reserve(0, work, host));
  if (call.is_prepared()) return HUSK_OK;
  if (a.is_empty()) return call.zero(infos, a.batch * static_cast<int64_t>(sizeof *infos));
  HUSK_TRY(call.copy(factor.data, a.data, a.bytes() * a.batch));
  for (int64_t i = 0; i < a.batch; ++i) {
    HUSK_TRY(call.check_host_work(
        library.cusolverDnXpotrf(library.handle, library.params, triangle, a.rows, call.type(),
                                 factor.at(i), a.rows, call.type(), call.work(), call.work_bytes(),
                                 call.host_work(), call.host_bytes(), infos + i),
        "cusolverDnXpotrf"));
    HUSK_TRY(upper ? call.clear_below(factor, i) : call.clear_above(factor, i));
  }
  if (call.flag(kCheck)) call.check_later(infos, a.batch, "the matrix is not positive definite");
  return HUSK_OK;
}

husk_status check_errors(LinalgCall& call) {
  constexpr ArgumentPlaces at = places::check_errors;
  constexpr uint32_t kInfo = at["info"];
  int64_t count = 1;
  for (int32_t d = 0; d < call[kInfo].rank; ++d) count *= call[kInfo].sizes[d];
  int32_t* infos = nullptr;
  HUSK_TRY(call.dense(kInfo, HUSK_I32, count, &infos));
  call.check_later(infos, count, "the matrix is singular, or not positive definite");
  return HUSK_OK;
}

}  // namespace husk::cuda::linalg
