// "husk::matmul": matrix products by cuBLASLt.
//
// Arguments: two factors of sizes [m, k] and [k, n], or batches of them; a bias or none, of one row
// or of the result's size; the floats alpha and beta of alpha * product + beta * bias; an int, 1 if
// f32 may be multiplied as tf32; the result; a workspace of bytes.
#pragma once

#include <husk/op.h>

namespace husk::cuda {

// husk_port.find_op. Opens cuBLASLt when the first program calls the op.
husk_status find_op(void* device, const char* name, husk_op* op, husk_error* error);

}  // namespace husk::cuda
