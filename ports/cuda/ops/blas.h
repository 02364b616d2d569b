// The part of cuBLASLt that the port uses, and the table of its functions in a library that is
// opened at run time. The declarations stand here so that the port builds without CUDA's headers.
// Names and values are those of cublasLt.h, cublas_api.h and library_types.h;
// tests/port/blas_declarations.cpp compares all of them with these headers if they are installed.
#pragma once

#include "driver.h"

namespace husk::cuda {

using cublasLtHandle_t = struct cublasLtContext*;

enum cublasStatus_t : int {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15
};
enum cudaDataType_t : int { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum cublasComputeType_t : int {
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};
enum cublasOperation_t : int { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasLtEpilogue_t : int { CUBLASLT_EPILOGUE_DEFAULT = 1, CUBLASLT_EPILOGUE_BIAS = 4 };
enum cublasLtMatrixLayoutAttribute_t : int {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,          // int32
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6  // int64, elements
};
enum cublasLtMatmulDescAttributes_t : int {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8
};
enum cublasLtMatmulPreferenceAttributes_t : int {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,    // uint64
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,  // uint32, as the next three
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
};

// An algorithm: plain bytes that may be copied.
struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
};

// Memory for any descriptor of the library, on the stack: the library writes a descriptor in place
// and refuses memory that is too small. In CUDA 13 a product's descriptor has 256 bytes, the others
// have 64.
struct Descriptor {
  uint64_t data[32];
};

struct Cublas {
  void* library;
  cublasLtHandle_t handle;
#define HUSK_CUBLAS(result, name, parameters) result(*name) parameters;
#include "ops/blas.def"
#undef HUSK_CUBLAS
};

// Opens the library at `path` and creates a handle for the current context. If `path` is null,
// opens the newest library that the driver can run. HUSK_UNSUPPORTED if there is none; the error
// says what to do.
[[nodiscard]] husk_status open_cublas(const char* path, const Driver& driver, Cublas* cublas,
                                      husk_error* error);
// The context is current.
void close_cublas(Cublas* cublas);

// Fills `error` for a call that returned `status`; `thing` names the object. Returns the status
// that corresponds to `status`.
husk_status cublas_fail(const Cublas& cublas, husk_error* error, cublasStatus_t status,
                        const char* call, const char* thing);

}  // namespace husk::cuda
