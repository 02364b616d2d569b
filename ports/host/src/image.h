// The shape of a host image: an ELF shared object.
#ifndef HUSK_HOST_IMAGE_H
#define HUSK_HOST_IMAGE_H

#include <husk/port.h>

namespace husk::host {

// Refuses bytes that are no 64-bit little-endian shared object for this machine, or whose segments and sections leave
// the image: the system's loader trusts them. It says nothing about the code and the tables inside.
husk_status image_check(const husk_port_image& image, husk_error* error);

}  // namespace husk::host

#endif
