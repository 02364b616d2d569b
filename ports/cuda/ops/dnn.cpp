#include "ops/dnn.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "error.h"
#include "ops/library.h"

namespace husk::cuda {

namespace {

constexpr LibrarySymbol kSymbols[] = {
#define HUSK_CUDNN(result, name, parameters) {#name, offsetof(Cudnn, name)},
#include "ops/dnn.def"
#undef HUSK_CUDNN
};

// The values of attributes are those of version 9.
constexpr LibraryDescription kDescription = {
    "cuDNN", "NVIDIA's cuDNN 9", "conv='triton'",    "cudnn", 9, 9,
    true,    kSymbols,           std::size(kSymbols)};

husk_status code_of(cudnnStatus_t status) {
  if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
    return HUSK_OUT_OF_MEMORY;
  return status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000 ? HUSK_UNSUPPORTED : HUSK_DEVICE;
}

}  // namespace

husk_status open_cudnn(const char* path, const Driver& driver, Cudnn* cudnn, husk_error* error) {
  memset(cudnn, 0, sizeof *cudnn);
  void* library = open_library(kDescription, path, driver, cudnn, error);
  if (!library) return HUSK_UNSUPPORTED;
  const cudnnStatus_t status = cudnn->cudnnCreate(&cudnn->handle);
  if (status != CUDNN_STATUS_SUCCESS) {
    const husk_status code = cudnn_fail(*cudnn, error, status, "cudnnCreate",
                                        "cuDNN on a driver of CUDA %d.%d", driver.version / 1000,
                                        driver.version % 1000 / 10);
    close_library(library);
    return code;
  }
  cudnn->library = library;
  return HUSK_OK;
}

void close_cudnn(Cudnn* cudnn) {
  cudnn->cudnnDestroy(cudnn->handle);
  close_library(cudnn->library);
}

husk_status cudnn_fail(const Cudnn& cudnn, husk_error* error, cudnnStatus_t status,
                       const char* call, const char* format, ...) {
  char thing[160];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(thing, sizeof thing, format, arguments);
  va_end(arguments);
  const char* name = cudnn.cudnnGetErrorString(status);
  const husk_status code = fail(
      error, code_of(status), "%s: %s: %s (%d)%s", thing, call,
      name ? name : "an error without a name", status,
      code_of(status) == HUSK_UNSUPPORTED ? "; export with conv='triton'" : "");
  error->driver_code = status;
  return code;
}

}  // namespace husk::cuda
