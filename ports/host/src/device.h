// The handles of the host port: device, module, kernel.
#ifndef HUSK_HOST_DEVICE_H
#define HUSK_HOST_DEVICE_H

#include <husk/port.h>

#include <atomic>

#include "cpu.h"

namespace husk::host {

// What husk_port.open gives. Everything but `live` is fixed after open, so any thread may read it.
struct Device {
  husk_allocator allocator;
  Isa isa;
  const husk_threads* threads;     // or null; kernels see them through their image's slot
  std::atomic<uint64_t> live{0};   // allocations of any kind that close must find released

  Device(const husk_allocator& memory, Isa found, const husk_threads* given)
      : allocator(memory), isa(found), threads(given) {}

  // Counted host memory, or null. `align` is at most 64.
  void* allocate(size_t size, size_t align);
  void release(void* pointer);
};

// Functions of husk_port, by its names.
husk_status device_open(void* user, int32_t index, const husk_allocator* allocator, const husk_threads* threads,
                        void** device, husk_error* error);
void device_close(void* device);
void device_properties(void* device, husk_port_properties* out);
int32_t device_fit(void* device, const char* arch, int32_t format);

husk_status memory_alloc(void* device, uint64_t size, void** memory, husk_error* error);
void memory_free(void* device, void* memory);
husk_status memory_copy(void* device, void* stream, void* to, const void* from, uint64_t size, husk_error* error);
husk_status memory_fill(void* device, void* stream, void* to, uint64_t pattern, uint32_t width, uint64_t count,
                        husk_error* error);

husk_status module_load(void* device, const husk_port_image* image, void** module, husk_error* error);
void module_unload(void* device, void* module);
husk_status kernel_get(void* device, void* module, const husk_port_kernel* desc, void** kernel, husk_error* error);
husk_status kernel_launch(void* device, void* stream, void* kernel, const husk_launch* launch, husk_error* error);

}  // namespace husk::host

#endif
