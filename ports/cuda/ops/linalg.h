// Linear algebra by cuSOLVER: the ops of linalg.def.
#pragma once

#include <husk/op.h>

#include "device.h"

namespace husk::cuda {

// OpFamily.open and .find (ops/find_op.cpp).
husk_status open_linalg(void* device, OpLibrary* out, husk_error* error);
husk_status find_linalg(const char* name, void* state, husk_op* op);

}  // namespace husk::cuda
