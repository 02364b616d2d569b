#include "toy_port.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>

#include <husk/detail/struct_size.h>
#include <husk/detail/try.h>
#include <husk/port_host.h>

namespace husk::toy {
namespace {

// An address of the device is that of the bytes with these upper bits, which no address of the host
// has: who reads device memory as host memory crashes.
constexpr uint64_t kTag = 0xa5, kShift = 48;

void* to_device(void* memory) {
  return reinterpret_cast<void*>(reinterpret_cast<uint64_t>(memory) | kTag << kShift);
}
uint64_t untagged(uint64_t address) {
  return address >> kShift == kTag ? address & ((uint64_t{1} << kShift) - 1) : address;
}
void* to_host(const void* address) {
  return reinterpret_cast<void*>(untagged(reinterpret_cast<uint64_t>(address)));
}

// The device computes as the CPU does, so the port of the CPU loads and launches its kernels.
const husk_port& host() { return *husk_port_host(); }

void properties(void* device, husk_port_properties* out) {
  husk_port_properties own = HUSK_PORT_PROPERTIES_INIT;
  host().properties(device, &own);
  snprintf(own.name, sizeof(own.name), "toy device");
  own.dl_device_type = 12;  // kDLExtDev
  own.host_memory = 0;
  detail::write_struct(own, out);
}

// Memory

husk_status alloc(void* device, uint64_t size, void** memory, husk_error* error) {
  HUSK_TRY(host().alloc(device, size, memory, error));
  *memory = to_device(*memory);
  return HUSK_OK;
}
void release(void* device, void* memory) { host().free(device, to_host(memory)); }

// Upload, download and copy: each side may be memory of the device or of the host.
husk_status copy(void* device, void* stream, void* to, const void* from, uint64_t size,
                 husk_error* error) {
  return host().copy(device, stream, to_host(to), to_host(from), size, error);
}
husk_status fill(void* device, void* stream, void* to, uint64_t pattern, uint32_t width,
                 uint64_t count, husk_error* error) {
  return host().fill(device, stream, to_host(to), pattern, width, count, error);
}

husk_status alloc_host(void* device, uint64_t size, void** memory, husk_error* error) {
  return host().alloc(device, size, memory, error);
}
void free_host(void* device, void* memory) { host().free(device, memory); }

// Kernels

constexpr uint32_t kMostParameters = 128;

struct Kernel {
  void* of_host;
  uint32_t count;
  bool is_pointer[kMostParameters];
  Kernel* next;
};

struct Module {
  void* of_host;
  std::atomic<Kernel*> kernels{nullptr};
};

husk_status fail(husk_error* error, husk_status code, const char* text, const char* name) {
  error->code = code;
  error->driver_code = 0;
  error->step = -1;
  snprintf(error->text, sizeof(error->text), text, name);
  return code;
}

// Creates an object in memory of the allocator that `open` received; null if there is none.
template <class T>
T* create(void* device) {
  husk_error error = {};
  void* memory = nullptr;
  return host().alloc(device, sizeof(T), &memory, &error) == HUSK_OK ? new (memory) T{} : nullptr;
}

husk_status module_load(void* device, const husk_port_image* image, void** module,
                        husk_error* error) {
  *module = nullptr;
  auto* added = create<Module>(device);
  if (!added) return fail(error, HUSK_OUT_OF_MEMORY, "no memory for the image %s", image->name);
  const husk_status status = host().module_load(device, image, &added->of_host, error);
  if (status != HUSK_OK)
    host().free(device, added);
  else
    *module = added;
  return status;
}

void module_unload(void* device, void* handle) {
  auto* module = static_cast<Module*>(handle);
  if (!module) return;
  for (Kernel* kernel = module->kernels; kernel;) {
    Kernel* next = kernel->next;
    host().free(device, kernel);
    kernel = next;
  }
  host().module_unload(device, module->of_host);
  host().free(device, module);
}

husk_status kernel_get(void* device, void* handle, const husk_port_kernel* desc, void** kernel,
                       husk_error* error) {
  *kernel = nullptr;
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_port_kernel, desc, threads, error));
  if (desc->param_count > kMostParameters)
    return fail(error, HUSK_UNSUPPORTED, "kernel %s has more than 128 parameters", desc->symbol);
  auto* module = static_cast<Module*>(handle);
  auto* added = create<Kernel>(device);
  if (!added) return fail(error, HUSK_OUT_OF_MEMORY, "no memory for the kernel %s", desc->symbol);
  const husk_status status = host().kernel_get(device, module->of_host, desc, &added->of_host,
                                               error);
  if (status != HUSK_OK) {
    host().free(device, added);
    return status;
  }
  added->count = desc->param_count;
  for (uint32_t i = 0; i < added->count; ++i)
    added->is_pointer[i] = desc->params[i] == HUSK_POINTER;
  added->next = module->kernels.load();
  while (!module->kernels.compare_exchange_weak(added->next, added)) {
  }
  *kernel = added;
  return HUSK_OK;
}

// The code of a kernel wants addresses of the host.
husk_status launch(void* device, void* stream, void* handle, const husk_launch* launch,
                   husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_launch, launch, params, error));
  const auto* kernel = static_cast<const Kernel*>(handle);
  uint64_t addresses[kMostParameters];
  void* params[kMostParameters];
  for (uint32_t i = 0; i < kernel->count; ++i) {
    params[i] = launch->params[i];
    if (!kernel->is_pointer[i]) continue;
    memcpy(&addresses[i], launch->params[i], sizeof(addresses[i]));
    addresses[i] = untagged(addresses[i]);
    params[i] = &addresses[i];
  }
  husk_launch on_host = HUSK_LAUNCH_INIT;
  detail::read_struct(*launch, &on_host);
  on_host.params = params;
  return host().launch(device, stream, kernel->of_host, &on_host, error);
}

// The device, its streams and the words that kernels write are those of the port of the CPU.
husk_port table() {
  husk_port port = host();
  port.name = "toy";
  port.properties = properties;
  port.alloc = alloc;
  port.free = release;
  port.upload = copy;
  port.download = copy;
  port.copy = copy;
  port.fill = fill;
  port.module_load = module_load;
  port.module_unload = module_unload;
  port.kernel_get = kernel_get;
  port.launch = launch;
  port.launch_list = nullptr;
  port.launch_linked = nullptr;
  port.alloc_host = alloc_host;
  port.free_host = free_host;
  return port;
}

}  // namespace
}  // namespace husk::toy

const husk_port* husk_port_toy(void) {
  static const husk_port port = husk::toy::table();
  return &port;
}
