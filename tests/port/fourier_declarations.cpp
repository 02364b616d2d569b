// Compares the port's declarations of cuFFT with cufft.h and cufftXt.h of CUDA 13, at compile time.
#include <cufft.h>
#include <cufftXt.h>

// The macros have the names of the port's constants.
namespace {
constexpr int kForward = CUFFT_FORWARD, kInverse = CUFFT_INVERSE;
}  // namespace
#undef CUFFT_FORWARD
#undef CUFFT_INVERSE

#include <ops/fourier.h>

#include "same_declarations.h"

#if CUFFT_VER_MAJOR >= 12

namespace husk::cuda {

namespace {

#define HUSK_CUFFT(name, parameters) \
  static_assert(SameFunction<cufftResult parameters, decltype(::name)>::value, #name);
#include <ops/fourier.def>
#undef HUSK_CUFFT

static_assert(CUFFT_FORWARD == kForward && CUFFT_INVERSE == kInverse);
SAME_VALUE(CUFFT_SUCCESS);
SAME_VALUE(CUFFT_INVALID_PLAN);
SAME_VALUE(CUFFT_ALLOC_FAILED);
SAME_VALUE(CUFFT_INVALID_TYPE);
SAME_VALUE(CUFFT_INVALID_VALUE);
SAME_VALUE(CUFFT_INTERNAL_ERROR);
SAME_VALUE(CUFFT_EXEC_FAILED);
SAME_VALUE(CUFFT_SETUP_FAILED);
SAME_VALUE(CUFFT_INVALID_SIZE);
SAME_VALUE(CUFFT_NO_WORKSPACE);
SAME_VALUE(CUFFT_NOT_IMPLEMENTED);
SAME_VALUE(CUFFT_NOT_SUPPORTED);
SAME_VALUE(CUFFT_C2C);
SAME_VALUE(CUFFT_R2C);
SAME_VALUE(CUFFT_C2R);
SAME_VALUE(CUFFT_Z2Z);
SAME_VALUE(CUFFT_D2Z);
SAME_VALUE(CUFFT_Z2D);

}  // namespace

}  // namespace husk::cuda

#endif
