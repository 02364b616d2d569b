// Eigenvalues and singular values.
#include "ops/linalg_call.h"

namespace husk::cuda::linalg {

// The library replaces a matrix by its eigenvectors; if they are not wanted, that happens in the
// workspace.
husk_status eigh(LinalgCall& call) {
  constexpr ArgumentPlaces at = places::eigh;
  constexpr uint32_t kA = at["A"], kTriangle = at["UPLO"], kVectors = at["compute_v"],
                     kEigenvalues = at["eigenvalues"], kEigenvectors = at["eigenvectors"],
                     kWorkspace = at["workspace"];
  Matrices a, target;
  HUSK_TRY(call.matrices(kA, &a));
  HUSK_TRY(call.expect(a.rows == a.columns, "A is square"));
  char *values = nullptr, *space = nullptr;
  HUSK_TRY(call.dense(kEigenvalues, call.dtype(), a.rows * a.batch, &values));
  const bool vectors = call.flag(kVectors);
  if (vectors) {
    HUSK_TRY(call.matrices(kEigenvectors, &target));
    HUSK_TRY(
        call.expect(target.rows == a.rows && target.columns == a.rows && target.batch == a.batch,
                    "eigenvectors are as large as A"));
  } else {
    HUSK_TRY(call.workspace(kWorkspace, a.rows * a.columns, &space));
  }
  if (a.is_empty()) return HUSK_OK;
  const Cusolver& library = call.library();
  const auto mode = vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  const char uplo = call.text(kTriangle)[0];
  const auto triangle = uplo == 'U' || uplo == 'u' ? CUBLAS_FILL_MODE_UPPER
                                                   : CUBLAS_FILL_MODE_LOWER;
  size_t work = 0, host = 0;
  HUSK_TRY(call.check(
      library.cusolverDnXsyevd_bufferSize(library.handle, library.params, mode, triangle, a.rows,
                                          call.type(), call.unread(a.data), a.rows, call.type(),
                                          call.unread(values), call.type(), &work, &host),
      "cusolverDnXsyevd_bufferSize"));
  HUSK_TRY(call.reserve(static_cast<size_t>(a.batch) * sizeof(int32_t), work, host));
  if (call.is_prepared()) return HUSK_OK;
  int32_t* infos = static_cast<int32_t*>(call.own());
  for (int64_t i = 0; i < a.batch; ++i) {
    char* matrix = vectors ? target.at(i) : space;
    HUSK_TRY(call.copy(matrix, a.at(i), a.bytes()));
    HUSK_TRY(call.check_host_work(
        library.cusolverDnXsyevd(library.handle, library.params, mode, triangle, a.rows,
                                 call.type(), matrix, a.rows, call.type(),
                                 values + i * a.rows * a.element_bytes, call.type(), call.work(),
                                 call.work_bytes(), call.host_work(), call.host_bytes(), infos + i),
        "cusolverDnXsyevd"));
  }
  call.check_later(infos, a.batch,
                   "the algorithm did not converge: the matrix is ill-conditioned, or has too many "
                   "repeated eigenvalues");
  return HUSK_OK;
}

// The library returns V, column by column, which is the same memory as Vh row by row. It overwrites
// A, so it gets a copy in the workspace.
husk_status svd(LinalgCall& call) {
  constexpr ArgumentPlaces at = places::svd;
  constexpr uint32_t kA = at["A"], kFull = at["full_matrices"], kVectors = at["compute_uv"],
                     kU = at["U"], kS = at["S"], kVh = at["Vh"], kWorkspace = at["workspace"];
  Matrices a, u, v;
  HUSK_TRY(call.matrices(kA, &a));
  const bool full = call.flag(kFull), vectors = call.flag(kVectors);
  const int64_t few = a.rows < a.columns ? a.rows : a.columns;
  char *values = nullptr, *space = nullptr;
  HUSK_TRY(call.dense(kS, call.dtype(), few * a.batch, &values));
  HUSK_TRY(call.workspace(kWorkspace, a.rows * a.columns, &space));
  // The library wants memory for singular vectors that nobody asked for, too.
  u = {nullptr, a.rows, full && vectors ? a.rows : few, a.batch, a.element_bytes};
  v = {nullptr, a.columns, full && vectors ? a.columns : few, a.batch, a.element_bytes};
  if (vectors) {
    const Matrices left = u, right = v;
    HUSK_TRY(call.matrices(kU, &u));
    HUSK_TRY(call.matrices(kVh, &v, true));
    HUSK_TRY(call.expect(u.rows == left.rows && u.columns == left.columns && u.batch == a.batch &&
                             v.rows == right.rows && v.columns == right.columns &&
                             v.batch == a.batch,
                         "U and Vh fit A"));
  }
  if (a.is_empty()) {
    if (call.is_prepared() || !vectors) return HUSK_OK;
    HUSK_TRY(call.set_identity(u));
    return call.set_identity(v);
  }
  const Cusolver& library = call.library();
  const auto mode = vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  const int econ = full && vectors ? 0 : 1;
  const int rows = static_cast<int>(a.rows), columns = static_cast<int>(a.columns);
  const auto size_of_work = call.is_double() ? library.cusolverDnDgesvdj_bufferSize
                                             : library.cusolverDnSgesvdj_bufferSize;
  const auto compute = call.is_double() ? library.cusolverDnDgesvdj : library.cusolverDnSgesvdj;
  int count = 0;
  HUSK_TRY(call.check(size_of_work(library.handle, mode, econ, rows, columns, call.unread(a.data),
                                   rows, call.unread(values), call.unread(u.data), rows,
                                   call.unread(v.data), columns, &count, library.gesvdj),
                      "cusolverDnXgesvdj_bufferSize"));
  const size_t infos_bytes = static_cast<size_t>(a.batch) * sizeof(int32_t);
  const size_t info_space = (infos_bytes + 255) / 256 * 256;
  const size_t unused = vectors ? 0 : static_cast<size_t>(u.bytes() + v.bytes());
  HUSK_TRY(call.reserve(info_space + unused, static_cast<size_t>(count * a.element_bytes)));
  if (call.is_prepared()) return HUSK_OK;
  int32_t* infos = static_cast<int32_t*>(call.own());
  char* none = static_cast<char*>(call.own()) + info_space;
  for (int64_t i = 0; i < a.batch; ++i) {
    HUSK_TRY(call.copy(space, a.at(i), a.bytes()));
    HUSK_TRY(call.check(compute(library.handle, mode, econ, rows, columns, space, rows,
                                values + i * few * a.element_bytes, vectors ? u.at(i) : none, rows,
                                vectors ? v.at(i) : none + u.bytes(), columns, call.work(), count,
                                infos + i, library.gesvdj),
                        "cusolverDnXgesvdj"));
  }
  call.check_later(infos, a.batch,
                   "the algorithm did not converge: the matrix is ill-conditioned, or has too many "
                   "repeated singular values");
  return HUSK_OK;
}

}  // namespace husk::cuda::linalg
