// NVTX, which names what the host does in a profile: two functions of a library that is opened where it is asked for.
// Source: NVIDIA, NVTX C API reference, "nvtxRangePushA", "nvtxRangePop".
#ifndef HUSK_CUDA_RANGES_H
#define HUSK_CUDA_RANGES_H

#include <husk/types.h>

namespace husk::cuda {

struct Ranges {
  void* library;
  int (*push)(const char* name);
  int (*pop)();
};

// `path` may be null: then there are none. HUSK_UNSUPPORTED where the library cannot be opened or lacks the functions.
[[nodiscard]] husk_status open_ranges(const char* path, Ranges* ranges, husk_error* error);
void close_ranges(Ranges* ranges);

}  // namespace husk::cuda
#endif
