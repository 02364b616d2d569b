// Compares the port's declarations of cuBLASLt with cublasLt.h of CUDA 13, at compile time.
#include <cublasLt.h>
#include <ops/blas.h>

#include "same_function.h"

#if CUBLAS_VER_MAJOR >= 13

namespace husk::cuda {

namespace {

#define HUSK_CUBLAS(result, name, parameters) \
  static_assert(SameFunction<result parameters, decltype(::name)>::value, #name);
#include <ops/blas.def>
#undef HUSK_CUBLAS

#define SAME_VALUE(name) \
  static_assert(static_cast<int>(husk::cuda::name) == static_cast<int>(::name), #name)
#define SAME_PLACE(type, member) \
  static_assert(offsetof(husk::cuda::type, member) == offsetof(::type, member))
static_assert(sizeof(husk::cuda::cublasLtMatmulAlgo_t) == sizeof(::cublasLtMatmulAlgo_t));
static_assert(sizeof(husk::cuda::cublasLtMatmulHeuristicResult_t) ==
              sizeof(::cublasLtMatmulHeuristicResult_t));
SAME_PLACE(cublasLtMatmulHeuristicResult_t, workspaceSize);
SAME_PLACE(cublasLtMatmulHeuristicResult_t, state);
SAME_PLACE(cublasLtMatmulHeuristicResult_t, wavesCount);
static_assert(sizeof(Descriptor) >= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Descriptor) >= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Descriptor) >= sizeof(cublasLtMatmulPreferenceOpaque_t));

SAME_VALUE(CUBLAS_STATUS_SUCCESS);
SAME_VALUE(CUBLAS_STATUS_NOT_INITIALIZED);
SAME_VALUE(CUBLAS_STATUS_ALLOC_FAILED);
SAME_VALUE(CUBLAS_STATUS_INVALID_VALUE);
SAME_VALUE(CUBLAS_STATUS_ARCH_MISMATCH);
SAME_VALUE(CUBLAS_STATUS_EXECUTION_FAILED);
SAME_VALUE(CUBLAS_STATUS_NOT_SUPPORTED);
SAME_VALUE(CUDA_R_32F);
SAME_VALUE(CUDA_R_64F);
SAME_VALUE(CUDA_R_16F);
SAME_VALUE(CUDA_R_16BF);
SAME_VALUE(CUBLAS_COMPUTE_32F);
SAME_VALUE(CUBLAS_COMPUTE_64F);
SAME_VALUE(CUBLAS_COMPUTE_32F_FAST_TF32);
SAME_VALUE(CUBLAS_OP_N);
SAME_VALUE(CUBLAS_OP_T);
SAME_VALUE(CUBLASLT_EPILOGUE_DEFAULT);
SAME_VALUE(CUBLASLT_EPILOGUE_BIAS);
SAME_VALUE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME_VALUE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME_VALUE(CUBLASLT_MATMUL_DESC_TRANSA);
SAME_VALUE(CUBLASLT_MATMUL_DESC_TRANSB);
SAME_VALUE(CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME_VALUE(CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);

}  // namespace

}  // namespace husk::cuda

#endif
