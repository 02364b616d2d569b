// Modules: images that are loaded from bytes (loader.cpp) or linked into the process (linked.cpp),
// and their kernels (module.cpp).
#pragma once

#include <atomic>

#include <husk/detail/linked.h>

#include "device.h"

namespace husk::host {

struct Kernel;

struct Module {
  // The address of a symbol that the image itself defines, or null. The symbol must have the type
  // and, if `size` is not 0, the size. A pointer, so that a program without loader.cpp needs no
  // loader.
  void* (*find)(const Module& module, const char* name, detail::LinkedSymbolType type,
                uint64_t size);
  void (*close)(Module& module);
  void* library = nullptr;                      // of dlopen
  int descriptor = -1;                          // of the file that dlopen has read
  const detail::LinkedImage* linked = nullptr;  // set if the image is linked
  const char* const* texts = nullptr;
  uint32_t text_count = 0;
  std::atomic<Kernel*> kernels{nullptr};  // a linked list; several threads may add to it

  Module(decltype(find) find_symbol, decltype(close) close_image)
      : find(find_symbol), close(close_image) {}

  // Reads the texts of checks, and returns the variable that receives the device's threads; null if
  // the image has none.
  const husk_threads** read_symbols();
};

// Creates a module; null if there is no memory, with a text in `error`.
Module* module_create(Device* device, const husk_port_image& image, decltype(Module::find) find,
                      decltype(Module::close) close, husk_error* error);

}  // namespace husk::host
