#include <husk/port_host.h>

#include "device.h"

namespace husk::host {

namespace {

// Everything runs on the calling thread, so a stream has nothing to keep: every one is the device.
husk_status stream_create(void* device, void** stream, husk_error*) {
  *stream = device;
  return HUSK_OK;
}
void stream_destroy(void*, void*) {}
husk_status stream_wait(void*, void*, husk_error*) { return HUSK_OK; }

husk_status word_share(void* device, volatile uint32_t** word, husk_error* error) {
  void* memory = nullptr;
  const husk_status status = memory_alloc(device, sizeof(uint32_t), &memory, error);
  *word = static_cast<uint32_t*>(memory);
  if (memory) **word = 0;
  return status;
}
void word_unshare(void* device, volatile uint32_t* word) { memory_free(device, const_cast<uint32_t*>(word)); }

constexpr husk_port port = {
    sizeof(husk_port), HUSK_PORT_ABI, "host", nullptr,
    device_open, device_close, device_properties, device_fit,
    memory_alloc, memory_free,
    memory_copy, memory_copy, memory_copy, memory_fill,
    stream_create, stream_destroy, stream_wait,
    module_load, module_unload, kernel_get, kernel_launch,
    nullptr,
    nullptr, nullptr, nullptr, nullptr, nullptr,   // nothing here is made quicker by them
    nullptr,   // ops are a library of their own
    word_share, word_unshare,
};

}  // namespace

}  // namespace husk::host

const husk_port* husk_port_host(void) { return &husk::host::port; }
