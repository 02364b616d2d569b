// Checks of an image before the driver reads it. cuLibraryLoadData takes no length and follows the
// offsets in the image, so they are checked against the image's size first. The contents of
// sections and the machine are left to the driver.
#pragma once

#include <husk/port.h>

namespace husk::cuda {

// HUSK_INVALID_FILE if an offset lies outside of the image, HUSK_UNSUPPORTED if this port does not
// load the format. The error names the image.
husk_status check_image(const husk_port_image& image, husk_error* error);

}  // namespace husk::cuda
