// Compares the port's declarations of cuSOLVER with cusolverDn.h of CUDA 13, at compile time.
#include <cusolverDn.h>
#include <ops/solver.h>

#include "same_declarations.h"

#if CUSOLVER_VER_MAJOR >= 12

namespace husk::cuda {

namespace {

#define HUSK_CUSOLVER(name, parameters) \
  static_assert(SameFunction<cusolverStatus_t parameters, decltype(::name)>::value, #name);
#include <ops/solver.def>
#undef HUSK_CUSOLVER

SAME_VALUE(CUSOLVER_STATUS_SUCCESS);
SAME_VALUE(CUSOLVER_STATUS_NOT_INITIALIZED);
SAME_VALUE(CUSOLVER_STATUS_ALLOC_FAILED);
SAME_VALUE(CUSOLVER_STATUS_INVALID_VALUE);
SAME_VALUE(CUSOLVER_STATUS_ARCH_MISMATCH);
SAME_VALUE(CUSOLVER_STATUS_EXECUTION_FAILED);
SAME_VALUE(CUSOLVER_STATUS_INTERNAL_ERROR);
SAME_VALUE(CUSOLVER_STATUS_NOT_SUPPORTED);
SAME_VALUE(CUSOLVER_EIG_MODE_NOVECTOR);
SAME_VALUE(CUSOLVER_EIG_MODE_VECTOR);
SAME_VALUE(CUBLAS_FILL_MODE_LOWER);
SAME_VALUE(CUBLAS_FILL_MODE_UPPER);
SAME_VALUE(CUBLAS_SIDE_LEFT);
SAME_VALUE(CUBLAS_SIDE_RIGHT);

}  // namespace

}  // namespace husk::cuda

#endif
