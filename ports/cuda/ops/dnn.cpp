#include "ops/dnn.h"

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
    "cuDNN", "NVIDIA's cuDNN 9", "conv='triton'",     "cudnn",      9, 9,
    true,    kSymbols,           std::size(kSymbols), sizeof(Cudnn)};

husk_status code_of(cudnnStatus_t status) {
  if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
    return HUSK_OUT_OF_MEMORY;
  return status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000 ? HUSK_UNSUPPORTED : HUSK_DEVICE;
}

}  // namespace

husk_status open_cudnn(const char* path, const Driver& driver, Cudnn* cudnn, husk_error* error) {
  HUSK_TRY(open_library(kDescription, path, driver, cudnn, error));
  const cudnnStatus_t result = cudnn->cudnnCreate(&cudnn->handle);
  if (result == CUDNN_STATUS_SUCCESS) return HUSK_OK;
  const husk_status status = cudnn_fail(*cudnn, error, result, "cudnnCreate",
                                        LibraryText(kDescription, driver).text);
  close_library(cudnn->library);
  return status;
}

void close_cudnn(Cudnn* cudnn) {
  cudnn->cudnnDestroy(cudnn->handle);
  close_library(cudnn->library);
}

husk_status cudnn_fail(const Cudnn& cudnn, husk_error* error, cudnnStatus_t status,
                       const char* call, const char* thing) {
  const char* name = cudnn.cudnnGetErrorString(status);
  return library_fail(kDescription,
                      {code_of(status), name ? name : "an error without a name", status}, call,
                      thing, error);
}

}  // namespace husk::cuda
