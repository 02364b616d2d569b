// The device of the host port, and the functions of husk_port.
#pragma once

#include <atomic>

#include <husk/port.h>

#include "cpu.h"

namespace husk::host {

class Group;

// The handle that husk_port.open returns. Only `live` changes after open and join, so any thread
// may read the handle.
struct Device {
  husk_allocator allocator;
  Features features;
  const husk_threads* threads;  // may be null; kernels reach them through a variable of their image
  Group* group = nullptr;       // of ranks; null if the device has joined none
  std::atomic<uint64_t> live{0};  // allocations that must be released before close

  Device(const husk_allocator& device_allocator, Features cpu, const husk_threads* device_threads)
      : allocator(device_allocator), features(cpu), threads(device_threads) {}

  // Allocates host memory and counts it in `live`. Returns null if there is none. `align` is at
  // most 64.
  void* allocate(size_t size, size_t align);
  void release(void* pointer);
};

// The functions of husk_port, under the names that they have there.
husk_status device_open(void* user, int32_t index, const husk_allocator* allocator,
                        const husk_threads* threads, void** device, husk_error* error);
void device_close(void* device);
void device_properties(void* device, husk_port_properties* out);
int32_t device_fit(void* device, const char* arch, int32_t format);
int32_t device_fit_on(const char* device_arch, const char* arch, int32_t format);

husk_status memory_alloc(void* device, uint64_t size, void** memory, husk_error* error);
void memory_free(void* device, void* memory);
husk_status memory_copy(void* device, void* stream, void* to, const void* from, uint64_t size,
                        husk_error* error);
husk_status memory_fill(void* device, void* stream, void* to, uint64_t pattern, uint32_t width,
                        uint64_t count, husk_error* error);

husk_status module_load(void* device, const husk_port_image* image, void** module,
                        husk_error* error);
// Like module_load, for images that are linked into the process only.
husk_status module_link(void* device, const husk_port_image* image, void** module,
                        husk_error* error);
void module_unload(void* device, void* module);
husk_status kernel_get(void* device, void* module, const husk_port_kernel* desc, void** kernel,
                       husk_error* error);
husk_status kernel_launch(void* device, void* stream, void* kernel, const husk_launch* launch,
                          husk_error* error);
husk_status kernel_launch_list(void* device, void* stream, const husk_listed_launch* launches,
                               uint32_t count, uint32_t* failed, husk_error* error);
husk_status kernel_launch_linked(void* device, void* stream, husk_linked_launches code,
                                 const husk_listed_launch* launches, uint32_t* failed,
                                 husk_error* error);

}  // namespace husk::host
