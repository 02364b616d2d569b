#include "driver.h"

#include <dlfcn.h>

#include <cstring>

#include "error.h"

namespace husk::cuda {

namespace {

enum Need { optional, required };

// CUDA 12.0 introduced cuLibraryLoadData, which loads code without a context.
constexpr int kOldestDriver = 12000;
constexpr const char* kLibrary = "libcuda.so.1";

using Find = CUresult (*)(const char* symbol, void** function, int version, uint64_t flags,
                          int* symbol_status);

struct DriverSymbol {
  const char* name;
  int version;
  Need need;
  size_t offset;  // of the function's pointer in Driver
};
constexpr DriverSymbol kDriverSymbols[] = {
#define HUSK_DRIVER(name, version, need, parameters) {#name, version, need, offsetof(Driver, name)},
#include "driver.def"
#undef HUSK_DRIVER
};

husk_status fill_table(Driver* driver, Find find, husk_error* error) {
  for (const DriverSymbol& symbol : kDriverSymbols) {
    void* function = nullptr;
    const CUresult result = find(symbol.name, &function, symbol.version,
                                 CU_GET_PROC_ADDRESS_LEGACY_STREAM, nullptr);
    if (result != CUDA_SUCCESS) function = nullptr;
    if (!function && symbol.need == required) {
      return fail(error, HUSK_UNSUPPORTED, "%s has no %s of CUDA %d.%d: update the NVIDIA driver",
                  kLibrary, symbol.name, symbol.version / 1000, symbol.version % 1000 / 10);
    }
    memcpy(reinterpret_cast<char*>(driver) + symbol.offset, &function, sizeof function);
  }
  return HUSK_OK;
}

husk_status check_version(void* library, Find* find, int* version, husk_error* error) {
  using Version = CUresult (*)(int*);
  void* address = dlsym(library, "cuDriverGetVersion");
  Version get_version;
  memcpy(&get_version, &address, sizeof address);
  if (!get_version || get_version(version) != CUDA_SUCCESS) {
    return fail(error, HUSK_UNSUPPORTED,
                "cuDriverGetVersion of %s gives no version: reinstall the NVIDIA driver", kLibrary);
  }
  address = dlsym(library, "cuGetProcAddress_v2");
  memcpy(find, &address, sizeof address);
  if (*version < kOldestDriver || !*find) {
    return fail(error, HUSK_UNSUPPORTED,
                "the NVIDIA driver supports CUDA %d.%d, needed is %d.%d: update the driver",
                *version / 1000, *version % 1000 / 10, kOldestDriver / 1000,
                kOldestDriver % 1000 / 10);
  }
  return HUSK_OK;
}

}  // namespace

husk_status load_driver(Driver* driver, husk_error* error) {
  memset(driver, 0, sizeof *driver);
  // The driver starts threads of its own, so its code must stay mapped after the last device is
  // closed.
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) {
    const char* reason = dlerror();
    return fail(error, HUSK_UNSUPPORTED,
                "no CUDA driver (%.120s): install one, or add its folder to LD_LIBRARY_PATH",
                reason ? reason : kLibrary);
  }
  Find find = nullptr;
  husk_status status = check_version(library, &find, &driver->version, error);
  if (status == HUSK_OK) status = fill_table(driver, find, error);
  if (status != HUSK_OK) {
    dlclose(library);
    return status;
  }
  driver->library = library;
  return HUSK_OK;
}

void unload_driver(Driver* driver) {
  dlclose(driver->library);
  driver->library = nullptr;
}

const char* error_name(const Driver& driver, CUresult result) {
  const char* name = nullptr;
  if (driver.cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
    return "an error that the driver has no name for";
  return name;
}

}  // namespace husk::cuda
