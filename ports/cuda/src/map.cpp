// Host memory that the device reads in place. Only integrated devices do: on any other device each
// read would cross the bus.
#include <unistd.h>

#include "device.h"

namespace husk::cuda {

namespace {

// The first page of those that hold the bytes; `size` becomes the size of all the pages.
void* pages_of(const void* memory, uint64_t* size) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory) & ~(page - 1);
  *size = ((reinterpret_cast<uintptr_t>(memory) + *size + page - 1) & ~(page - 1)) - begin;
  return reinterpret_cast<void*>(begin);
}

}  // namespace

husk_status map(void* handle, const void* memory, uint64_t size, void** address,
                husk_error* error) {
  *address = nullptr;
  const Device& device = as_device(handle);
  if (!device.integrated) {
    return fail(error, HUSK_UNSUPPORTED, "device %d has memory of its own: load the bytes into it",
                device.index);
  }
  Current current(handle, error);
  HUSK_TRY(current.status);
  const Driver& driver = device.driver;
  uint64_t length = size;
  void* pages = pages_of(memory, &length);
  const unsigned int read_only = device.registers_read_only ? CU_MEMHOSTREGISTER_READ_ONLY : 0;
  const char* call = "cuMemHostRegister";
  CUresult result = driver.cuMemHostRegister(pages, length,
                                             CU_MEMHOSTREGISTER_DEVICEMAP | read_only);
  CUdeviceptr first = 0;
  if (result == CUDA_SUCCESS) {
    call = "cuMemHostGetDevicePointer";
    result = driver.cuMemHostGetDevicePointer(&first, pages, 0);
    if (result != CUDA_SUCCESS) driver.cuMemHostUnregister(pages);
  }
  if (result == CUDA_SUCCESS) {
    const uint64_t offset = reinterpret_cast<uintptr_t>(memory) -
                            reinterpret_cast<uintptr_t>(pages);
    *address = reinterpret_cast<void*>(static_cast<uintptr_t>(first + offset));
    return HUSK_OK;
  }
  const husk_status status = driver_fail(driver, error, result, call, "mapping of %llu bytes",
                                         static_cast<unsigned long long>(size));
  // Drivers differ in the memory that they register (mapped files, read-only pages). The caller
  // uploads the bytes if this one refuses.
  const bool refused = result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_OUT_OF_MEMORY;
  return refused ? error->code = HUSK_UNSUPPORTED : status;
}

void unmap(void* handle, const void* memory, uint64_t size) {
  const Device& device = as_device(handle);
  Current current(handle);
  if (current.status == HUSK_OK) device.driver.cuMemHostUnregister(pages_of(memory, &size));
}

}  // namespace husk::cuda
