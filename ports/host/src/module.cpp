// Kernels of modules and their launch.
#include "module.h"

#include <cstring>
#include <new>

#include <husk/detail/struct_size.h>
#include <husk/detail/try.h>

#include "error.h"

namespace husk::host {

using Entry = int32_t (*)(void** params);

// A kernel of a module, which frees it. The text of its name follows it in memory.
struct Kernel {
  Entry entry;
  const Module* module;
  Kernel* next;

  const char* name() const { return reinterpret_cast<const char*>(this + 1); }
};

const husk_threads** Module::read_symbols() {
  const auto* count = static_cast<const uint32_t*>(
      find(*this, "husk_text_count", detail::kLinkedObject, sizeof(uint32_t)));
  texts = static_cast<const char* const*>(find(*this, "husk_texts", detail::kLinkedObject, 0));
  text_count = count && texts ? *count : 0;
  return static_cast<const husk_threads**>(
      find(*this, "husk_image_threads", detail::kLinkedObject, sizeof(void*)));
}

Module* module_create(Device* device, const husk_port_image& image, decltype(Module::find) find,
                      decltype(Module::close) close, husk_error* error) {
  void* memory = device->allocate(sizeof(Module), alignof(Module));
  if (memory) return new (memory) Module(find, close);
  (void)fail(error, HUSK_OUT_OF_MEMORY, "image %s: no memory for its module", image.name);
  return nullptr;
}

void module_unload(void* handle, void* module) {
  auto* device = static_cast<Device*>(handle);
  auto* unloaded = static_cast<Module*>(module);
  if (!unloaded) return;
  for (Kernel* kernel = unloaded->kernels.load(); kernel;) {
    Kernel* next = kernel->next;
    device->release(kernel);
    kernel = next;
  }
  unloaded->close(*unloaded);
  unloaded->~Module();
  device->release(unloaded);
}

husk_status kernel_get(void* handle, void* module, const husk_port_kernel* desc, void** kernel,
                       husk_error* error) {
  *kernel = nullptr;
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_port_kernel, desc, threads, error));
  auto* device = static_cast<Device*>(handle);
  auto* owner = static_cast<Module*>(module);
  if (!desc->symbol) return fail(error, HUSK_INVALID_ARGUMENT, "kernel: its symbol is null");
  if (desc->threads > 1 || desc->cluster > 1 || desc->shared_bytes != 0) {
    return fail(error, HUSK_UNSUPPORTED,
                "kernel %s: %u threads, cluster %u, %u shared bytes; on the host 1, 1 and 0",
                desc->symbol, desc->threads, desc->cluster, desc->shared_bytes);
  }
  void* address = owner->find(*owner, desc->symbol, detail::kLinkedFunction, 0);
  if (!address) {
    return fail(error, HUSK_NOT_FOUND, "kernel %s: its image exports no function of that name",
                desc->symbol);
  }
  const size_t length = strlen(desc->symbol) + 1;
  void* memory = device->allocate(sizeof(Kernel) + length, alignof(Kernel));
  if (!memory)
    return fail(error, HUSK_OUT_OF_MEMORY, "kernel %s: no memory for its handle", desc->symbol);
  auto* added = new (memory) Kernel{reinterpret_cast<Entry>(address), owner, owner->kernels.load()};
  memcpy(added + 1, desc->symbol, length);
  while (!owner->kernels.compare_exchange_weak(added->next, added)) {
  }
  *kernel = added;
  return HUSK_OK;
}

namespace {

husk_status refuse(const Kernel& kernel, const husk_launch& launch, husk_error* error) {
  return fail(error, HUSK_INVALID_ARGUMENT,
              "kernel %s: grid %u %u %u, block %u %u %u; on the host all are 1", kernel.name(),
              launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0], launch.block[1],
              launch.block[2]);
}

husk_status report(const Kernel& kernel, int32_t result, husk_error* error) {
  const Module& module = *kernel.module;
  const char* text = nullptr;
  if (result > 0 && static_cast<uint32_t>(result) <= module.text_count)
    text = module.texts[result - 1];
  if (text) return fail(error, HUSK_KERNEL, "kernel %s: %s", kernel.name(), text);
  return fail(error, HUSK_KERNEL, "kernel %s: failed with %d, for which its image has no text",
              kernel.name(), result);
}

// Whether the launch is one call. A call takes a few nanoseconds, so the check is one branch.
inline bool is_one_call(const husk_launch& launch) {
  const uint32_t *grid = launch.grid, *block = launch.block;
  return ((grid[0] ^ 1) | (grid[1] ^ 1) | (grid[2] ^ 1) | (block[0] ^ 1) | (block[1] ^ 1) |
          (block[2] ^ 1)) == 0;
}

inline husk_status call(const Kernel& kernel, const husk_launch& launch, husk_error* error) {
  const int32_t result = kernel.entry(launch.params);
  return result == 0 ? HUSK_OK : report(kernel, result, error);
}

}  // namespace

husk_status kernel_launch(void*, void*, void* handle, const husk_launch* launch,
                          husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_launch, launch, params, error));
  const auto& kernel = *static_cast<const Kernel*>(handle);
  return is_one_call(*launch) ? call(kernel, *launch, error) : refuse(kernel, *launch, error);
}

husk_status kernel_launch_list(void*, void*, const husk_listed_launch* launches, uint32_t count,
                               uint32_t* failed, husk_error* error) {
  for (uint32_t i = 0; i < count; ++i) {
    const auto& kernel = *static_cast<const Kernel*>(launches[i].kernel);
    const husk_launch& launch = *launches[i].launch;
    const uint32_t* grid = launch.grid;
    husk_status status = HUSK_CHECK_STRUCT(husk_launch, &launch, params, error);
    if (status == HUSK_OK && is_one_call(launch))
      status = call(kernel, launch, error);
    else if (status == HUSK_OK && grid[0] && grid[1] && grid[2])
      status = refuse(kernel, launch, error);
    if (status == HUSK_OK) continue;
    *failed = i;
    return status;
  }
  return HUSK_OK;
}

husk_status kernel_launch_linked(void*, void*, husk_linked_launches code,
                                 const husk_listed_launch* launches, uint32_t* failed,
                                 husk_error* error) {
  const int32_t result = code(launches->launch->params, failed);
  if (result == 0) return HUSK_OK;
  return report(*static_cast<const Kernel*>(launches[*failed].kernel), result, error);
}

}  // namespace husk::host
