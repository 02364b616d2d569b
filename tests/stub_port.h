// A port without a machine, of which tests make their own ports: they replace the functions that
// they are about. Kernels do nothing, and streams have no state.
#pragma once

#include <cstring>

#include <husk/port.h>

namespace husk::test {

inline int stub_device;  // the only device, which has no state

// The port needs functions for memory, of which `use_memory` gives it those of a test.
constexpr husk_port stub_port() {
  husk_port port{};
  port.struct_size = sizeof port;
  port.abi = HUSK_PORT_ABI;
  port.name = "host";
  port.open = [](void*, int32_t, const husk_allocator*, const husk_threads*, void** device,
                 husk_error*) {
    *device = &stub_device;
    return husk_status{HUSK_OK};
  };
  port.close = [](void*) {};
  port.properties = [](void*, husk_port_properties* out) {
    std::strcpy(out->name, "stub");
    std::strcpy(out->arch, "x86-64");
    out->dl_device_type = 1;
  };
  port.arch_rank = [](void*, const char*, int32_t) { return 1; };
  port.stream_create = [](void*, void** stream, husk_error*) {
    *stream = nullptr;
    return husk_status{HUSK_OK};
  };
  port.stream_destroy = [](void*, void*) {};
  port.stream_wait = [](void*, void*, husk_error*) { return husk_status{HUSK_OK}; };
  port.module_load = [](void*, const husk_port_image*, void** module, husk_error*) {
    *module = &stub_device;
    return husk_status{HUSK_OK};
  };
  port.module_unload = [](void*, void*) {};
  port.kernel_get = [](void*, void*, const husk_port_kernel*, void** kernel, husk_error*) {
    *kernel = &stub_device;
    return husk_status{HUSK_OK};
  };
  port.launch = [](void*, void*, void*, const husk_launch*, husk_error*) {
    return husk_status{HUSK_OK};
  };
  return port;
}

// Gives a port functions for memory. A flag of the host is memory like any other.
template <auto Alloc, auto Free>
constexpr void use_memory(husk_port& port) {
  port.alloc = Alloc;
  port.free = Free;
  port.alloc_host_flag = [](void* device, volatile uint32_t** flag, husk_error* error) {
    void* memory = nullptr;
    const husk_status status = Alloc(device, sizeof(uint32_t), &memory, error);
    *flag = status == HUSK_OK ? static_cast<uint32_t*>(memory) : nullptr;
    if (*flag) **flag = 0;
    return status;
  };
  port.free_host_flag = [](void* device, volatile uint32_t* flag) {
    Free(device, const_cast<uint32_t*>(flag));
  };
}

}  // namespace husk::test
