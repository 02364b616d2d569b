#include "ops/solver.h"

#include <iterator>

#include "error.h"
#include "ops/library.h"

namespace husk::cuda {

namespace {

constexpr LibrarySymbol kSymbols[] = {
#define HUSK_CUSOLVER(name, parameters) {#name, offsetof(Cusolver, name)},
#include "ops/solver.def"
#undef HUSK_CUSOLVER
};

// The cuSOLVER of CUDA 12 is libcusolver.so.11, that of CUDA 13 libcusolver.so.12.
constexpr int32_t kOldest = 11;
constexpr LibraryDescription kDescription = {
    "cuSOLVER", "CUDA's cuSOLVER", "linalg='host'",     "cusolver",      kOldest, -1,
    false,      kSymbols,          std::size(kSymbols), sizeof(Cusolver)};

husk_status code_of(cusolverStatus_t status) {
  switch (status) {
    case CUSOLVER_STATUS_ALLOC_FAILED: return HUSK_OUT_OF_MEMORY;
    case CUSOLVER_STATUS_ARCH_MISMATCH:
    case CUSOLVER_STATUS_NOT_SUPPORTED: return HUSK_UNSUPPORTED;
    default: return HUSK_DEVICE;
  }
}

const char* name_of(cusolverStatus_t status) {
  switch (status) {
    case CUSOLVER_STATUS_SUCCESS: return "CUSOLVER_STATUS_SUCCESS";
    case CUSOLVER_STATUS_NOT_INITIALIZED: return "CUSOLVER_STATUS_NOT_INITIALIZED";
    case CUSOLVER_STATUS_ALLOC_FAILED: return "CUSOLVER_STATUS_ALLOC_FAILED";
    case CUSOLVER_STATUS_INVALID_VALUE: return "CUSOLVER_STATUS_INVALID_VALUE";
    case CUSOLVER_STATUS_ARCH_MISMATCH: return "CUSOLVER_STATUS_ARCH_MISMATCH";
    case CUSOLVER_STATUS_EXECUTION_FAILED: return "CUSOLVER_STATUS_EXECUTION_FAILED";
    case CUSOLVER_STATUS_INTERNAL_ERROR: return "CUSOLVER_STATUS_INTERNAL_ERROR";
    case CUSOLVER_STATUS_NOT_SUPPORTED: return "CUSOLVER_STATUS_NOT_SUPPORTED";
  }
  return "a status without a name";
}

}  // namespace

husk_status open_cusolver(const char* path, const Driver& driver, Cusolver* cusolver,
                          husk_error* error) {
  HUSK_TRY(open_library(kDescription, path, driver, cusolver, error));
  const char* call = "cusolverDnCreate";
  cusolverStatus_t status = cusolver->cusolverDnCreate(&cusolver->handle);
  if (status == CUSOLVER_STATUS_SUCCESS) {
    call = "cusolverDnCreateParams";
    status = cusolver->cusolverDnCreateParams(&cusolver->params);
  }
  if (status == CUSOLVER_STATUS_SUCCESS) {
    call = "cusolverDnCreateGesvdjInfo";
    status = cusolver->cusolverDnCreateGesvdjInfo(&cusolver->gesvdj);
  }
  if (status == CUSOLVER_STATUS_SUCCESS) return HUSK_OK;
  close_cusolver(cusolver);
  return cusolver_fail(error, status, call, LibraryText(kDescription, driver).text);
}

void close_cusolver(Cusolver* cusolver) {
  if (cusolver->gesvdj) cusolver->cusolverDnDestroyGesvdjInfo(cusolver->gesvdj);
  if (cusolver->params) cusolver->cusolverDnDestroyParams(cusolver->params);
  if (cusolver->handle) cusolver->cusolverDnDestroy(cusolver->handle);
  close_library(cusolver->library);
}

husk_status cusolver_fail(husk_error* error, cusolverStatus_t status, const char* call,
                          const char* thing) {
  return library_fail(kDescription, {code_of(status), name_of(status), status}, call, thing, error);
}

}  // namespace husk::cuda
