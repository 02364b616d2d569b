#include "empty_port.h"

#include <cstdlib>
#include <cstring>

namespace husk::bench {
namespace {

int device;  // The port has one device, which has no state.

husk_status open(void*, int32_t, const husk_allocator*, const husk_threads*, void** out,
                 husk_error*) {
  *out = &device;
  return HUSK_OK;
}
void close(void*) {}
void properties(void*, husk_port_properties* out) {
  std::strcpy(out->name, "empty port");
  std::strcpy(out->arch, "x86-64");
  out->dl_device_type = 1;
}
int32_t arch_rank(void*, const char*, int32_t) { return 1; }

// Only address space is reserved, so that sizes may be those of a large model.
husk_status alloc(void*, uint64_t size, void** out, husk_error* error) {
  *out = size < (1ull << 40) ? std::aligned_alloc(256, (size + 255) / 256 * 256) : nullptr;
  if (*out || size == 0) return HUSK_OK;
  error->code = HUSK_OUT_OF_MEMORY;
  std::strcpy(error->text, "the empty port has no such memory");
  return HUSK_OUT_OF_MEMORY;
}
void release(void*, void* memory) { std::free(memory); }

husk_status upload(void*, void*, void* to, const void* from, uint64_t size, husk_error*) {
  std::memcpy(to, from, size);
  return HUSK_OK;
}
husk_status copy(void*, void*, void*, const void*, uint64_t, husk_error*) { return HUSK_OK; }
husk_status fill(void*, void*, void*, uint64_t, uint32_t, uint64_t, husk_error*) { return HUSK_OK; }
husk_status stream_create(void*, void** out, husk_error*) {
  *out = nullptr;
  return HUSK_OK;
}
void stream_destroy(void*, void*) {}
husk_status stream_wait(void*, void*, husk_error*) { return HUSK_OK; }
husk_status module_load(void*, const husk_port_image*, void** out, husk_error*) {
  *out = &device;
  return HUSK_OK;
}
void module_unload(void*, void*) {}
husk_status kernel_get(void*, void*, const husk_port_kernel*, void** out, husk_error*) {
  *out = &device;
  return HUSK_OK;
}
husk_status launch(void*, void*, void*, const husk_launch*, husk_error*) { return HUSK_OK; }
husk_status launch_list(void*, void*, const husk_listed_launch*, uint32_t, uint32_t*, husk_error*) {
  return HUSK_OK;
}

husk_status alloc_host_flag(void* on, volatile uint32_t** word, husk_error* error) {
  void* memory = nullptr;
  const husk_status status = alloc(on, sizeof(uint32_t), &memory, error);
  *word = static_cast<uint32_t*>(memory);
  if (memory) **word = 0;
  return status;
}
void free_host_flag(void* on, volatile uint32_t* word) { release(on, const_cast<uint32_t*>(word)); }

constexpr husk_port kPort = {sizeof(husk_port),
                             HUSK_PORT_ABI,
                             "host",
                             nullptr,
                             open,
                             close,
                             properties,
                             arch_rank,
                             alloc,
                             release,
                             upload,
                             upload,
                             copy,
                             fill,
                             stream_create,
                             stream_destroy,
                             stream_wait,
                             module_load,
                             module_unload,
                             kernel_get,
                             launch,
                             nullptr,
                             nullptr,
                             nullptr,
                             nullptr,
                             nullptr,
                             nullptr,
                             nullptr,
                             alloc_host_flag,
                             free_host_flag,
                             nullptr,
                             nullptr,
                             nullptr,
                             launch_list,
                             nullptr,
                             nullptr,
                             nullptr,
                             nullptr,
                             nullptr};

}  // namespace

const husk_port* empty_port() { return &kPort; }

}  // namespace husk::bench
