// QR factorizations and products with reflectors.
#include <cstring>

#include "ops/linalg_call.h"

namespace husk::cuda::linalg {

namespace {

// The bytes of scratch memory for factoring `a`.
husk_status factor_work(LinalgCall& call, const Matrices& a, size_t* work, size_t* host) {
  const Cusolver& library = call.library();
  return call.check(
      library.cusolverDnXgeqrf_bufferSize(library.handle, library.params, a.rows, a.columns,
                                          call.type(), call.unread(a.data), a.rows, call.type(),
                                          call.unread(a.data), call.type(), work, host),
      "cusolverDnXgeqrf_bufferSize");
}

// Replaces a matrix by its factor R and the reflectors.
husk_status factor(LinalgCall& call, const Matrices& a, void* matrix, void* tau) {
  const Cusolver& library = call.library();
  return call.check_host_work(
      library.cusolverDnXgeqrf(library.handle, library.params, a.rows, a.columns, call.type(),
                               matrix, a.rows, call.type(), tau, call.type(), call.work(),
                               call.work_bytes(), call.host_work(), call.host_bytes(),
                               static_cast<int32_t*>(call.own())),
      "cusolverDnXgeqrf");
}

// The elements of scratch memory for the columns of a product of `k` reflectors.
husk_status product_work(LinalgCall& call, const Matrices& q, int64_t k, int* count) {
  const Cusolver& library = call.library();
  const auto size_of_work = call.is_double() ? library.cusolverDnDorgqr_bufferSize
                                             : library.cusolverDnSorgqr_bufferSize;
  return call.check(
      size_of_work(library.handle, static_cast<int>(q.rows), static_cast<int>(q.columns),
                   static_cast<int>(k), call.unread(q.data), static_cast<int>(q.rows),
                   call.unread(q.data), count),
      "cusolverDnXorgqr_bufferSize");
}

// Replaces the reflectors in the first `k` columns of a matrix by the columns of their product.
husk_status multiply(LinalgCall& call, const Matrices& q, int64_t index, int64_t k, const void* tau,
                     int count) {
  const Cusolver& library = call.library();
  const auto compute = call.is_double() ? library.cusolverDnDorgqr : library.cusolverDnSorgqr;
  return call.check(compute(library.handle, static_cast<int>(q.rows), static_cast<int>(q.columns),
                            static_cast<int>(k), q.at(index), static_cast<int>(q.rows), tau,
                            call.work(), count, static_cast<int32_t*>(call.own())),
                    "cusolverDnXorgqr");
}

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace

husk_status geqrf(LinalgCall& call) {
  constexpr ArgumentPlaces at = places::geqrf;
  constexpr uint32_t kSelf = at["self"], kA = at["a"], kTau = at["tau"];
  Matrices a, out;
  HUSK_TRY(call.matrices(kSelf, &a));
  HUSK_TRY(call.matrices(kA, &out));
  HUSK_TRY(call.expect(a.rows == out.rows && a.columns == out.columns && a.batch == out.batch,
                       "the result is as large as the matrix"));
  const int64_t few = least(a.rows, a.columns);
  char* tau = nullptr;
  HUSK_TRY(call.dense(kTau, call.dtype(), few * a.batch, &tau));
  if (a.is_empty()) return HUSK_OK;
  size_t work = 0, host = 0;
  HUSK_TRY(factor_work(call, a, &work, &host));
  HUSK_TRY(call.reserve(sizeof(int32_t), work, host));
  if (call.is_prepared()) return HUSK_OK;
  HUSK_TRY(call.copy(out.data, a.data, a.bytes() * a.batch));
  for (int64_t i = 0; i < a.batch; ++i)
    HUSK_TRY(factor(call, a, out.at(i), tau + i * few * a.element_bytes));
  return HUSK_OK;
}

// A matrix is factored in the workspace, where its reflectors' factors follow
// it. R is the upper triangle of the result, Q the product of the reflectors below.
husk_status qr(LinalgCall& call) {
  constexpr ArgumentPlaces at = places::qr;
  constexpr uint32_t kA = at["A"], kMode = at["mode"], kQ = at["Q"], kR = at["R"],
                     kWorkspace = at["workspace"];
  Matrices a, q = {}, r;
  HUSK_TRY(call.matrices(kA, &a));
  HUSK_TRY(call.matrices(kR, &r));
  const bool has_q = strcmp(call.text(kMode), "r") != 0;
  const int64_t few = least(a.rows, a.columns);
  const int64_t rows = strcmp(call.text(kMode), "complete") == 0 ? a.rows : few;
  if (has_q) HUSK_TRY(call.matrices(kQ, &q));
  HUSK_TRY(
      call.expect(r.rows == rows && r.columns == a.columns && r.batch == a.batch &&
                      (!has_q || (q.rows == a.rows && q.columns == rows && q.batch == a.batch)),
                  "Q and R fit A"));
  char* space = nullptr;
  HUSK_TRY(call.workspace(kWorkspace, a.rows * a.columns + few, &space));
  if (a.is_empty())
    return call.is_prepared() || !has_q ? husk_status{HUSK_OK} : call.set_identity(q);
  size_t work = 0, host = 0;
  int count = 0;
  HUSK_TRY(factor_work(call, a, &work, &host));
  if (has_q) HUSK_TRY(product_work(call, q, few, &count));
  const size_t product_bytes = static_cast<size_t>(count * a.element_bytes);
  HUSK_TRY(call.reserve(sizeof(int32_t), work > product_bytes ? work : product_bytes, host));
  if (call.is_prepared()) return HUSK_OK;
  char* tau = space + a.bytes();
  const int64_t column = a.rows * a.element_bytes;
  for (int64_t i = 0; i < a.batch; ++i) {
    HUSK_TRY(call.copy(space, a.at(i), a.bytes()));
    HUSK_TRY(factor(call, a, space, tau));
    HUSK_TRY(call.copy_columns(r.at(i), rows * a.element_bytes, space, column,
                               rows * a.element_bytes, a.columns));
    HUSK_TRY(call.clear_below(r, i));
    if (!has_q) continue;
    HUSK_TRY(call.copy(q.at(i), space, few * column));
    HUSK_TRY(multiply(call, q, i, few, tau, count));
  }
  return HUSK_OK;
}

husk_status householder_product(LinalgCall& call) {
  constexpr ArgumentPlaces at = places::householder_product;
  constexpr uint32_t kInput = at["input"], kTau = at["tau"], kOut = at["out"];
  Matrices a, q;
  HUSK_TRY(call.matrices(kInput, &a));
  HUSK_TRY(call.matrices(kOut, &q));
  const husk_op_arg& factors = call[kTau];
  const int64_t k = factors.kind == HUSK_ARG_TENSOR && factors.rank > 0
                        ? factors.sizes[factors.rank - 1]
                        : 0;
  char* tau = nullptr;
  HUSK_TRY(call.dense(kTau, call.dtype(), k * a.batch, &tau));
  HUSK_TRY(call.expect(a.rows == q.rows && a.columns == q.columns && a.batch == q.batch &&
                           k <= a.columns && a.columns <= a.rows,
                       "the product is as large as the matrix"));
  if (a.is_empty()) return HUSK_OK;
  int count = 0;
  if (k > 0) HUSK_TRY(product_work(call, a, k, &count));
  HUSK_TRY(call.reserve(sizeof(int32_t), static_cast<size_t>(count * a.element_bytes)));
  if (call.is_prepared()) return HUSK_OK;
  if (k == 0) return call.set_identity(q);
  HUSK_TRY(call.copy(q.data, a.data, a.bytes() * a.batch));
  for (int64_t i = 0; i < a.batch; ++i)
    HUSK_TRY(multiply(call, q, i, k, tau + i * k * a.element_bytes, count));
  return HUSK_OK;
}

// The product of the reflectors in `self`, whose factors are input2, with the matrix input3.
husk_status ormqr(LinalgCall& call) {
  constexpr ArgumentPlaces at = places::ormqr;
  constexpr uint32_t kSelf = at["self"], kFactors = at["input2"], kMatrix = at["input3"],
                     kLeft = at["left"], kTranspose = at["transpose"], kOut = at["out"];
  Matrices a, c, out;
  HUSK_TRY(call.matrices(kSelf, &a));
  HUSK_TRY(call.matrices(kMatrix, &c));
  HUSK_TRY(call.matrices(kOut, &out));
  const husk_op_arg& factors = call[kFactors];
  const int64_t k = factors.kind == HUSK_ARG_TENSOR && factors.rank > 0
                        ? factors.sizes[factors.rank - 1]
                        : 0;
  char* tau = nullptr;
  HUSK_TRY(call.dense(kFactors, call.dtype(), k * a.batch, &tau));
  const bool left = call.flag(kLeft);
  HUSK_TRY(call.expect(c.rows == out.rows && c.columns == out.columns && c.batch == out.batch &&
                           a.batch == c.batch && a.rows == (left ? c.rows : c.columns) &&
                           k <= a.columns && k <= a.rows,
                       "the matrices fit"));
  if (c.is_empty()) return HUSK_OK;
  const Cusolver& library = call.library();
  const auto size_of_work = call.is_double() ? library.cusolverDnDormqr_bufferSize
                                             : library.cusolverDnSormqr_bufferSize;
  const auto compute = call.is_double() ? library.cusolverDnDormqr : library.cusolverDnSormqr;
  const auto side = left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT;
  const auto trans = call.flag(kTranspose) ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int rows = static_cast<int>(c.rows), columns = static_cast<int>(c.columns);
  const int lda = static_cast<int>(a.rows), reflectors = static_cast<int>(k);
  int count = 0;
  if (k > 0)
    HUSK_TRY(call.check(
        size_of_work(library.handle, side, trans, rows, columns, reflectors, call.unread(a.data),
                     lda, call.unread(tau), call.unread(out.data), rows, &count),
        "cusolverDnXormqr_bufferSize"));
  HUSK_TRY(call.reserve(sizeof(int32_t), static_cast<size_t>(count * a.element_bytes)));
  if (call.is_prepared()) return HUSK_OK;
  HUSK_TRY(call.copy(out.data, c.data, c.bytes() * c.batch));
  for (int64_t i = 0; k > 0 && i < c.batch; ++i)
    HUSK_TRY(call.check(compute(library.handle, side, trans, rows, columns, reflectors, a.at(i),
                                lda, tau + i * k * a.element_bytes, out.at(i), rows, call.work(),
                                count, static_cast<int32_t*>(call.own())),
                        "cusolverDnXormqr"));
  return HUSK_OK;
}

}  // namespace husk::cuda::linalg
