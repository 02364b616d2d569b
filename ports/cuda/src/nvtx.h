// NVTX, which names work of the host in a profile: two functions of a library that is opened only
// if husk_cuda_options.nvtx names it. Source: NVIDIA, NVTX C API reference, "nvtxRangePushA",
// "nvtxRangePop".
#pragma once

#include <husk/types.h>

namespace husk::cuda {

struct NvtxLibrary {
  void* library;  // null if no library is open; the functions are null too
  int (*push)(const char* name);
  int (*pop)();
};

// Opens the library at `path`; a null path leaves `nvtx` without a library. HUSK_UNSUPPORTED if the
// library cannot be opened or lacks the functions.
[[nodiscard]] husk_status open_nvtx(const char* path, NvtxLibrary* nvtx, husk_error* error);
void close_nvtx(NvtxLibrary* nvtx);

// A range of the profile that lasts as long as the object.
class NvtxRange {
 public:
  NvtxRange(const NvtxLibrary& nvtx, const char* name) : nvtx_(nvtx) {
    if (nvtx_.push) nvtx_.push(name);
  }
  ~NvtxRange() {
    if (nvtx_.pop) nvtx_.pop();
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  const NvtxLibrary& nvtx_;
};

}  // namespace husk::cuda
