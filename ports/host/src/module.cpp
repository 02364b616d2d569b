// Host images and their kernels. An image goes to the system's loader through an anonymous file, so that it never
// touches the disk.
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "device.h"
#include "error.h"
#include "image.h"

namespace husk::host {

namespace {

using Entry = int32_t (*)(void** params);

struct Module;

// Memory of the module; its name follows it.
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
  std::atomic<Kernel*> kernels{nullptr};   // a list that several threads may add to
};

struct LibraryPath {
  char text[40];

  explicit LibraryPath(int descriptor) { snprintf(text, sizeof text, "/proc/self/fd/%d", descriptor); }
};

// The loader knows a library by its path. Some libraries outlive dlclose (unique symbols, thread-local destructors);
// the number in the path of such a one must never come again, so its descriptor stays open.
void library_close(void* library, int descriptor) {
  if (library) {
    dlclose(library);
    void* still = dlopen(LibraryPath(descriptor).text, RTLD_NOW | RTLD_NOLOAD);
    if (still) {
      dlclose(still);
      return;
    }
  }
  if (descriptor >= 0) close(descriptor);
}

husk_status file_make(const husk_port_image& image, int& descriptor, husk_error* error) {
  descriptor = memfd_create("husk-image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) {
    return fail(error, HUSK_IO, "image %s: memfd_create: %m", image.name);
  }
  const auto* bytes = static_cast<const unsigned char*>(image.data);
  for (uint64_t done = 0; done < image.size;) {
    const ssize_t written = write(descriptor, bytes + done, static_cast<size_t>(image.size - done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail(error, HUSK_IO, "image %s: write: %m", image.name);
    done += static_cast<uint64_t>(written);
  }
  // Nobody who finds the descriptor can change the code from now on.
  if (fcntl(descriptor, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0) {
    return fail(error, HUSK_IO, "image %s: sealing it: %m", image.name);
  }
  return HUSK_OK;
}

// The address of a symbol that the image itself defines, with the ELF type and, if not 0, the size that it must have, or
// null. dlsym alone also finds what the image is linked to: a name such as "abort" would pass for a kernel.
void* own_symbol(void* library, const char* name, unsigned char type, uint64_t size = 0) {
  void* address = dlsym(library, name);
  link_map *own = nullptr, *found = nullptr;
  const Elf64_Sym* symbol = nullptr;
  Dl_info info;
  if (!address || dlinfo(library, RTLD_DI_LINKMAP, &own) != 0) return nullptr;
  if (!dladdr1(address, &info, reinterpret_cast<void**>(&found), RTLD_DL_LINKMAP) || found != own) return nullptr;
  if (!dladdr1(address, &info, reinterpret_cast<void**>(const_cast<Elf64_Sym**>(&symbol)), RTLD_DL_SYMENT)) {
    return nullptr;
  }
  if (!symbol || ELF64_ST_TYPE(symbol->st_info) != type || (size != 0 && symbol->st_size != size)) return nullptr;
  return address;
}

husk_status library_open(const husk_port_image& image, const husk_threads* threads, Module& module, husk_error* error) {
  if (husk_status status = file_make(image, module.descriptor, error)) return status;
  module.library = dlopen(LibraryPath(module.descriptor).text, RTLD_NOW | RTLD_LOCAL);
  if (!module.library) {
    const char* reason = dlerror();
    return fail(error, HUSK_INVALID_FILE, "image %s: %s", image.name, reason ? reason : "the loader refused it");
  }
  const auto* count =
      static_cast<const uint32_t*>(own_symbol(module.library, "husk_text_count", STT_OBJECT, sizeof(uint32_t)));
  module.texts = static_cast<const char* const*>(own_symbol(module.library, "husk_texts", STT_OBJECT));
  module.text_count = count && module.texts ? *count : 0;
  void* slot = own_symbol(module.library, "husk_image_threads", STT_OBJECT, sizeof(void*));
  if (slot) *static_cast<const husk_threads**>(slot) = threads;
  return HUSK_OK;
}

}  // namespace

husk_status module_load(void* handle, const husk_port_image* image, void** module, husk_error* error) {
  *module = nullptr;
  auto* device = static_cast<Device*>(handle);
  if (image->format != HUSK_IMAGE_ELF) {
    return fail(error, HUSK_UNSUPPORTED, "image %s: format %d; the host loads ELF shared objects", image->name,
                image->format);
  }
  if (!image->data) return fail(error, HUSK_INVALID_ARGUMENT, "image %s: its address is null", image->name);
  if (husk_status status = image_check(*image, error)) return status;
  void* memory = device->allocate(sizeof(Module), alignof(Module));
  if (!memory) return fail(error, HUSK_OUT_OF_MEMORY, "image %s: no memory for its module", image->name);
  auto* made = new (memory) Module;
  if (husk_status status = library_open(*image, device->threads, *made, error)) {
    module_unload(device, made);
    return status;
  }
  *module = made;
  return HUSK_OK;
}

void module_unload(void* handle, void* module) {
  auto* device = static_cast<Device*>(handle);
  auto* dropped = static_cast<Module*>(module);
  if (!dropped) return;
  for (Kernel* kernel = dropped->kernels.load(); kernel;) {
    Kernel* next = kernel->next;
    device->release(kernel);
    kernel = next;
  }
  library_close(dropped->library, dropped->descriptor);
  dropped->~Module();
  device->release(dropped);
}

husk_status kernel_get(void* handle, void* module, const husk_port_kernel* desc, void** kernel, husk_error* error) {
  *kernel = nullptr;
  auto* device = static_cast<Device*>(handle);
  auto* owner = static_cast<Module*>(module);
  if (!desc->symbol) return fail(error, HUSK_INVALID_ARGUMENT, "kernel: its symbol is null");
  if (desc->threads > 1 || desc->cluster > 1 || desc->shared_bytes != 0) {
    return fail(error, HUSK_UNSUPPORTED, "kernel %s: %u threads, cluster %u, %u shared bytes; on the host 1, 1 and 0",
                desc->symbol, desc->threads, desc->cluster, desc->shared_bytes);
  }
  void* address = own_symbol(owner->library, desc->symbol, STT_FUNC);
  if (!address) {
    return fail(error, HUSK_NOT_FOUND, "kernel %s: its image exports no function of that name", desc->symbol);
  }
  const size_t length = strlen(desc->symbol) + 1;
  void* memory = device->allocate(sizeof(Kernel) + length, alignof(Kernel));
  if (!memory) return fail(error, HUSK_OUT_OF_MEMORY, "kernel %s: no memory for its handle", desc->symbol);
  auto* made = new (memory) Kernel{reinterpret_cast<Entry>(address), owner, owner->kernels.load()};
  memcpy(made + 1, desc->symbol, length);
  while (!owner->kernels.compare_exchange_weak(made->next, made)) {
  }
  *kernel = made;
  return HUSK_OK;
}

husk_status kernel_launch(void*, void*, void* handle, const husk_launch* launch, husk_error* error) {
  const auto* kernel = static_cast<const Kernel*>(handle);
  for (int i = 0; i < 3; i++) {
    if (launch->grid[i] != 1 || launch->block[i] != 1) {
      return fail(error, HUSK_INVALID_ARGUMENT, "kernel %s: grid %u %u %u, block %u %u %u; on the host all are 1",
                  kernel->name(), launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0],
                  launch->block[1], launch->block[2]);
    }
  }
  const int32_t result = kernel->entry(launch->params);
  if (result == 0) return HUSK_OK;
  const Module& module = *kernel->module;
  const char* text = nullptr;
  if (result > 0 && static_cast<uint32_t>(result) <= module.text_count) text = module.texts[result - 1];
  if (text) return fail(error, HUSK_KERNEL, "kernel %s: %s", kernel->name(), text);
  return fail(error, HUSK_KERNEL, "kernel %s: failed with %d, for which its image has no text", kernel->name(), result);
}

}  // namespace husk::host
