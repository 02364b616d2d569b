#include "ops/blas.h"

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "error.h"

namespace husk::cuda {

namespace {

constexpr int kOldestMajor = 12;  // cuBLASLt of CUDA 11 has no code for 9.0

struct BlasSymbol {
  const char* name;
  size_t offset;  // of the function's pointer in Cublas
};
constexpr BlasSymbol kBlasSymbols[] = {
#define HUSK_CUBLAS(result, name, parameters) {#name, offsetof(Cublas, name)},
#include "ops/blas.def"
#undef HUSK_CUBLAS
};

// The library starts threads and registers its kernels with the driver, so its code stays mapped.
void* open_library(const char* name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); }

// A driver runs libraries of its own major version of CUDA and of earlier versions.
void* find_library(const char* path, int version) {
  if (path) return open_library(path);
  for (int major = version / 1000; major >= kOldestMajor; --major) {
    char name[32];
    snprintf(name, sizeof name, "libcublasLt.so.%d", major);
    if (void* library = open_library(name)) return library;
  }
  return open_library("libcublasLt.so");
}

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
  void* library = find_library(path, driver.version);
  if (!library) {
    const char* reason = dlerror();
    return fail(error, HUSK_UNSUPPORTED,
                "no cuBLASLt (%.90s): install CUDA's cuBLAS, add its folder to LD_LIBRARY_PATH, or "
                "export with gemm='triton'",
                reason ? reason : "libcublasLt.so");
  }
  for (const BlasSymbol& symbol : kBlasSymbols) {
    void* function = dlsym(library, symbol.name);
    if (!function) {
      dlclose(library);
      return fail(error, HUSK_UNSUPPORTED,
                  "this cuBLASLt has no %s: install cuBLAS of CUDA %d or later", symbol.name,
                  kOldestMajor);
    }
    memcpy(reinterpret_cast<char*>(cublas) + symbol.offset, &function, sizeof function);
  }
  const cublasStatus_t status = cublas->cublasLtCreate(&cublas->handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    dlclose(library);
    return cublas_fail(*cublas, error, status, "cublasLtCreate",
                       "cuBLASLt on a driver of CUDA %d.%d", driver.version / 1000,
                       driver.version % 1000 / 10);
  }
  cublas->library = library;
  return HUSK_OK;
}

void close_cublas(Cublas* cublas) {
  cublas->cublasLtDestroy(cublas->handle);
  dlclose(cublas->library);
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
