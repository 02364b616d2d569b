#include "fault_port.h"

#include <cstdio>
#include <cstring>

namespace husk::test {
namespace {

Faults all;
void* const kPoison = reinterpret_cast<void*>(uintptr_t{0xDEAD000});  // what a failed call leaves
                                                                      // where it should have
                                                                      // written

bool fails(const char* what, husk_error* error) {
  const int64_t call = all.calls++;
  if (all.refuse < 0 || (all.for_good ? call < all.refuse : call != all.refuse)) return false;
  ++all.met;
  all.last = what;
  error->code = HUSK_DEVICE;
  error->driver_code = 77;
  error->step = -1;
  std::snprintf(error->text, sizeof(error->text), "injected fault in %s", what);
  return true;
}

// A call that makes something: counts what is given out.
template <class Call>
husk_status make(const char* what, int64_t* count, void** out, husk_error* error, Call call) {
  if (fails(what, error)) {
    *out = kPoison;
    return HUSK_DEVICE;
  }
  const husk_status status = call();
  *count += status == HUSK_OK;
  return status;
}

husk_status open(void*, int32_t index, const husk_allocator* allocator, const husk_threads* threads,
                 void** device, husk_error* error) {
  return make("open", &all.devices, device, error, [&] {
    return all.inner->open(all.inner->user, index, allocator, threads, device, error);
  });
}
void close(void* device) {
  --all.devices;
  all.inner->close(device);
}
void properties(void* device, husk_port_properties* out) {
  all.inner->properties(device, out);
  if (all.device_memory) out->host_memory = 0;
}
int32_t arch_rank(void* device, const char* arch, int32_t format) {
  return all.inner->arch_rank(device, arch, format);
}
husk_status alloc(void* device, uint64_t size, void** memory, husk_error* error) {
  return make("alloc", &all.memory, memory, error,
              [&] { return all.inner->alloc(device, size, memory, error); });
}
void release(void* device, void* memory) {
  all.memory -= memory != nullptr;
  all.inner->free(device, memory);
}
husk_status alloc_host_flag(void* device, volatile uint32_t** word, husk_error* error) {
  *word = nullptr;
  void* unused;
  return make("alloc_host_flag", &all.memory, &unused, error,
              [&] { return all.inner->alloc_host_flag(device, word, error); });
}
void free_host_flag(void* device, volatile uint32_t* word) {
  all.memory -= word != nullptr;
  all.inner->free_host_flag(device, word);
}
husk_status upload(void* device, void* stream, void* to, const void* from, uint64_t size,
                   husk_error* error) {
  return fails("upload", error) ? HUSK_DEVICE
                                : all.inner->upload(device, stream, to, from, size, error);
}
husk_status download(void* device, void* stream, void* to, const void* from, uint64_t size,
                     husk_error* error) {
  return fails("download", error) ? HUSK_DEVICE
                                  : all.inner->download(device, stream, to, from, size, error);
}
husk_status copy(void* device, void* stream, void* to, const void* from, uint64_t size,
                 husk_error* error) {
  return fails("copy", error) ? HUSK_DEVICE
                              : all.inner->copy(device, stream, to, from, size, error);
}
husk_status fill(void* device, void* stream, void* to, uint64_t pattern, uint32_t width,
                 uint64_t count, husk_error* error) {
  return fails("fill", error) ? HUSK_DEVICE
                              : all.inner->fill(device, stream, to, pattern, width, count, error);
}
husk_status stream_create(void* device, void** stream, husk_error* error) {
  return make("stream_create", &all.streams, stream, error,
              [&] { return all.inner->stream_create(device, stream, error); });
}
void stream_destroy(void* device, void* stream) {
  --all.streams;
  all.inner->stream_destroy(device, stream);
}
husk_status stream_wait(void* device, void* stream, husk_error* error) {
  return fails("stream_wait", error) ? HUSK_DEVICE : all.inner->stream_wait(device, stream, error);
}
husk_status module_load(void* device, const husk_port_image* image, void** module,
                        husk_error* error) {
  return make("module_load", &all.modules, module, error,
              [&] { return all.inner->module_load(device, image, module, error); });
}
void module_unload(void* device, void* module) {
  --all.modules;
  all.inner->module_unload(device, module);
}
husk_status kernel_get(void* device, void* module, const husk_port_kernel* desc, void** kernel,
                       husk_error* error) {
  int64_t nothing = 0;
  return make("kernel_get", &nothing, kernel, error,
              [&] { return all.inner->kernel_get(device, module, desc, kernel, error); });
}
husk_status launch(void* device, void* stream, void* kernel, const husk_launch* launch,
                   husk_error* error) {
  return fails("launch", error) ? HUSK_DEVICE
                                : all.inner->launch(device, stream, kernel, launch, error);
}
husk_status launch_list(void* device, void* stream, const husk_listed_launch* launches,
                        uint32_t count, uint32_t* failed, husk_error* error) {
  for (*failed = 0; *failed < count; ++*failed) {
    if (fails("launch_list", error)) return HUSK_DEVICE;
    uint32_t none = 0;
    const husk_status status = all.inner->launch_list(device, stream, launches + *failed, 1, &none,
                                                      error);
    if (status != HUSK_OK) return status;
  }
  return HUSK_OK;
}

constexpr husk_port kPort = [] {
  husk_port port{};
  port.struct_size = sizeof port;
  port.abi = HUSK_PORT_ABI;
  port.name = "host";
  port.open = open;
  port.close = close;
  port.properties = properties;
  port.arch_rank = arch_rank;
  port.alloc = alloc;
  port.free = release;
  port.upload = upload;
  port.download = download;
  port.copy = copy;
  port.fill = fill;
  port.stream_create = stream_create;
  port.stream_destroy = stream_destroy;
  port.stream_wait = stream_wait;
  port.module_load = module_load;
  port.module_unload = module_unload;
  port.kernel_get = kernel_get;
  port.launch = launch;
  port.alloc_host_flag = alloc_host_flag;
  port.free_host_flag = free_host_flag;
  port.launch_list = launch_list;
  return port;
}();

}  // namespace

Faults& faults() { return all; }
const husk_port* fault_port() { return &kPort; }

}  // namespace husk::test
