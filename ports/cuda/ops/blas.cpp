#include "ops/blas.h"

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
constexpr LibraryDescription kDescription = {
    "cuBLASLt", "CUDA's cuBLAS", "gemm='triton'", "cublasLt",          kOldest,
    0,          false,           kSymbols,        std::size(kSymbols), sizeof(Cublas)};

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
  HUSK_TRY(open_library(kDescription, path, driver, cublas, error));
  const cublasStatus_t result = cublas->cublasLtCreate(&cublas->handle);
  if (result == CUBLAS_STATUS_SUCCESS) return HUSK_OK;
  const husk_status status = cublas_fail(*cublas, error, result, "cublasLtCreate",
                                         LibraryText(kDescription, driver).text);
  close_library(cublas->library);
  return status;
}

void close_cublas(Cublas* cublas) {
  cublas->cublasLtDestroy(cublas->handle);
  close_library(cublas->library);
}

husk_status cublas_fail(const Cublas& cublas, husk_error* error, cublasStatus_t status,
                        const char* call, const char* thing) {
  const char* name = cublas.cublasLtGetStatusName(status);
  return library_fail(kDescription,
                      {code_of(status), name ? name : "an error without a name", status}, call,
                      thing, error);
}

}  // namespace husk::cuda
