// The ops that ranks compute together: husk::all_reduce and others, by NCCL, or small ones by the
// port itself.
#pragma once

#include "device.h"

namespace husk::cuda {

husk_status open_collective(void* device, OpLibrary* out, husk_error* error);
husk_status find_collective(const char* name, void* state, husk_op* op);

}  // namespace husk::cuda
