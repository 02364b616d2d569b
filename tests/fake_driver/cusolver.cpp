// A libcusolver.so.12 for tests that runs on the fake driver. It computes on the host, in double
// precision and in the order of the stream, and aborts if the real library's behaviour is
// undefined: two threads with one handle, scratch memory that is too small, host scratch that
// another call gets before the work has ended, operands outside of live memory or at an address
// that is no multiple of their elements' size, pivots that are not numbers of rows. Calls are
// counted and fail like the driver's (fake_calls, fake_fail_call), with a status of cuSOLVER. A
// matrix with a NaN does not converge.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "fake.h"
#include "ops/solver.h"

using namespace husk::cuda;

namespace {

[[noreturn]] void violation(const char* text) {
  fprintf(stderr, "fake libcusolver: %s\n", text);
  abort();
}

// The status for a fault, which is a code of the driver or a status of cuSOLVER.
cusolverStatus_t status_of(int32_t code) {
  if (code == CUDA_ERROR_OUT_OF_MEMORY) return CUSOLVER_STATUS_ALLOC_FAILED;
  return code > 31 ? CUSOLVER_STATUS_EXECUTION_FAILED : static_cast<cusolverStatus_t>(code);
}

struct Handle {
  void* stream = nullptr;
  std::atomic<bool> is_used{false};
};

// The use of a handle during a call.
class Use {
 public:
  explicit Use(cusolverDnHandle_t handle) : handle_(*reinterpret_cast<Handle*>(handle)) {
    if (handle_.is_used.exchange(true)) violation("two threads use one handle");
  }
  ~Use() { handle_.is_used = false; }
  void* stream() const { return handle_.stream; }
  void set_stream(void* stream) { handle_.stream = stream; }

 private:
  Handle& handle_;
};

// A matrix that lies column by column.
struct Matrix {
  int64_t rows, columns;
  std::vector<double> values;
  Matrix(int64_t m, int64_t n) : rows(m), columns(n), values(static_cast<size_t>(m * n)) {}
  double& operator()(int64_t i, int64_t j) { return values[static_cast<size_t>(i + j * rows)]; }
  bool has_nan() const {
    return std::any_of(values.begin(), values.end(), [](double x) { return std::isnan(x); });
  }
  Matrix transposed() {
    Matrix result(columns, rows);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) result(j, i) = (*this)(i, j);
    return result;
  }
};

int64_t width(cudaDataType_t type) { return type == CUDA_R_64F ? 8 : 4; }

double load(cudaDataType_t type, const void* from, int64_t index) {
  return type == CUDA_R_64F ? static_cast<const double*>(from)[index]
                            : static_cast<double>(static_cast<const float*>(from)[index]);
}
void store(cudaDataType_t type, void* to, int64_t index, double value) {
  if (type == CUDA_R_64F)
    static_cast<double*>(to)[index] = value;
  else
    static_cast<float*>(to)[index] = static_cast<float>(value);
}

Matrix read(cudaDataType_t type, const void* from, int64_t rows, int64_t columns, int64_t ld) {
  Matrix result(rows, columns);
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) result(i, j) = load(type, from, i + j * ld);
  return result;
}
void write(cudaDataType_t type, void* to, int64_t ld, Matrix& m) {
  for (int64_t j = 0; j < m.columns; ++j)
    for (int64_t i = 0; i < m.rows; ++i) store(type, to, i + j * ld, m(i, j));
}

// ---- Algorithms ---------------------------------------------------------------------------------

// Makes columns p and q of `a` orthogonal by a rotation, which turns those of `v` too.
bool rotate_columns(Matrix& a, Matrix& v, int64_t p, int64_t q) {
  double alpha = 0, beta = 0, gamma = 0;
  for (int64_t i = 0; i < a.rows; ++i) {
    alpha += a(i, p) * a(i, p);
    beta += a(i, q) * a(i, q);
    gamma += a(i, p) * a(i, q);
  }
  if (std::fabs(gamma) <= 1e-15 * std::sqrt(alpha * beta) || gamma == 0) return false;
  const double zeta = (beta - alpha) / (2 * gamma);
  const double t = (zeta < 0 ? -1 : 1) / (std::fabs(zeta) + std::sqrt(1 + zeta * zeta));
  const double c = 1 / std::sqrt(1 + t * t), s = c * t;
  for (Matrix* m : {&a, &v})
    for (int64_t i = 0; i < m->rows; ++i) {
      const double x = (*m)(i, p), y = (*m)(i, q);
      (*m)(i, p) = c * x - s * y;
      (*m)(i, q) = s * x + c * y;
    }
  return true;
}

// Completes orthonormal columns after the first `known` ones.
void complete_basis(Matrix& u, int64_t known) {
  for (int64_t j = known, unit = 0; j < u.columns; ++unit) {
    for (int64_t i = 0; i < u.rows; ++i) u(i, j) = i == unit % u.rows;
    for (int again = 0; again < 2; ++again)
      for (int64_t k = 0; k < j; ++k) {
        double dot = 0;
        for (int64_t i = 0; i < u.rows; ++i) dot += u(i, k) * u(i, j);
        for (int64_t i = 0; i < u.rows; ++i) u(i, j) -= dot * u(i, k);
      }
    double norm = 0;
    for (int64_t i = 0; i < u.rows; ++i) norm += u(i, j) * u(i, j);
    if (norm < 1e-6) continue;
    for (int64_t i = 0; i < u.rows; ++i) u(i, j) /= std::sqrt(norm);
    ++j;
  }
}

// One-sided Jacobi for a matrix with at least as many rows as columns.
void singular_values(Matrix a, Matrix* u, std::vector<double>* s, Matrix* v) {
  const int64_t n = a.columns;
  Matrix turned(n, n);
  for (int64_t i = 0; i < n; ++i) turned(i, i) = 1;
  for (bool changed = true; changed;) {
    changed = false;
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) changed |= rotate_columns(a, turned, p, q);
  }
  std::vector<std::pair<double, int64_t>> order;
  for (int64_t j = 0; j < n; ++j) {
    double norm = 0;
    for (int64_t i = 0; i < a.rows; ++i) norm += a(i, j) * a(i, j);
    order.emplace_back(-std::sqrt(norm), j);
  }
  std::sort(order.begin(), order.end());
  int64_t known = 0;
  for (int64_t j = 0; j < n; ++j) {
    const auto [negative, from] = order[static_cast<size_t>(j)];
    s->push_back(-negative);
    for (int64_t i = 0; i < n; ++i) (*v)(i, j) = turned(i, from);
    if (-negative < 1e-12 * -order[0].first || negative == 0) continue;
    for (int64_t i = 0; i < a.rows; ++i) (*u)(i, j) = a(i, from) / -negative;
    known = j + 1;
  }
  complete_basis(*u, known);
  complete_basis(*v, n);
}

// Jacobi's method. Returns the eigenvalues in ascending order; `a` becomes the eigenvectors.
std::vector<double> eigenvalues(Matrix& a) {
  const int64_t n = a.rows;
  Matrix v(n, n);
  for (int64_t i = 0; i < n; ++i) v(i, i) = 1;
  for (int sweep = 0; sweep < 60; ++sweep)
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        if (std::fabs(a(p, q)) < 1e-300) continue;
        const double theta = (a(q, q) - a(p, p)) / (2 * a(p, q));
        const double t = (theta < 0 ? -1 : 1) / (std::fabs(theta) + std::hypot(theta, 1.0));
        const double c = 1 / std::sqrt(1 + t * t), s = c * t;
        for (int64_t i = 0; i < n; ++i) {
          const double x = a(i, p), y = a(i, q);
          a(i, p) = c * x - s * y;
          a(i, q) = s * x + c * y;
        }
        for (int64_t i = 0; i < n; ++i) {
          const double x = a(p, i), y = a(q, i);
          a(p, i) = c * x - s * y;
          a(q, i) = s * x + c * y;
        }
        for (int64_t i = 0; i < n; ++i) {
          const double x = v(i, p), y = v(i, q);
          v(i, p) = c * x - s * y;
          v(i, q) = s * x + c * y;
        }
      }
  std::vector<std::pair<double, int64_t>> order;
  for (int64_t j = 0; j < n; ++j) order.emplace_back(a(j, j), j);
  std::sort(order.begin(), order.end());
  std::vector<double> values;
  for (int64_t j = 0; j < n; ++j) {
    const auto [value, from] = order[static_cast<size_t>(j)];
    values.push_back(value);
    for (int64_t i = 0; i < n; ++i) a(i, j) = v(i, from);
  }
  return values;
}

int factor_lu(Matrix& a, int* pivots) {
  int info = 0;
  for (int64_t k = 0; k < std::min(a.rows, a.columns); ++k) {
    int64_t best = k;
    for (int64_t i = k; pivots && i < a.rows; ++i)
      if (std::fabs(a(i, k)) > std::fabs(a(best, k))) best = i;
    if (pivots) pivots[k] = static_cast<int>(best + 1);
    for (int64_t j = 0; best != k && j < a.columns; ++j) std::swap(a(k, j), a(best, j));
    if (a(k, k) == 0) {
      if (!info) info = static_cast<int>(k + 1);
      continue;
    }
    for (int64_t i = k + 1; i < a.rows; ++i) {
      a(i, k) /= a(k, k);
      for (int64_t j = k + 1; j < a.columns; ++j) a(i, j) -= a(i, k) * a(k, j);
    }
  }
  return info;
}

void solve_lu(Matrix& lu, const int* pivots, bool transposed, Matrix& x) {
  const int64_t n = lu.rows;
  for (int64_t k = 0; k < n; ++k)
    if (pivots[k] < 1 || pivots[k] > n) violation("a pivot is not the number of a row");
  const auto swap_rows = [&](int64_t k) {
    for (int64_t j = 0; j < x.columns; ++j) std::swap(x(k, j), x(pivots[k] - 1, j));
  };
  for (int64_t k = 0; !transposed && k < n; ++k) swap_rows(k);
  for (int64_t j = 0; j < x.columns; ++j) {
    if (transposed) {
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t k = 0; k < i; ++k) x(i, j) -= lu(k, i) * x(k, j);
        x(i, j) /= lu(i, i);
      }
      for (int64_t i = n; i-- > 0;)
        for (int64_t k = i + 1; k < n; ++k) x(i, j) -= lu(k, i) * x(k, j);
    } else {
      for (int64_t i = 0; i < n; ++i)
        for (int64_t k = 0; k < i; ++k) x(i, j) -= lu(i, k) * x(k, j);
      for (int64_t i = n; i-- > 0;) {
        for (int64_t k = i + 1; k < n; ++k) x(i, j) -= lu(i, k) * x(k, j);
        x(i, j) /= lu(i, i);
      }
    }
  }
  for (int64_t k = n; transposed && k-- > 0;) swap_rows(k);
}

// Factors the lower triangle.
int factor_cholesky(Matrix& a) {
  for (int64_t j = 0; j < a.rows; ++j) {
    double d = a(j, j);
    for (int64_t k = 0; k < j; ++k) d -= a(j, k) * a(j, k);
    if (!(d > 0)) return static_cast<int>(j + 1);
    a(j, j) = std::sqrt(d);
    for (int64_t i = j + 1; i < a.rows; ++i) {
      for (int64_t k = 0; k < j; ++k) a(i, j) -= a(i, k) * a(j, k);
      a(i, j) /= a(j, j);
    }
  }
  return 0;
}

// Applies reflector k of `a` to the columns of `c`, which has as many rows.
void reflect(Matrix& a, int64_t k, double tau, Matrix& c, int64_t first_column) {
  for (int64_t j = first_column; j < c.columns; ++j) {
    double dot = c(k, j);
    for (int64_t i = k + 1; i < a.rows; ++i) dot += a(i, k) * c(i, j);
    c(k, j) -= tau * dot;
    for (int64_t i = k + 1; i < a.rows; ++i) c(i, j) -= tau * dot * a(i, k);
  }
}

std::vector<double> factor_qr(Matrix& a) {
  std::vector<double> taus;
  for (int64_t k = 0; k < std::min(a.rows, a.columns); ++k) {
    double norm = 0;
    for (int64_t i = k + 1; i < a.rows; ++i) norm += a(i, k) * a(i, k);
    double tau = 0;
    if (norm > 0) {
      const double alpha = a(k, k);
      const double beta = (alpha < 0 ? 1 : -1) * std::sqrt(alpha * alpha + norm);
      tau = (beta - alpha) / beta;
      for (int64_t i = k + 1; i < a.rows; ++i) a(i, k) /= alpha - beta;
      a(k, k) = beta;
      reflect(a, k, tau, a, k + 1);
    }
    taus.push_back(tau);
  }
  return taus;
}

// ---- Queued work --------------------------------------------------------------------------------

// A number that the call writes to the host scratch, and that the work expects there.
std::atomic<uint64_t> next_mark{1};

struct Scratch {
  void* device;
  uint64_t device_bytes;
  void* host;
  uint64_t host_bytes, mark;

  void begin() {
    mark = next_mark++;
    if (host_bytes) memcpy(host, &mark, sizeof mark);
  }
  void use() const {
    if (device_bytes) memset(device, 0xEE, device_bytes);
    if (host_bytes && memcmp(host, &mark, sizeof mark) != 0)
      violation("the host scratch belongs to another call before the work has ended");
    if (host_bytes) memset(host, 0xEE, host_bytes);
  }
};

// The arguments of a call, whose meaning depends on the function.
struct Work {
  cudaDataType_t type;
  int64_t m, n, k, lda, ldb, ldc;
  bool flag, other_flag, full;
  void *a, *b, *c;
  const void* tau;
  int *pivots, *info;
  Scratch scratch;
};

uint64_t bytes_of(cudaDataType_t type, int64_t rows, int64_t columns, int64_t ld) {
  return rows && columns ? static_cast<uint64_t>(((columns - 1) * ld + rows) * width(type)) : 0;
}

cusolverStatus_t queue(const char* name, const Use& use, void (*work)(const void*), Work w,
                       std::vector<fake_range> ranges) {
  w.scratch.begin();
  ranges.push_back({w.info, sizeof *w.info});
  if (w.scratch.device_bytes) ranges.push_back({w.scratch.device, w.scratch.device_bytes});
  for (size_t i = 0; i < ranges.size();)
    if (ranges[i].size)
      ++i;
    else
      ranges.erase(ranges.begin() + static_cast<std::ptrdiff_t>(i));
  const auto is_aligned = [](const void* address, int64_t to) {
    return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(to) == 0;
  };
  bool aligned = is_aligned(w.info, 4) && is_aligned(w.pivots, 4);
  for (const void* operand : {static_cast<const void*>(w.a), static_cast<const void*>(w.b),
                              static_cast<const void*>(w.c), w.tau})
    aligned = aligned && is_aligned(operand, width(w.type));
  if (!aligned) violation("an operand is not aligned to its elements");
  for (const fake_range& one : ranges)
    for (const fake_range& other : ranges)
      if (&one < &other &&
          static_cast<const char*>(one.address) <
              static_cast<const char*>(other.address) + other.size &&
          static_cast<const char*>(other.address) <
              static_cast<const char*>(one.address) + one.size)
        violation("two operands overlap");
  return status_of(fake_queue(name, use.stream(), work, &w, sizeof w, ranges.data(),
                              static_cast<uint32_t>(ranges.size())));
}

cusolverStatus_t size_of_work(const char* name, int64_t wanted, int* count) {
  if (const int32_t fault = fake_enter(name, true)) return status_of(fault);
  *count = static_cast<int>(wanted);
  return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t bytes_of_work(const char* name, size_t wanted, size_t wanted_host, size_t* device,
                               size_t* host) {
  if (const int32_t fault = fake_enter(name, true)) return status_of(fault);
  *device = wanted;
  *host = wanted_host;
  return CUSOLVER_STATUS_SUCCESS;
}

Scratch scratch(void* device, size_t device_bytes, size_t wanted, void* host = nullptr,
                size_t host_bytes = 0, size_t wanted_host = 0) {
  if (device_bytes < wanted || host_bytes < wanted_host) violation("too little scratch memory");
  return {device, wanted, host, wanted_host, 0};
}

size_t syevd_host(int64_t n) { return static_cast<size_t>(n) * 1024; }

void run_syevd(const void* data) {
  Work w;
  memcpy(&w, data, sizeof w);
  w.scratch.use();
  Matrix a = read(w.type, w.a, w.n, w.n, w.lda);
  for (int64_t j = 0; j < w.n; ++j)
    for (int64_t i = 0; i < j; ++i) (w.flag ? a(j, i) : a(i, j)) = w.flag ? a(i, j) : a(j, i);
  *w.info = a.has_nan() ? 1 : 0;
  if (*w.info) return;
  const std::vector<double> values = eigenvalues(a);
  for (int64_t i = 0; i < w.n; ++i) store(w.type, w.b, i, values[static_cast<size_t>(i)]);
  for (double& x : a.values) x = w.other_flag ? x : 7;  // without vectors, A is destroyed
  write(w.type, w.a, w.lda, a);
}

void run_gesvdj(const void* data) {
  Work w;
  memcpy(&w, data, sizeof w);
  w.scratch.use();
  Matrix a = read(w.type, w.a, w.m, w.n, w.lda);
  *w.info = a.has_nan() ? static_cast<int>(std::min(w.m, w.n) + 1) : 0;
  if (*w.info) return;
  const int64_t few = std::min(w.m, w.n);
  const bool wide = w.m < w.n;
  Matrix u(wide ? w.n : w.m, w.full ? (wide ? w.n : w.m) : few),
      v(wide ? w.m : w.n, wide ? w.m : w.n);
  std::vector<double> values;
  singular_values(wide ? a.transposed() : a, &u, &values, &v);
  for (int64_t i = 0; i < few; ++i) store(w.type, w.b, i, values[static_cast<size_t>(i)]);
  for (double& x : a.values) x = 7;
  write(w.type, w.a, w.lda, a);
  if (!w.other_flag) return;
  write(w.type, w.c, w.ldb, wide ? v : u);
  write(w.type, const_cast<void*>(w.tau), w.ldc, wide ? u : v);
}

void run_getrf(const void* data) {
  Work w;
  memcpy(&w, data, sizeof w);
  w.scratch.use();
  Matrix a = read(w.type, w.a, w.m, w.n, w.lda);
  *w.info = factor_lu(a, w.pivots);
  write(w.type, w.a, w.lda, a);
}

void run_getrs(const void* data) {
  Work w;
  memcpy(&w, data, sizeof w);
  Matrix lu = read(w.type, w.a, w.n, w.n, w.lda), x = read(w.type, w.b, w.n, w.k, w.ldb);
  solve_lu(lu, w.pivots, w.flag, x);
  write(w.type, w.b, w.ldb, x);
  *w.info = 0;
}

void run_potrf(const void* data) {
  Work w;
  memcpy(&w, data, sizeof w);
  w.scratch.use();
  Matrix whole = read(w.type, w.a, w.n, w.n, w.lda), a = w.flag ? whole.transposed() : whole;
  *w.info = factor_cholesky(a);
  if (w.flag) a = a.transposed();
  for (int64_t j = 0; j < w.n; ++j)
    for (int64_t i = 0; i < w.n; ++i)
      if (w.flag ? i <= j : i >= j) whole(i, j) = a(i, j);
  write(w.type, w.a, w.lda, whole);
}

void run_geqrf(const void* data) {
  Work w;
  memcpy(&w, data, sizeof w);
  w.scratch.use();
  Matrix a = read(w.type, w.a, w.m, w.n, w.lda);
  const std::vector<double> taus = factor_qr(a);
  for (size_t i = 0; i < taus.size(); ++i) store(w.type, w.b, static_cast<int64_t>(i), taus[i]);
  write(w.type, w.a, w.lda, a);
  *w.info = 0;
}

void run_orgqr(const void* data) {
  Work w;
  memcpy(&w, data, sizeof w);
  w.scratch.use();
  Matrix a = read(w.type, w.a, w.m, w.k, w.lda), q(w.m, w.n);
  for (int64_t i = 0; i < w.n; ++i) q(i, i) = 1;
  for (int64_t k = w.k; k-- > 0;) reflect(a, k, load(w.type, w.tau, k), q, 0);
  write(w.type, w.a, w.lda, q);
  *w.info = 0;
}

void run_ormqr(const void* data) {
  Work w;
  memcpy(&w, data, sizeof w);
  w.scratch.use();
  const bool right = w.flag, transposed = w.other_flag;
  Matrix a = read(w.type, w.a, right ? w.n : w.m, w.k, w.lda),
         c = read(w.type, w.c, w.m, w.n, w.ldc);
  if (right) c = c.transposed();  // C Q is the transpose of Q^T C^T
  for (int64_t i = 0; i < w.k; ++i) {
    const int64_t k = transposed != right ? i : w.k - 1 - i;
    reflect(a, k, load(w.type, w.tau, k), c, 0);
  }
  if (right) c = c.transposed();
  write(w.type, w.c, w.ldc, c);
  *w.info = 0;
}

template <class Object>
cusolverStatus_t create(const char* name, Object* object) {
  if (const int32_t fault = fake_enter(name, true)) return status_of(fault);
  fake_hold(1);
  *object = reinterpret_cast<Object>(new Handle);
  return CUSOLVER_STATUS_SUCCESS;
}
template <class Object>
cusolverStatus_t destroy(const char* name, Object object) {
  const int32_t fault = fake_enter(name, true);
  fake_hold(-1);
  delete reinterpret_cast<Handle*>(object);
  return status_of(fault);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default"))) cusolverStatus_t

EXPORT cusolverDnCreate(cusolverDnHandle_t* handle) { return create("cusolverDnCreate", handle); }
EXPORT cusolverDnDestroy(cusolverDnHandle_t handle) { return destroy("cusolverDnDestroy", handle); }
EXPORT cusolverDnCreateParams(cusolverDnParams_t* params) {
  return create("cusolverDnCreateParams", params);
}
EXPORT cusolverDnDestroyParams(cusolverDnParams_t params) {
  return destroy("cusolverDnDestroyParams", params);
}
EXPORT cusolverDnCreateGesvdjInfo(gesvdjInfo_t* info) {
  return create("cusolverDnCreateGesvdjInfo", info);
}
EXPORT cusolverDnDestroyGesvdjInfo(gesvdjInfo_t info) {
  return destroy("cusolverDnDestroyGesvdjInfo", info);
}

EXPORT cusolverDnSetStream(cusolverDnHandle_t handle, CUstream stream) {
  if (const int32_t fault = fake_enter("cusolverDnSetStream", true)) return status_of(fault);
  Use(handle).set_stream(stream);
  return CUSOLVER_STATUS_SUCCESS;
}

EXPORT cusolverDnXsyevd_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t, cusolverEigMode_t,
                                   cublasFillMode_t, int64_t n, cudaDataType_t type, const void* a,
                                   int64_t lda, cudaDataType_t, const void* w, cudaDataType_t,
                                   size_t* device, size_t* host) {
  const Use use(handle);
  if (!a || !w || lda < n || n < 1) return CUSOLVER_STATUS_INVALID_VALUE;
  return bytes_of_work("cusolverDnXsyevd_bufferSize", static_cast<size_t>(3 * n * width(type)),
                       syevd_host(n), device, host);
}
EXPORT cusolverDnXsyevd(cusolverDnHandle_t handle, cusolverDnParams_t, cusolverEigMode_t jobz,
                        cublasFillMode_t uplo, int64_t n, cudaDataType_t type, void* a, int64_t lda,
                        cudaDataType_t, void* values, cudaDataType_t, void* device,
                        size_t device_bytes, void* host, size_t host_bytes, int* info) {
  const Use use(handle);
  Work w = {};
  w.type = type;
  w.n = n;
  w.lda = lda;
  w.flag = uplo == CUBLAS_FILL_MODE_UPPER;
  w.other_flag = jobz == CUSOLVER_EIG_MODE_VECTOR;
  w.a = a;
  w.b = values;
  w.info = info;
  w.scratch = scratch(device, device_bytes, static_cast<size_t>(3 * n * width(type)), host,
                      host_bytes, syevd_host(n));
  return queue("cusolverDnXsyevd", use, run_syevd, w,
               {{a, bytes_of(type, n, n, lda)}, {values, bytes_of(type, n, 1, n)}});
}

EXPORT cusolverDnXpotrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t, cublasFillMode_t,
                                   int64_t n, cudaDataType_t type, const void* a, int64_t lda,
                                   cudaDataType_t, size_t* device, size_t* host) {
  const Use use(handle);
  if (!a || lda < n || n < 1) return CUSOLVER_STATUS_INVALID_VALUE;
  return bytes_of_work("cusolverDnXpotrf_bufferSize", static_cast<size_t>(n * width(type)), 0,
                       device, host);
}
EXPORT cusolverDnXpotrf(cusolverDnHandle_t handle, cusolverDnParams_t, cublasFillMode_t uplo,
                        int64_t n, cudaDataType_t type, void* a, int64_t lda, cudaDataType_t,
                        void* device, size_t device_bytes, void*, size_t, int* info) {
  const Use use(handle);
  Work w = {};
  w.type = type;
  w.n = n;
  w.lda = lda;
  w.flag = uplo == CUBLAS_FILL_MODE_UPPER;
  w.a = a;
  w.info = info;
  w.scratch = scratch(device, device_bytes, static_cast<size_t>(n * width(type)));
  return queue("cusolverDnXpotrf", use, run_potrf, w, {{a, bytes_of(type, n, n, lda)}});
}

EXPORT cusolverDnXgeqrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t, int64_t m,
                                   int64_t n, cudaDataType_t type, const void* a, int64_t lda,
                                   cudaDataType_t, const void* tau, cudaDataType_t, size_t* device,
                                   size_t* host) {
  const Use use(handle);
  if (!a || !tau || lda < m || n < 1) return CUSOLVER_STATUS_INVALID_VALUE;
  return bytes_of_work("cusolverDnXgeqrf_bufferSize", static_cast<size_t>(n * width(type)), 16,
                       device, host);
}
EXPORT cusolverDnXgeqrf(cusolverDnHandle_t handle, cusolverDnParams_t, int64_t m, int64_t n,
                        cudaDataType_t type, void* a, int64_t lda, cudaDataType_t, void* tau,
                        cudaDataType_t, void* device, size_t device_bytes, void* host,
                        size_t host_bytes, int* info) {
  const Use use(handle);
  Work w = {};
  w.type = type;
  w.m = m;
  w.n = n;
  w.lda = lda;
  w.a = a;
  w.b = tau;
  w.info = info;
  w.scratch = scratch(device, device_bytes, static_cast<size_t>(n * width(type)), host, host_bytes,
                      16);
  return queue("cusolverDnXgeqrf", use, run_geqrf, w,
               {{a, bytes_of(type, m, n, lda)}, {tau, bytes_of(type, std::min(m, n), 1, m)}});
}

namespace {

cusolverStatus_t getrf(const char* name, cudaDataType_t type, cusolverDnHandle_t handle, int m,
                       int n, void* a, int lda, void* work, int* pivots, int* info) {
  const Use use(handle);
  Work w = {};
  w.type = type;
  w.m = m;
  w.n = n;
  w.lda = lda;
  w.a = a;
  w.pivots = pivots;
  w.info = info;
  const auto bytes = static_cast<size_t>((m + n) * width(type));
  w.scratch = scratch(work, bytes, bytes);
  const auto few = static_cast<uint64_t>(std::min(m, n));
  return queue(name, use, run_getrf, w,
               {{a, bytes_of(type, m, n, lda)}, {pivots, pivots ? few * sizeof(int) : 0}});
}

cusolverStatus_t getrs(const char* name, cudaDataType_t type, cusolverDnHandle_t handle,
                       cublasOperation_t trans, int n, int count, const void* a, int lda,
                       const int* pivots, void* b, int ldb, int* info) {
  const Use use(handle);
  Work w = {};
  w.type = type;
  w.n = n;
  w.k = count;
  w.lda = lda;
  w.ldb = ldb;
  w.flag = trans == CUBLAS_OP_T;
  w.a = const_cast<void*>(a);
  w.b = b;
  w.pivots = const_cast<int*>(pivots);
  w.info = info;
  return queue(name, use, run_getrs, w,
               {{a, bytes_of(type, n, n, lda)},
                {b, bytes_of(type, n, count, ldb)},
                {pivots, static_cast<uint64_t>(n) * sizeof(int)}});
}

cusolverStatus_t orgqr(const char* name, cudaDataType_t type, cusolverDnHandle_t handle, int m,
                       int n, int k, void* a, int lda, const void* tau, void* work, int count,
                       int* info) {
  const Use use(handle);
  if (m < n || n < k || k < 1) return CUSOLVER_STATUS_INVALID_VALUE;
  Work w = {};
  w.type = type;
  w.m = m;
  w.n = n;
  w.k = k;
  w.lda = lda;
  w.a = a;
  w.tau = tau;
  w.info = info;
  const auto wanted = static_cast<size_t>(n * width(type));
  w.scratch = scratch(work, static_cast<size_t>(count * width(type)), wanted);
  return queue(name, use, run_orgqr, w,
               {{a, bytes_of(type, m, n, lda)}, {tau, bytes_of(type, k, 1, k)}});
}

cusolverStatus_t ormqr(const char* name, cudaDataType_t type, cusolverDnHandle_t handle,
                       cublasSideMode_t side, cublasOperation_t trans, int m, int n, int k,
                       const void* a, int lda, const void* tau, void* c, int ldc, void* work,
                       int count, int* info) {
  const Use use(handle);
  Work w = {};
  w.type = type;
  w.m = m;
  w.n = n;
  w.k = k;
  w.lda = lda;
  w.ldc = ldc;
  w.flag = side == CUBLAS_SIDE_RIGHT;
  w.other_flag = trans == CUBLAS_OP_T;
  w.a = const_cast<void*>(a);
  w.c = c;
  w.tau = tau;
  w.info = info;
  const auto wanted = static_cast<size_t>((m + n) * width(type));
  w.scratch = scratch(work, static_cast<size_t>(count * width(type)), wanted);
  return queue(name, use, run_ormqr, w,
               {{a, bytes_of(type, w.flag ? n : m, k, lda)},
                {tau, bytes_of(type, k, 1, k)},
                {c, bytes_of(type, m, n, ldc)}});
}

cusolverStatus_t gesvdj(const char* name, cudaDataType_t type, cusolverDnHandle_t handle,
                        cusolverEigMode_t jobz, int econ, int m, int n, void* a, int lda, void* s,
                        void* u, int ldu, void* v, int ldv, void* work, int count, int* info) {
  const Use use(handle);
  if (!u || !v || m < 1 || n < 1) return CUSOLVER_STATUS_INVALID_VALUE;
  Work w = {};
  w.type = type;
  w.m = m;
  w.n = n;
  w.lda = lda;
  w.ldb = ldu;
  w.ldc = ldv;
  w.other_flag = jobz == CUSOLVER_EIG_MODE_VECTOR;
  w.full = !econ;
  w.a = a;
  w.b = s;
  w.c = u;
  w.tau = v;
  w.info = info;
  const int few = std::min(m, n);
  const auto wanted = static_cast<size_t>((m + n) * width(type));
  w.scratch = scratch(work, static_cast<size_t>(count * width(type)), wanted);
  return queue(name, use, run_gesvdj, w,
               {{a, bytes_of(type, m, n, lda)},
                {s, bytes_of(type, few, 1, few)},
                {u, bytes_of(type, m, econ ? few : m, ldu)},
                {v, bytes_of(type, n, econ ? few : n, ldv)}});
}

}  // namespace

#define FOR_TYPE(letter, type)                                                                     \
  EXPORT cusolverDn##letter##getrf_bufferSize(cusolverDnHandle_t handle, int m, int n, void*, int, \
                                              int* count) {                                        \
    const Use use(handle);                                                                         \
    return size_of_work("cusolverDn" #letter "getrf_bufferSize", m + n, count);                    \
  }                                                                                                \
  EXPORT cusolverDn##letter##getrf(cusolverDnHandle_t handle, int m, int n, void* a, int lda,      \
                                   void* work, int* pivots, int* info) {                           \
    return getrf("cusolverDn" #letter "getrf", type, handle, m, n, a, lda, work, pivots, info);    \
  }                                                                                                \
  EXPORT cusolverDn##letter##getrs(cusolverDnHandle_t handle, cublasOperation_t trans, int n,      \
                                   int count, const void* a, int lda, const int* pivots, void* b,  \
                                   int ldb, int* info) {                                           \
    return getrs("cusolverDn" #letter "getrs", type, handle, trans, n, count, a, lda, pivots, b,   \
                 ldb, info);                                                                       \
  }                                                                                                \
  EXPORT cusolverDn##letter##orgqr_bufferSize(cusolverDnHandle_t handle, int, int n, int,          \
                                              const void*, int, const void*, int* count) {         \
    const Use use(handle);                                                                         \
    return size_of_work("cusolverDn" #letter "orgqr_bufferSize", n, count);                        \
  }                                                                                                \
  EXPORT cusolverDn##letter##orgqr(cusolverDnHandle_t handle, int m, int n, int k, void* a,        \
                                   int lda, const void* tau, void* work, int count, int* info) {   \
    return orgqr("cusolverDn" #letter "orgqr", type, handle, m, n, k, a, lda, tau, work, count,    \
                 info);                                                                            \
  }                                                                                                \
  EXPORT cusolverDn##letter##ormqr_bufferSize(cusolverDnHandle_t handle, cublasSideMode_t,         \
                                              cublasOperation_t, int m, int n, int, const void*,   \
                                              int, const void*, const void*, int, int* count) {    \
    const Use use(handle);                                                                         \
    return size_of_work("cusolverDn" #letter "ormqr_bufferSize", m + n, count);                    \
  }                                                                                                \
  EXPORT cusolverDn##letter##ormqr(cusolverDnHandle_t handle, cublasSideMode_t side,               \
                                   cublasOperation_t trans, int m, int n, int k, const void* a,    \
                                   int lda, const void* tau, void* c, int ldc, void* work,         \
                                   int count, int* info) {                                         \
    return ormqr("cusolverDn" #letter "ormqr", type, handle, side, trans, m, n, k, a, lda, tau, c, \
                 ldc, work, count, info);                                                          \
  }                                                                                                \
  EXPORT cusolverDn##letter##gesvdj_bufferSize(                                                    \
      cusolverDnHandle_t handle, cusolverEigMode_t, int, int m, int n, const void*, int,           \
      const void*, const void*, int, const void*, int, int* count, gesvdjInfo_t) {                 \
    const Use use(handle);                                                                         \
    return size_of_work("cusolverDn" #letter "gesvdj_bufferSize", m + n, count);                   \
  }                                                                                                \
  EXPORT cusolverDn##letter##gesvdj(cusolverDnHandle_t handle, cusolverEigMode_t jobz, int econ,   \
                                    int m, int n, void* a, int lda, void* s, void* u, int ldu,     \
                                    void* v, int ldv, void* work, int count, int* info,            \
                                    gesvdjInfo_t) {                                                \
    return gesvdj("cusolverDn" #letter "gesvdj", type, handle, jobz, econ, m, n, a, lda, s, u,     \
                  ldu, v, ldv, work, count, info);                                                 \
  }

FOR_TYPE(S, CUDA_R_32F)
FOR_TYPE(D, CUDA_R_64F)
