#include "ranges.h"

#include <dlfcn.h>
#include <string.h>

#include "error.h"

namespace husk::cuda {

husk_status open_ranges(const char* path, Ranges* ranges, husk_error* error) {
  *ranges = {};
  if (!path) return HUSK_OK;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    return fail(error, HUSK_UNSUPPORTED, "no NVTX (%.150s): give its path, or leave husk_cuda_options.nvtx NULL",
                reason ? reason : path);
  }
  void *push = dlsym(library, "nvtxRangePushA"), *pop = dlsym(library, "nvtxRangePop");
  if (!push || !pop) {
    dlclose(library);
    return fail(error, HUSK_UNSUPPORTED, "'%.120s' has no nvtxRangePushA and nvtxRangePop: it is no NVTX library", path);
  }
  ranges->library = library;
  memcpy(&ranges->push, &push, sizeof push);
  memcpy(&ranges->pop, &pop, sizeof pop);
  return HUSK_OK;
}

void close_ranges(Ranges* ranges) {
  if (ranges->library) dlclose(ranges->library);
  *ranges = {};
}

}  // namespace husk::cuda
