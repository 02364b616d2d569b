#include "device.h"
#include "ops/group.h"

namespace husk::cuda {

husk_status memory_alloc(void* handle, uint64_t size, void** memory, husk_error* error) {
  *memory = nullptr;
  const Device& device = as_device(handle);
  Current current(handle, error);
  HUSK_TRY(current.status);
  CUdeviceptr address = 0;
  // The driver refuses a size of 0.
  const CUresult result = device.driver.cuMemAlloc(&address, size ? size : 1);
  if (result != CUDA_SUCCESS) {
    size_t free = 0, total = 0;
    device.driver.cuMemGetInfo(&free, &total);  // both stay 0 if the device is lost
    return driver_fail(device.driver, error, result, "cuMemAlloc",
                       "%llu bytes on device %d, free are %zu of %zu",
                       static_cast<unsigned long long>(size), device.index, free, total);
  }
  *memory = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  return HUSK_OK;
}

// Fills an allocation with 0xFF. No work uses memory that is freed, so only the fill is waited for.
static void poison(const Device& device, CUdeviceptr memory) {
  CUdeviceptr begin = 0;
  size_t size = 0;
  if (device.driver.cuMemGetAddressRange(&begin, &size, memory) != CUDA_SUCCESS) return;
  if (device.driver.cuMemsetD8Async(begin, 0xFF, size, device.private_stream) != CUDA_SUCCESS)
    return;
  device.driver.cuStreamSynchronize(device.private_stream);
}

void memory_free(void* handle, void* memory) {
  if (!memory) return;
  const Device& device = as_device(handle);
  Current current(handle);
  if (current.status != HUSK_OK) return;
  if (device.options.poison_memory) poison(device, as_address(memory));
  device.driver.cuMemFree(as_address(memory));
}

// Kernels access the word at the host's address, because all 64-bit platforms have unified
// addresses. Source: CUDA Driver API, "Unified Addressing".
husk_status alloc_host_flag(void* handle, volatile uint32_t** word, husk_error* error) {
  *word = nullptr;
  const Device& device = as_device(handle);
  Current current(handle, error);
  HUSK_TRY(current.status);
  void* memory = nullptr;
  const CUresult result = device.driver.cuMemAllocHost(&memory, sizeof **word);
  if (result != CUDA_SUCCESS)
    return driver_fail(device.driver, error, result, "cuMemAllocHost", "a flag in host memory");
  *word = static_cast<uint32_t*>(memory);
  **word = 0;
  return HUSK_OK;
}

void free_host_flag(void* handle, volatile uint32_t* word) {
  if (!word) return;
  Current current(handle);
  if (current.status == HUSK_OK)
    as_device(handle).driver.cuMemFreeHost(const_cast<uint32_t*>(word));
}

// Pinned memory lies at the start of a page, and has the same address for copies.
husk_status alloc_host(void* handle, uint64_t size, void** memory, husk_error* error) {
  *memory = nullptr;
  const Device& device = as_device(handle);
  Current current(handle, error);
  HUSK_TRY(current.status);
  void* pinned = nullptr;
  // The driver refuses a size of 0.
  const CUresult result = device.driver.cuMemAllocHost(&pinned, size ? size : 1);
  if (result != CUDA_SUCCESS)
    return driver_fail(device.driver, error, result, "cuMemAllocHost",
                       "%llu bytes of pinned host memory", static_cast<unsigned long long>(size));
  *memory = pinned;
  return HUSK_OK;
}

void free_host(void* handle, void* memory) {
  if (!memory) return;
  Current current(handle);
  if (current.status == HUSK_OK) as_device(handle).driver.cuMemFreeHost(memory);
}

static husk_status wait(const Device& device, void* stream, husk_error* error,
                        bool is_of_run = false) {
  if (device.group) return group_wait(device, {as_stream(stream), nullptr}, is_of_run, error);
  const CUresult result = device.driver.cuStreamSynchronize(as_stream(stream));
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(device.driver, error, result, "cuStreamSynchronize",
                     "stream %p of device %d; nothing since its last wait is known to have "
                     "finished (see check_each)",
                     stream, device.index);
}

// A copy of pageable memory may wait for the stream inside of the driver (CUDA Driver API, "API
// synchronization behavior"), where a group of ranks has no deadline. So the wait comes before it.
static husk_status wait_for_group(const Device& device, void* stream, husk_error* error) {
  return device.group ? wait(device, stream, error) : husk_status{HUSK_OK};
}

static husk_status copy_fail(const Device& device, husk_error* error, CUresult result,
                             const char* call, const char* what, uint64_t size, const void* to) {
  return driver_fail(device.driver, error, result, call, "%s of %llu bytes to %p", what,
                     static_cast<unsigned long long>(size), to);
}

husk_status upload(void* handle, void* stream, void* to, const void* from, uint64_t size,
                   husk_error* error) {
  if (size == 0) return HUSK_OK;
  Device& device = as_device(handle);
  Current current(handle, error);
  HUSK_TRY(current.status);
  if (is_large(device, size)) {
    HUSK_TRY(wait(device, stream, error));  // work in the stream may use the target
    const husk_upload whole = {to, from, size};
    return upload_batch(handle, &whole, 1, nullptr, error);
  }
  HUSK_TRY(wait_for_group(device, stream, error));
  const CUresult result = device.driver.cuMemcpyHtoDAsync(as_address(to), from, size,
                                                          as_stream(stream));
  if (result != CUDA_SUCCESS)
    return copy_fail(device, error, result, "cuMemcpyHtoDAsync", "upload", size, to);
  // The copy may read pinned memory, and pageable memory that the device accesses in place, after
  // the call has returned (CUDA Driver API, "API synchronization behavior"). Querying the kind of
  // memory fails if the driver does not know the pointer, which debuggers report as an error. So
  // this function waits in any case; no run uploads anything.
  return wait(device, stream, error);
}

husk_status download(void* handle, void* stream, void* to, const void* from, uint64_t size,
                     husk_error* error) {
  Device& device = as_device(handle);
  Current current(handle, error);
  HUSK_TRY(current.status);
  HUSK_TRY(wait_for_group(device, stream, error));
  if (size) {
    const CUresult result = device.driver.cuMemcpyDtoHAsync(to, as_address(from), size,
                                                            as_stream(stream));
    if (result != CUDA_SUCCESS)
      return copy_fail(device, error, result, "cuMemcpyDtoHAsync", "download", size, to);
  }
  return wait(device, stream, error);
}

// The driver finds out from the addresses on which side the memory lies, since all 64-bit platforms
// have unified addresses. If each side is device memory or pinned (cuMemAllocHost), the copy is
// asynchronous with respect to the host, in the order of the stream (CUDA Driver API, "API
// synchronization behavior").
husk_status copy(void* handle, void* stream, void* to, const void* from, uint64_t size,
                 husk_error* error) {
  if (size == 0) return HUSK_OK;
  Device& device = as_device(handle);
  Current current(handle, error);
  HUSK_TRY(current.status);
  const CUresult result = device.driver.cuMemcpyAsync(as_address(to), as_address(from), size,
                                                      as_stream(stream));
  if (result != CUDA_SUCCESS)
    return copy_fail(device, error, result, "cuMemcpyAsync", "copy", size, to);
  return check_work(device, stream, error, "a copy of %llu bytes to %p",
                    static_cast<unsigned long long>(size), to);
}

// A fill of eight bytes is one fill of four bytes if both halves are equal, otherwise two fills of
// four bytes with a pitch of eight.
static CUresult fill_wide(const Driver& driver, CUdeviceptr to, uint64_t pattern, uint64_t count,
                          CUstream stream, const char** call) {
  const uint32_t low = static_cast<uint32_t>(pattern), high = static_cast<uint32_t>(pattern >> 32);
  if (low == high) {
    *call = "cuMemsetD32Async";
    return driver.cuMemsetD32Async(to, low, count * 2, stream);
  }
  *call = "cuMemsetD2D32Async";
  const CUresult result = driver.cuMemsetD2D32Async(to, 8, low, 1, count, stream);
  return result == CUDA_SUCCESS ? driver.cuMemsetD2D32Async(to + 4, 8, high, 1, count, stream)
                                : result;
}

husk_status fill(void* handle, void* stream, void* to, uint64_t pattern, uint32_t width,
                 uint64_t count, husk_error* error) {
  if (count == 0) return HUSK_OK;
  Device& device = as_device(handle);
  const Driver& driver = device.driver;
  Current current(handle, error);
  HUSK_TRY(current.status);
  const CUdeviceptr address = as_address(to);
  CUresult result;
  const char* call;
  switch (width) {
    case 1:
      call = "cuMemsetD8Async";
      result = driver.cuMemsetD8Async(address, static_cast<unsigned char>(pattern), count,
                                      as_stream(stream));
      break;
    case 2:
      call = "cuMemsetD16Async";
      result = driver.cuMemsetD16Async(address, static_cast<unsigned short>(pattern), count,
                                       as_stream(stream));
      break;
    case 4:
      call = "cuMemsetD32Async";
      result = driver.cuMemsetD32Async(address, static_cast<unsigned int>(pattern), count,
                                       as_stream(stream));
      break;
    case 8: result = fill_wide(driver, address, pattern, count, as_stream(stream), &call); break;
    default:
      return fail(error, HUSK_INVALID_ARGUMENT, "a fill has elements of 1, 2, 4 or 8 bytes, not %u",
                  width);
  }
  if (result != CUDA_SUCCESS) {
    return driver_fail(driver, error, result, call, "fill of %llu elements of %u bytes at %p",
                       static_cast<unsigned long long>(count), width, to);
  }
  return check_work(device, stream, error, "a fill of %llu elements at %p",
                    static_cast<unsigned long long>(count), to);
}

husk_status stream_create(void* handle, void** stream, husk_error* error) {
  *stream = nullptr;
  const Device& device = as_device(handle);
  Current current(handle, error);
  HUSK_TRY(current.status);
  CUstream created = nullptr;
  const CUresult result = device.driver.cuStreamCreate(&created, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) {
    return driver_fail(device.driver, error, result, "cuStreamCreate", "stream of device %d",
                       device.index);
  }
  *stream = created;
  return HUSK_OK;
}

void stream_destroy(void* handle, void* stream) {
  if (!stream) return;
  const Device& device = as_device(handle);
  Current current(handle);
  if (current.status == HUSK_OK) device.driver.cuStreamDestroy(as_stream(stream));
}

husk_status stream_wait(void* handle, void* stream, husk_error* error) {
  Device& device = as_device(handle);
  Current current(handle, error);
  HUSK_TRY(current.status);
  return wait(device, stream, error, true);
}

}  // namespace husk::cuda
