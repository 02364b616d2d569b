// The part of cuSOLVER that the port uses, and the table of its functions in a library that is
// opened at run time. The declarations stand here so that the port builds without CUDA's headers.
// Names and values are those of cusolverDn.h, cusolver_common.h and cublas_api.h;
// tests/port/solver_declarations.cpp compares all of them with these headers if they are installed.
#pragma once

#include "ops/blas.h"

namespace husk::cuda {

using cusolverDnHandle_t = struct cusolverDnContext*;
using cusolverDnParams_t = struct cusolverDnParams*;
using gesvdjInfo_t = struct gesvdjInfo*;

enum cusolverStatus_t : int {
  CUSOLVER_STATUS_SUCCESS = 0,
  CUSOLVER_STATUS_NOT_INITIALIZED = 1,
  CUSOLVER_STATUS_ALLOC_FAILED = 2,
  CUSOLVER_STATUS_INVALID_VALUE = 3,
  CUSOLVER_STATUS_ARCH_MISMATCH = 4,
  CUSOLVER_STATUS_EXECUTION_FAILED = 6,
  CUSOLVER_STATUS_INTERNAL_ERROR = 7,
  CUSOLVER_STATUS_NOT_SUPPORTED = 9
};
enum cusolverEigMode_t : int { CUSOLVER_EIG_MODE_NOVECTOR = 0, CUSOLVER_EIG_MODE_VECTOR = 1 };
enum cublasFillMode_t : int { CUBLAS_FILL_MODE_LOWER = 0, CUBLAS_FILL_MODE_UPPER = 1 };
enum cublasSideMode_t : int { CUBLAS_SIDE_LEFT = 0, CUBLAS_SIDE_RIGHT = 1 };

struct Cusolver {
  void* library;
  cusolverDnHandle_t handle;
  cusolverDnParams_t params;  // of the functions whose names begin with cusolverDnX
  gesvdjInfo_t gesvdj;        // accuracy and number of sweeps, the library's defaults
#define HUSK_CUSOLVER(name, parameters) cusolverStatus_t(*name) parameters;
#include "ops/solver.def"
#undef HUSK_CUSOLVER
};

// Opens the library at `path` and creates its objects for the current context. If `path` is null,
// opens the newest library that the driver can run. HUSK_UNSUPPORTED if there is none; the error
// says what to do.
[[nodiscard]] husk_status open_cusolver(const char* path, const Driver& driver, Cusolver* cusolver,
                                        husk_error* error);
// The context is current.
void close_cusolver(Cusolver* cusolver);

// Fills `error` for a call that returned `status`; `thing` names the object. Returns the status
// that corresponds to `status`.
husk_status cusolver_fail(husk_error* error, cusolverStatus_t status, const char* call,
                          const char* thing);

}  // namespace husk::cuda
