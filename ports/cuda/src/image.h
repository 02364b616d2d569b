// What must hold of an image before the driver may read it. cuLibraryLoadData has no length argument: it follows the
// offsets that it finds, so these are checked against the image's size here. What the sections say, and for which
// machine, is the driver's to judge.
#ifndef HUSK_CUDA_IMAGE_H
#define HUSK_CUDA_IMAGE_H

#include <husk/port.h>

namespace husk::cuda {

// HUSK_INVALID_FILE, or HUSK_UNSUPPORTED for a format that is not of this port, naming the image.
husk_status check_image(const husk_port_image& image, husk_error* error);

}  // namespace husk::cuda
#endif
