// The ops of the port, all of which call libraries of NVIDIA's.
#pragma once

#include <husk/op.h>

namespace husk::cuda {

// husk_port.find_op. Opens the library of the op when the first program calls the op.
husk_status find_op(void* device, const char* name, husk_op* op, husk_error* error);

}  // namespace husk::cuda
