// Checks of a host image, which is an ELF shared object.
#pragma once

#include <husk/port.h>

namespace husk::host {

// Fails unless the bytes are a 64-bit little-endian shared object for this machine whose segments
// and sections lie inside of the image. The system's loader relies on that without checking. Code
// and tables inside of the image are not checked.
husk_status image_check(const husk_port_image& image, husk_error* error);

}  // namespace husk::host
