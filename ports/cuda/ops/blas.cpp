#include "ops/blas.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "error.h"
#include "ops/library.h"

namespace husk::cuda {

namespace {

constexpr LibrarySymbol kSymbols[] = {
#define HUSK_CUBLAS(result, name, parameters) {#name, offsetof(Cublas, name)},
#include "ops/blas.def"
#undef HUSK_CUBLAS
};

constexpr int32_t kOldest = 12;  // cuBLASLt of CUDA 11 has no code for 9.0
constexpr LibraryDescription kDescription = {"cuBLASLt", "CUDA's cuBLAS", "gemm='triton'",
                                             "cublasLt", kOldest,         0,
                                             false,      kSymbols,        std::size(kSymbols)};

husk_status code_of(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_ALLOC_FAILED: return HUSK_OUT_OF_MEMORY;
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED: return HUSK_UNSUPPORTED;
    default: return HUSK_DEVICE;
  }
}

}  // namespace

husk_status open_cublas(const char* path, const Driver& driver, Cublas* cublas, husk_error* error) {
  memset(cublas, 0, sizeof *cublas);
  void* library = open_library(kDescription, path, driver, cublas, error);
  if (!library) return HUSK_UNSUPPORTED;
  const cublasStatus_t status = cublas->cublasLtCreate(&cublas->handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    close_library(library);
    return cublas_fail(*cublas, error, status, "cublasLtCreate",
                       "cuBLASLt on a driver of CUDA %d.%d", driver.version / 1000,
                       driver.version % 1000 / 10);
  }
  cublas->library = library;
  return HUSK_OK;
}

void close_cublas(Cublas* cublas) {
  cublas->cublasLtDestroy(cublas->handle);
  close_library(cublas->library);
}

husk_status cublas_fail(const Cublas& cublas, husk_error* error, cublasStatus_t status,
                        const char* call, const char* format, ...) {
  char thing[150];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(thing, sizeof thing, format, arguments);
  va_end(arguments);
  const char* name = cublas.cublasLtGetStatusName(status);
  const husk_status code = fail(
      error, code_of(status), "%s: %s: %s (%d)%s", thing, call,
      name ? name : "an error without a name", status,
      code_of(status) == HUSK_UNSUPPORTED ? "; export with gemm='triton'" : "");
  error->driver_code = status;
  return code;
}

}  // namespace husk::cuda
