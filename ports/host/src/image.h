// Checks of a host image, which is an ELF shared object.
#pragma once

#include <elf.h>

#include <husk/port.h>

namespace husk::host {

// The machine that the port is compiled for, in ELF's numbers.
#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
constexpr const char* kMachineName = "x86-64";
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
constexpr const char* kMachineName = "aarch64";
#endif

// Fails unless the bytes are a 64-bit little-endian shared object for this machine whose segments
// and sections lie inside of the image. The system's loader relies on that without checking. Code
// and tables inside of the image are not checked.
husk_status image_check(const husk_port_image& image, husk_error* error);

}  // namespace husk::host
