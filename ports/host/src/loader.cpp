// Loads images from bytes. The system's loader reads an image from an anonymous file in memory, so
// the image is never written to disk.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include <husk/detail/struct_size.h>
#include <husk/detail/try.h>

#include "error.h"
#include "image.h"
#include "module.h"

namespace husk::host {

namespace {

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
void library_close(Module& module) {
  if (module.library) {
    dlclose(module.library);
    void* still_loaded = dlopen(LibraryPath(module.descriptor).text, RTLD_NOW | RTLD_NOLOAD);
    if (still_loaded) {
      dlclose(still_loaded);
      return;
    }
  }
  if (module.descriptor >= 0) close(module.descriptor);
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

// Module::find. dlsym alone also finds symbols of libraries that the image is linked to, so that a
// name such as "abort" would pass for a kernel.
void* find_in_library(const Module& module, const char* name, detail::LinkedSymbolType type,
                      uint64_t size) {
  void* const library = module.library;
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
  const unsigned char elf_type = type == detail::kLinkedFunction ? STT_FUNC : STT_OBJECT;
  if (!symbol || ELF64_ST_TYPE(symbol->st_info) != elf_type ||
      (size != 0 && symbol->st_size != size))
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
  if (const husk_threads** slot = module.read_symbols()) *slot = threads;
  return HUSK_OK;
}

}  // namespace

husk_status module_load(void* handle, const husk_port_image* image, void** module,
                        husk_error* error) {
  *module = nullptr;
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_port_image, image, name, error));
  if (HUSK_HAS_FIELD(image, linked) && image->linked)
    return module_link(handle, image, module, error);
  auto* device = static_cast<Device*>(handle);
  if (image->format != HUSK_IMAGE_ELF) {
    return fail(error, HUSK_UNSUPPORTED, "image %s: format %d; the host loads ELF shared objects",
                image->name, image->format);
  }
  if (!image->data)
    return fail(error, HUSK_INVALID_ARGUMENT, "image %s: its address is null", image->name);
  if (husk_status status = image_check(*image, error)) return status;
  Module* loaded = module_create(device, *image, find_in_library, library_close, error);
  if (!loaded) return HUSK_OUT_OF_MEMORY;
  if (husk_status status = library_open(*image, device->threads, *loaded, error)) {
    module_unload(device, loaded);
    return status;
  }
  *module = loaded;
  return HUSK_OK;
}

}  // namespace husk::host
