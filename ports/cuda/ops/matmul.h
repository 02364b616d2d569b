// "husk::matmul": matrix products by cuBLASLt.
//
// Arguments: two factors of sizes [m, k] and [k, n], or batches of them; a bias or none, of one row
// or of the result's size; the floats alpha and beta of alpha * product + beta * bias; an int, 1 if
// f32 may be multiplied as tf32; the result; a workspace of bytes.
#pragma once

#include <husk/op.h>

#include "device.h"

namespace husk::cuda {

// OpFamily.open and .find (ops/find_op.cpp).
husk_status open_matmul(void* device, OpLibrary* out, husk_error* error);
husk_status find_matmul(const char* name, void* state, husk_op* op);

}  // namespace husk::cuda
