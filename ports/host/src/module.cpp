// Host images and their kernels. The system's loader reads an image from an anonymous file in
// memory, so the image is never written to disk.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include <husk/detail/struct_size.h>
#include <husk/detail/try.h>

#include "device.h"
#include "error.h"
#include "image.h"

namespace husk::host {

namespace {

using Entry = int32_t (*)(void** params);

struct Module;

// A kernel of a module, which frees it. The text of its name follows it in memory.
struct Kernel {
  Entry entry;
  const Module* module;
  Kernel* next;

  const char* name() const { return reinterpret_cast<const char*>(this + 1); }
};

struct Module {
  void* library = nullptr;
  int descriptor = -1;
  const char* const* texts = nullptr;
  uint32_t text_count = 0;
  std::atomic<Kernel*> kernels{nullptr};  // a linked list; several threads may add to it
};

struct LibraryPath {
  char text[40];

  explicit LibraryPath(int descriptor) {
    snprintf(text, sizeof text, "/proc/self/fd/%d", descriptor);
  }
};

// Closes a library and its file descriptor. The loader identifies a library by its path. A library
// with unique symbols or thread-local destructors stays loaded after dlclose. Its path contains the
// number of the descriptor, which must not be used again, so the descriptor stays open in that
// case.
void library_close(void* library, int descriptor) {
  if (library) {
    dlclose(library);
    void* still_loaded = dlopen(LibraryPath(descriptor).text, RTLD_NOW | RTLD_NOLOAD);
    if (still_loaded) {
      dlclose(still_loaded);
      return;
    }
  }
  if (descriptor >= 0) close(descriptor);
}

husk_status create_file(const husk_port_image& image, int& descriptor, husk_error* error) {
  descriptor = memfd_create("husk-image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return fail(error, HUSK_IO, "image %s: memfd_create: %m", image.name);
  const auto* bytes = static_cast<const unsigned char*>(image.data);
  for (uint64_t offset = 0; offset < image.size;) {
    const ssize_t written = write(descriptor, bytes + offset,
                                  static_cast<size_t>(image.size - offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail(error, HUSK_IO, "image %s: write: %m", image.name);
    offset += static_cast<uint64_t>(written);
  }
  // The seal prevents every later change of the code, even by code that finds the descriptor.
  if (fcntl(descriptor, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
    return fail(error, HUSK_IO, "image %s: sealing it: %m", image.name);
  return HUSK_OK;
}

// The address of a symbol that the image itself defines, or null. The symbol must have the ELF type
// and, if `size` is not 0, the size. dlsym alone also finds symbols of libraries that the image is
// linked to, so that a name such as "abort" would pass for a kernel.
void* find_own_symbol(void* library, const char* name, unsigned char type, uint64_t size = 0) {
  void* address = dlsym(library, name);
  link_map *library_map = nullptr, *symbol_map = nullptr;
  const Elf64_Sym* symbol = nullptr;
  Dl_info info;
  if (!address || dlinfo(library, RTLD_DI_LINKMAP, &library_map) != 0) return nullptr;
  if (!dladdr1(address, &info, reinterpret_cast<void**>(&symbol_map), RTLD_DL_LINKMAP) ||
      symbol_map != library_map)
    return nullptr;
  if (!dladdr1(address, &info, reinterpret_cast<void**>(const_cast<Elf64_Sym**>(&symbol)),
               RTLD_DL_SYMENT)) {
    return nullptr;
  }
  if (!symbol || ELF64_ST_TYPE(symbol->st_info) != type || (size != 0 && symbol->st_size != size))
    return nullptr;
  return address;
}

husk_status library_open(const husk_port_image& image, const husk_threads* threads, Module& module,
                         husk_error* error) {
  if (husk_status status = create_file(image, module.descriptor, error)) return status;
  module.library = dlopen(LibraryPath(module.descriptor).text, RTLD_NOW | RTLD_LOCAL);
  if (!module.library) {
    const char* reason = dlerror();
    return fail(error, HUSK_INVALID_FILE, "image %s: %s", image.name,
                reason ? reason : "the loader refused it");
  }
  const auto* count = static_cast<const uint32_t*>(
      find_own_symbol(module.library, "husk_text_count", STT_OBJECT, sizeof(uint32_t)));
  module.texts = static_cast<const char* const*>(
      find_own_symbol(module.library, "husk_texts", STT_OBJECT));
  module.text_count = count && module.texts ? *count : 0;
  void* slot = find_own_symbol(module.library, "husk_image_threads", STT_OBJECT, sizeof(void*));
  if (slot) *static_cast<const husk_threads**>(slot) = threads;
  return HUSK_OK;
}

}  // namespace

husk_status module_load(void* handle, const husk_port_image* image, void** module,
                        husk_error* error) {
  *module = nullptr;
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_port_image, image, name, error));
  auto* device = static_cast<Device*>(handle);
  if (image->format != HUSK_IMAGE_ELF) {
    return fail(error, HUSK_UNSUPPORTED, "image %s: format %d; the host loads ELF shared objects",
                image->name, image->format);
  }
  if (!image->data)
    return fail(error, HUSK_INVALID_ARGUMENT, "image %s: its address is null", image->name);
  if (husk_status status = image_check(*image, error)) return status;
  void* memory = device->allocate(sizeof(Module), alignof(Module));
  if (!memory)
    return fail(error, HUSK_OUT_OF_MEMORY, "image %s: no memory for its module", image->name);
  auto* loaded = new (memory) Module;
  if (husk_status status = library_open(*image, device->threads, *loaded, error)) {
    module_unload(device, loaded);
    return status;
  }
  *module = loaded;
  return HUSK_OK;
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
  library_close(unloaded->library, unloaded->descriptor);
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
  void* address = find_own_symbol(owner->library, desc->symbol, STT_FUNC);
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

husk_status kernel_launch(void*, void*, void* handle, const husk_launch* launch,
                          husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_launch, launch, params, error));
  const auto* kernel = static_cast<const Kernel*>(handle);
  for (int i = 0; i < 3; ++i) {
    if (launch->grid[i] != 1 || launch->block[i] != 1) {
      return fail(error, HUSK_INVALID_ARGUMENT,
                  "kernel %s: grid %u %u %u, block %u %u %u; on the host all are 1", kernel->name(),
                  launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0],
                  launch->block[1], launch->block[2]);
    }
  }
  const int32_t result = kernel->entry(launch->params);
  if (result == 0) return HUSK_OK;
  const Module& module = *kernel->module;
  const char* text = nullptr;
  if (result > 0 && static_cast<uint32_t>(result) <= module.text_count)
    text = module.texts[result - 1];
  if (text) return fail(error, HUSK_KERNEL, "kernel %s: %s", kernel->name(), text);
  return fail(error, HUSK_KERNEL, "kernel %s: failed with %d, for which its image has no text",
              kernel->name(), result);
}

}  // namespace husk::host
