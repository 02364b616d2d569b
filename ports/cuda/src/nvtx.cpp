#include "nvtx.h"

#include <dlfcn.h>

#include <cstring>

#include "error.h"

namespace husk::cuda {

husk_status open_nvtx(const char* path, NvtxLibrary* nvtx, husk_error* error) {
  *nvtx = {};
  if (!path) return HUSK_OK;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    return fail(error, HUSK_UNSUPPORTED,
                "no NVTX (%.150s): give its path, or leave husk_cuda_options.nvtx NULL",
                reason ? reason : path);
  }
  void *push = dlsym(library, "nvtxRangePushA"), *pop = dlsym(library, "nvtxRangePop");
  if (!push || !pop) {
    dlclose(library);
    return fail(error, HUSK_UNSUPPORTED,
                "'%.120s' has no nvtxRangePushA and nvtxRangePop: it is not an NVTX library", path);
  }
  nvtx->library = library;
  memcpy(&nvtx->push, &push, sizeof push);
  memcpy(&nvtx->pop, &pop, sizeof pop);
  return HUSK_OK;
}

void close_nvtx(NvtxLibrary* nvtx) {
  if (nvtx->library) dlclose(nvtx->library);
  *nvtx = {};
}

}  // namespace husk::cuda
