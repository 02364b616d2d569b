// The device of the host port.
#include "device.h"

#include <unistd.h>

#include <cassert>
#include <cstdio>
#include <cstring>
#include <new>

#include <husk/detail/struct_size.h>

#include "error.h"
#include "group.h"

namespace husk::host {

void* Device::allocate(size_t size, size_t align) {
  void* pointer = allocator.allocate(allocator.user, size, align);
  if (pointer) live.fetch_add(1, std::memory_order_relaxed);
  return pointer;
}

void Device::release(void* pointer) {
  if (!pointer) return;
  allocator.release(allocator.user, pointer);
  live.fetch_sub(1, std::memory_order_relaxed);
}

husk_status device_open(void*, int32_t index, const husk_allocator* allocator,
                        const husk_threads* threads, void** device, husk_error* error) {
  *device = nullptr;
  if (index != 0) {
    return fail(error, HUSK_INVALID_ARGUMENT, "host device %d: the host port has one device, 0",
                index);
  }
  if (!allocator || !allocator->allocate || !allocator->release) {
    return fail(error, HUSK_INVALID_ARGUMENT,
                "host device: it needs an allocator with both of its functions");
  }
  if (threads && (threads->count == 0 || !threads->parallel)) {
    return fail(error, HUSK_INVALID_ARGUMENT,
                "host device: its threads have no `parallel`, or count none; give NULL");
  }
  void* memory = allocator->allocate(allocator->user, sizeof(Device), alignof(Device));
  if (!memory) return fail(error, HUSK_OUT_OF_MEMORY, "host device: no memory for its handle");
  *device = new (memory) Device(*allocator, cpu_features(), threads);
  return HUSK_OK;
}

void device_close(void* handle) {
  auto* device = static_cast<Device*>(handle);
  if (!device) return;
  if (device->group) device->group->leave(*device);
  assert(device->live.load() == 0 && "memory or a module of the host device was not released");
  const husk_allocator allocator = device->allocator;
  device->~Device();
  allocator.release(allocator.user, device);
}

void device_properties(void* handle, husk_port_properties* out) {
  const auto* device = static_cast<const Device*>(handle);
  husk_port_properties properties = HUSK_PORT_PROPERTIES_INIT;
  properties.dl_device_type = 1;  // kDLCPU
  properties.host_memory = 1;
  cpu_name(properties.name, sizeof properties.name);
  snprintf(properties.arch, sizeof properties.arch, "%s", best_target(device->features));
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0)
    properties.memory_bytes = static_cast<uint64_t>(pages) * static_cast<uint64_t>(page);
  detail::write_struct(properties, out);
}

int32_t device_fit(void* handle, const char* arch, int32_t format) {
  if (format != HUSK_IMAGE_ELF || !arch) return 0;
  return target_rank(static_cast<const Device*>(handle)->features, arch);
}

// A CPU that is known by its target only has the features of the target.
int32_t device_fit_on(const char* device_arch, const char* arch, int32_t format) {
  if (format != HUSK_IMAGE_ELF || !device_arch || !arch) return 0;
  return target_rank(target_features(device_arch), arch);
}

}  // namespace husk::host
