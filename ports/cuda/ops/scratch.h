// Scratch memory on the device whose size only a library knows.
#pragma once

#include "device.h"

namespace husk::cuda {

// Memory that is allocated and freed in the order of a stream: other streams may have such memory
// at the same time, and what is queued before the end may use it.
class Scratch {
 public:
  Scratch(const Device& device, void* stream) : device_(device), stream_(as_stream(stream)) {}
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Allocates `bytes` bytes, of which there may be none; called once. `thing` names the user of the
  // memory in errors.
  husk_status allocate(size_t bytes, const char* thing, husk_error* error);
  char* data() const { return reinterpret_cast<char*>(memory_); }

 private:
  const Device& device_;
  CUstream stream_;
  CUdeviceptr memory_ = 0;
};

constexpr size_t kScratchAlign = 256;  // libraries want this alignment of their part
inline size_t align_scratch(size_t bytes) {
  return (bytes + kScratchAlign - 1) / kScratchAlign * kScratchAlign;
}

}  // namespace husk::cuda
