#include "ops/scratch.h"

namespace husk::cuda {

Scratch::~Scratch() {
  if (memory_) device_.driver.cuMemFreeAsync(memory_, stream_);
}

husk_status Scratch::allocate(size_t bytes, const char* thing, husk_error* error) {
  if (bytes == 0) return HUSK_OK;
  const CUresult result = device_.driver.cuMemAllocAsync(&memory_, bytes, stream_);
  if (result == CUDA_SUCCESS) return HUSK_OK;
  memory_ = 0;
  return driver_fail(device_.driver, error, result, "cuMemAllocAsync",
                     "%s: %zu bytes of scratch memory", thing, bytes);
}

}  // namespace husk::cuda
