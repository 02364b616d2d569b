// The function table of the host port. Its two ports differ in module_load, and in groups of ranks.
#pragma once

#include <husk/port.h>

#include "device.h"

namespace husk::host {

// All work is done on the calling thread before a call returns, so a stream has no state. The
// device serves as the handle of every stream.
inline husk_status stream_create(void* device, void** stream, husk_error*) {
  *stream = device;
  return HUSK_OK;
}
inline void stream_destroy(void*, void*) {}
inline husk_status stream_wait(void*, void*, husk_error*) { return HUSK_OK; }

inline husk_status alloc_host_flag(void* device, volatile uint32_t** word, husk_error* error) {
  void* memory = nullptr;
  const husk_status status = memory_alloc(device, sizeof(uint32_t), &memory, error);
  *word = static_cast<uint32_t*>(memory);
  if (memory) **word = 0;
  return status;
}
inline void free_host_flag(void* device, volatile uint32_t* word) {
  memory_free(device, const_cast<uint32_t*>(word));
}

// The functions for groups of ranks.
struct GroupFunctions {
  decltype(husk_port::group_id) id;
  decltype(husk_port::join) join;
  decltype(husk_port::agree) agree;
};

constexpr husk_port port_table(decltype(husk_port::module_load) load, GroupFunctions groups) {
  return {
      sizeof(husk_port),
      HUSK_PORT_ABI,
      "host",
      nullptr,
      device_open,
      device_close,
      device_properties,
      device_fit,
      memory_alloc,
      memory_free,
      memory_copy,
      memory_copy,
      memory_copy,
      memory_fill,
      stream_create,
      stream_destroy,
      stream_wait,
      load,
      module_unload,
      kernel_get,
      kernel_launch,
      nullptr,
      nullptr,
      nullptr,
      nullptr,
      nullptr,
      nullptr,  // optional; the host would gain nothing from
                // them
      nullptr,  // ops form a library of their own
      alloc_host_flag,
      free_host_flag,
      nullptr,
      nullptr,  // no target of the host has another host beside it
      nullptr,  // no stream captures
      kernel_launch_list,
      nullptr,  // no events: all work is done when a call returns
      nullptr,
      nullptr,
      nullptr,
      kernel_launch_linked,
      device_fit_on,
      groups.id,
      groups.join,
      groups.agree,
      nullptr,
  };
}

}  // namespace husk::host
