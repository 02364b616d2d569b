#include "ops/fourier.h"

#include <iterator>

#include "error.h"
#include "ops/library.h"

namespace husk::cuda {

namespace {

constexpr LibrarySymbol kSymbols[] = {
#define HUSK_CUFFT(name, parameters) {#name, offsetof(Cufft, name)},
#include "ops/fourier.def"
#undef HUSK_CUFFT
};

// The cuFFT of CUDA 12 is libcufft.so.11, that of CUDA 13 libcufft.so.12.
constexpr int32_t kOldest = 11;
constexpr LibraryDescription kDescription = {
    "cuFFT", "CUDA's cuFFT", "fft='triton'",      "cufft",      kOldest, -1,
    false,   kSymbols,       std::size(kSymbols), sizeof(Cufft)};

husk_status code_of(cufftResult result) {
  switch (result) {
    case CUFFT_ALLOC_FAILED: return HUSK_OUT_OF_MEMORY;
    case CUFFT_INVALID_SIZE:
    case CUFFT_NOT_IMPLEMENTED:
    case CUFFT_NOT_SUPPORTED: return HUSK_UNSUPPORTED;
    default: return HUSK_DEVICE;
  }
}

const char* name_of(cufftResult result) {
  switch (result) {
    case CUFFT_SUCCESS: return "CUFFT_SUCCESS";
    case CUFFT_INVALID_PLAN: return "CUFFT_INVALID_PLAN";
    case CUFFT_ALLOC_FAILED: return "CUFFT_ALLOC_FAILED";
    case CUFFT_INVALID_TYPE: return "CUFFT_INVALID_TYPE";
    case CUFFT_INVALID_VALUE: return "CUFFT_INVALID_VALUE";
    case CUFFT_INTERNAL_ERROR: return "CUFFT_INTERNAL_ERROR";
    case CUFFT_EXEC_FAILED: return "CUFFT_EXEC_FAILED";
    case CUFFT_SETUP_FAILED: return "CUFFT_SETUP_FAILED";
    case CUFFT_INVALID_SIZE: return "CUFFT_INVALID_SIZE";
    case CUFFT_NO_WORKSPACE: return "CUFFT_NO_WORKSPACE";
    case CUFFT_NOT_IMPLEMENTED: return "CUFFT_NOT_IMPLEMENTED";
    case CUFFT_NOT_SUPPORTED: return "CUFFT_NOT_SUPPORTED";
  }
  return "a result without a name";
}

}  // namespace

husk_status open_cufft(const char* path, const Driver& driver, Cufft* cufft, husk_error* error) {
  return open_library(kDescription, path, driver, cufft, error);
}

void close_cufft(Cufft* cufft) { close_library(cufft->library); }

husk_status cufft_fail(husk_error* error, cufftResult result, const char* call, const char* thing) {
  return library_fail(kDescription, {code_of(result), name_of(result), result}, call, thing, error);
}

}  // namespace husk::cuda
