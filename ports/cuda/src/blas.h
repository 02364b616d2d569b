// The part of cuBLASLt that the port uses, declared here so that no header of CUDA's is needed to build, and the table of its
// functions, found in a library that is opened where a program first asks for one of its ops. Names and values are those of
// cublasLt.h, cublas_api.h and library_types.h; tests/port/blas_declarations.cpp compares them where these are installed.
#ifndef HUSK_CUDA_BLAS_H
#define HUSK_CUDA_BLAS_H

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
enum cublasComputeType_t : int { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_64F = 70, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cublasOperation_t : int { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasLtEpilogue_t : int { CUBLASLT_EPILOGUE_DEFAULT = 1, CUBLASLT_EPILOGUE_BIAS = 4 };
enum cublasLtMatrixLayoutAttribute_t : int {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,            // int32
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6    // int64, elements
};
enum cublasLtMatmulDescAttributes_t : int {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8
};
enum cublasLtMatmulPreferenceAttributes_t : int {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,      // uint64
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,    // uint32, as the next three
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
};

// Plain bytes, which may be copied.
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

// Descriptors live on the stack: the library writes them in place, and refuses where they are too small for it. CUDA 13 takes
// 256 bytes for a product, 64 for the others.
struct Descriptor {
  uint64_t data[32];
};

struct Cublas {
  void* library;
  cublasLtHandle_t handle;
#define HUSK_CUBLAS(result, name, parameters) result(*name) parameters;
#include "blas.def"
#undef HUSK_CUBLAS
};

// Opens the library at `path`, or where that is null the newest that goes with the driver, and makes a handle for the current
// context. HUSK_UNSUPPORTED with the remedy where there is none.
[[nodiscard]] husk_status open_cublas(const char* path, const Driver& driver, Cublas* cublas, husk_error* error);
// The context is current.
void close_cublas(Cublas* cublas);

// Fills `error` for a call that came back with `status`; the format says the thing.
[[gnu::format(printf, 5, 6)]] husk_status cublas_fail(const Cublas& cublas, husk_error* error, cublasStatus_t status,
                                                      const char* call, const char* format, ...);

}  // namespace husk::cuda
#endif
