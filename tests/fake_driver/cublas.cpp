// A libcublasLt.so.13 for tests that runs on the fake driver. It computes products on the host, in
// the order of the stream, and aborts if the real library's behaviour is undefined: an algorithm of
// another problem, memory with a smaller alignment than was promised, a workspace that is too
// small, operands outside of live memory. Calls are counted and fail like the driver's (fake_calls,
// fake_fail_call), with a status of cuBLAS. A heuristic that is to fail with -1 succeeds without a
// result.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "fake.h"
#include "numbers.h"
#include "ops/blas.h"

using namespace husk::cuda;

namespace {

constexpr uint64_t kDesc = 0xDE5C, kLayout = 0x1A40, kPreference = 0x94EF, kAlgo = 0xA190;

struct Desc {
  uint64_t kind;
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t transposed[2];
  int32_t epilogue;
  int32_t unused;
  const void* bias;
};
struct Layout {
  uint64_t kind;
  uint64_t rows, columns;
  int64_t ld, stride;
  int32_t batch;
  cudaDataType_t type;
};
struct Preference {
  uint64_t kind;
  uint64_t workspace;
  uint32_t align[4];
};
struct Algo {
  uint64_t kind, problem, workspace;
  uint16_t align[4];
};
static_assert(sizeof(Layout) <= 64 && sizeof(Algo) <= sizeof(cublasLtMatmulAlgo_t));

struct Work {
  Desc desc;
  Layout layouts[4];
  const void *a, *b, *c;
  void *d, *workspace;
  uint64_t workspace_size;
  double alpha, beta;
};

[[noreturn]] void violation(const char* text) {
  fprintf(stderr, "fake libcublasLt: %s\n", text);
  abort();
}

// The status for a fault, which is a code of the driver or a status of cuBLAS.
cublasStatus_t status_of(int32_t code) {
  if (code == CUDA_ERROR_OUT_OF_MEMORY) return CUBLAS_STATUS_ALLOC_FAILED;
  return code > 16 ? CUBLAS_STATUS_EXECUTION_FAILED : static_cast<cublasStatus_t>(code);
}
cublasStatus_t enter(const char* name, bool in_context) {
  return status_of(fake_enter(name, in_context));
}

template <class T>
T& as(void* descriptor, uint64_t kind) {
  T& typed = *static_cast<T*>(descriptor);
  if (typed.kind != kind) violation("a descriptor of another kind, or no descriptor");
  return typed;
}

template <class T>
cublasStatus_t set(T* to, const void* value, size_t size) {
  if (size != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(to, value, size);
  return CUBLAS_STATUS_SUCCESS;
}

fake::Number number(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_64F: return fake::Number::f64;
    case CUDA_R_32F: return fake::Number::f32;
    case CUDA_R_16F: return fake::Number::f16;
    case CUDA_R_16BF: return fake::Number::bf16;
  }
  violation("an unknown type");
}
size_t width(cudaDataType_t type) { return fake::width(number(type)); }
double load(cudaDataType_t type, const void* from, int64_t index) {
  return fake::load(number(type), from, index);
}
void store(cudaDataType_t type, void* to, int64_t index, double value) {
  fake::store(number(type), to, index, value);
}

// A hash of the problem without addresses, alpha and beta.
uint64_t hash(const Desc& desc, const Layout* const* layouts) {
  uint64_t h = 14695981039346656037u;
  const auto add = [&h](const void* data, size_t size) {
    for (size_t i = 0; i < size; ++i)
      h = (h ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211u;
  };
  add(&desc, offsetof(Desc, bias));
  for (int i = 0; i < 4; ++i) add(layouts[i], sizeof(Layout));
  return h;
}

// CUBLAS_STATUS_SUCCESS if the library has a kernel for the product.
cublasStatus_t check(const Desc& desc, const Layout& a, const Layout& b, const Layout& c,
                     const Layout& d) {
  const uint64_t m = d.rows, n = d.columns, k = desc.transposed[0] ? a.rows : a.columns;
  const bool fit = (desc.transposed[0] ? a.columns : a.rows) == m &&
                   (desc.transposed[1] ? b.columns : b.rows) == k &&
                   (desc.transposed[1] ? b.rows : b.columns) == n && c.rows == m && c.columns == n;
  if (!fit || m == 0 || n == 0 || k == 0) return CUBLAS_STATUS_INVALID_VALUE;
  for (const Layout* each : {&a, &b, &c, &d})
    if (each->ld < static_cast<int64_t>(each->rows) || each->batch != d.batch ||
        each->type != d.type || each->batch < 1)
      return CUBLAS_STATUS_INVALID_VALUE;
  if (d.batch > 1 && (d.stride == 0 || c.stride == 0)) return CUBLAS_STATUS_INVALID_VALUE;
  const bool is_double = d.type == CUDA_R_64F;
  if (is_double != (desc.compute == CUBLAS_COMPUTE_64F) || is_double != (desc.scale == CUDA_R_64F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && d.type != CUDA_R_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

void multiply(const void* data) {
  Work w;
  memcpy(&w, data, sizeof w);
  const Layout &a = w.layouts[0], &b = w.layouts[1], &c = w.layouts[2], &d = w.layouts[3];
  if (w.workspace_size) memset(w.workspace, 0xEE, w.workspace_size);
  const int64_t m = static_cast<int64_t>(d.rows), n = static_cast<int64_t>(d.columns);
  const int64_t k = static_cast<int64_t>(w.desc.transposed[0] ? a.rows : a.columns);
  for (int64_t batch = 0; batch < d.batch; ++batch)
    for (int64_t column = 0; column < n; ++column)
      for (int64_t row = 0; row < m; ++row) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i) {
          const int64_t at_a = w.desc.transposed[0] ? i + row * a.ld : row + i * a.ld;
          const int64_t at_b = w.desc.transposed[1] ? column + i * b.ld : i + column * b.ld;
          sum += load(a.type, w.a, batch * a.stride + at_a) *
                 load(b.type, w.b, batch * b.stride + at_b);
        }
        sum *= w.alpha;
        if (w.beta != 0) sum += w.beta * load(c.type, w.c, batch * c.stride + row + column * c.ld);
        if (w.desc.epilogue == CUBLASLT_EPILOGUE_BIAS) sum += load(d.type, w.desc.bias, row);
        store(d.type, w.d, batch * d.stride + row + column * d.ld, sum);
      }
}

fake_range range(const Layout& layout, const void* at) {
  const int64_t last = (layout.batch - 1) * layout.stride +
                       static_cast<int64_t>(layout.columns - 1) * layout.ld +
                       static_cast<int64_t>(layout.rows);
  return {at, static_cast<uint64_t>(last) * width(layout.type)};
}

bool overlap(const fake_range& one, const fake_range& other) {
  const auto a = reinterpret_cast<uintptr_t>(one.address),
             b = reinterpret_cast<uintptr_t>(other.address);
  return a < b + other.size && b < a + one.size;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (const cublasStatus_t fault = enter("cublasLtCreate", true)) return fault;
  fake_hold(1);
  *handle = reinterpret_cast<cublasLtHandle_t>(new uint64_t{kAlgo});
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const cublasStatus_t fault = enter("cublasLtDestroy", true);
  fake_hold(-1);
  delete reinterpret_cast<uint64_t*>(handle);
  return fault;
}

EXPORT const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unrecognized status";
}

EXPORT cublasStatus_t cublasLtMatrixLayoutInit_internal(void* layout, size_t size,
                                                        cudaDataType_t type, uint64_t rows,
                                                        uint64_t columns, int64_t ld) {
  if (const cublasStatus_t fault = enter("cublasLtMatrixLayoutInit", false)) return fault;
  if (size < 64) return CUBLAS_STATUS_ALLOC_FAILED;
  *static_cast<Layout*>(layout) = {kLayout, rows, columns, ld, 0, 1, type};
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(void* layout,
                                                       cublasLtMatrixLayoutAttribute_t attribute,
                                                       const void* value, size_t size) {
  if (const cublasStatus_t fault = enter("cublasLtMatrixLayoutSetAttribute", false)) return fault;
  Layout& typed = as<Layout>(layout, kLayout);
  return attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? set(&typed.batch, value, size)
                                                         : set(&typed.stride, value, size);
}

EXPORT cublasStatus_t cublasLtMatmulDescInit_internal(void* desc, size_t size,
                                                      cublasComputeType_t compute,
                                                      cudaDataType_t scale) {
  if (const cublasStatus_t fault = enter("cublasLtMatmulDescInit", false)) return fault;
  if (size < sizeof(Desc)) return CUBLAS_STATUS_ALLOC_FAILED;
  *static_cast<Desc*>(desc) = {kDesc, compute, scale, {0, 0}, CUBLASLT_EPILOGUE_DEFAULT,
                               0,     nullptr};
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(void* desc,
                                                     cublasLtMatmulDescAttributes_t attribute,
                                                     const void* value, size_t size) {
  if (const cublasStatus_t fault = enter("cublasLtMatmulDescSetAttribute", false)) return fault;
  Desc& typed = as<Desc>(desc, kDesc);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(&typed.transposed[0], value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(&typed.transposed[1], value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&typed.epilogue, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&typed.bias, value, size);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceInit_internal(void* preference, size_t size) {
  if (const cublasStatus_t fault = enter("cublasLtMatmulPreferenceInit", false)) return fault;
  if (size < sizeof(Preference)) return CUBLAS_STATUS_ALLOC_FAILED;
  *static_cast<Preference*>(preference) = {kPreference, 0, {256, 256, 256, 256}};
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    void* preference, cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
    size_t size) {
  if (const cublasStatus_t fault = enter("cublasLtMatmulPreferenceSetAttribute", false))
    return fault;
  Preference& typed = as<Preference>(preference, kPreference);
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return set(&typed.workspace, value, size);
  return set(&typed.align[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, size);
}

EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, void* desc, void* a,
                                                     void* b, void* c, void* d, void* preference,
                                                     int, cublasLtMatmulHeuristicResult_t* results,
                                                     int* count) {
  *count = 0;
  const cublasStatus_t fault = enter("cublasLtMatmulAlgoGetHeuristic", true);
  if (static_cast<int>(fault) == -1) return CUBLAS_STATUS_SUCCESS;
  if (fault) return fault;
  if (*reinterpret_cast<uint64_t*>(handle) != kAlgo) violation("not a handle");
  const Layout* layouts[4] = {};
  void* arguments[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) layouts[i] = &as<Layout>(arguments[i], kLayout);
  const Desc& problem = as<Desc>(desc, kDesc);
  const Preference& wanted = as<Preference>(preference, kPreference);
  if (const cublasStatus_t wrong = check(problem, *layouts[0], *layouts[1], *layouts[2],
                                         *layouts[3]))
    return wrong;
  if (problem.epilogue == CUBLASLT_EPILOGUE_BIAS && !problem.bias)
    return CUBLAS_STATUS_INVALID_VALUE;
  const uint64_t all = layouts[3]->rows * layouts[3]->columns * 4;
  Algo algo = {kAlgo, hash(problem, layouts), all < wanted.workspace ? all : wanted.workspace, {}};
  for (int i = 0; i < 4; ++i) algo.align[i] = static_cast<uint16_t>(wanted.align[i]);
  memcpy(&results->algo, &algo, sizeof algo);
  results->workspaceSize = algo.workspace;
  results->state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, void* desc, const void* alpha,
                                     const void* a, void* a_layout, const void* b, void* b_layout,
                                     const void* beta, const void* c, void* c_layout, void* d,
                                     void* d_layout, const cublasLtMatmulAlgo_t* algo,
                                     void* workspace, size_t workspace_size, CUstream stream) {
  if (*reinterpret_cast<uint64_t*>(handle) != kAlgo) violation("not a handle");
  Work w = {};
  w.desc = as<Desc>(desc, kDesc);
  void* arguments[] = {a_layout, b_layout, c_layout, d_layout};
  const Layout* layouts[4];
  for (int i = 0; i < 4; ++i) layouts[i] = &(w.layouts[i] = as<Layout>(arguments[i], kLayout));
  Algo chosen;
  memcpy(&chosen, algo, sizeof chosen);
  if (chosen.kind != kAlgo || chosen.problem != hash(w.desc, layouts))
    violation("the algorithm belongs to another problem");
  if (workspace_size < chosen.workspace)
    violation("the workspace is smaller than the algorithm needs");
  const void* pointers[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (reinterpret_cast<uintptr_t>(pointers[i]) % chosen.align[i])
      violation("an operand has a smaller alignment than was promised");
  w.a = a;
  w.b = b;
  w.c = c;
  w.d = d;
  w.workspace = workspace;
  w.workspace_size = workspace_size;
  w.alpha = load(w.desc.scale, alpha, 0);
  w.beta = load(w.desc.scale, beta, 0);
  fake_range ranges[6] = {range(w.layouts[3], d), range(w.layouts[0], a), range(w.layouts[1], b)};
  uint32_t count = 3;
  if (w.beta != 0) ranges[count++] = range(w.layouts[2], c);
  if (w.desc.epilogue == CUBLASLT_EPILOGUE_BIAS) {
    ranges[count++] = {w.desc.bias, w.layouts[3].rows * width(w.layouts[3].type)};
    if (reinterpret_cast<uintptr_t>(w.desc.bias) % chosen.align[3])
      violation("the bias has a smaller alignment than was promised");
  }
  if (workspace_size) ranges[count++] = {workspace, workspace_size};
  for (uint32_t i = 1; i < count; ++i)
    if (overlap(ranges[0], ranges[i]) && ranges[i].address != (w.beta != 0 ? c : nullptr))
      violation("the result overlaps an operand");
  return status_of(fake_queue("cublasLtMatmul", stream, multiply, &w, sizeof w, ranges, count));
}
