// "husk::cudnn_convolution": convolutions of two and three dimensions by cuDNN.
//
// Arguments: an image [batch, channels, ...] and a filter [results, channels / groups, ...]; lists
// with stride, padding and dilation of each dimension; the ints transposed (0 or 1), groups, and 1
// if f32 may be multiplied as tf32; the result; a workspace of bytes. The filter of a transposed
// convolution is [channels, results / groups, ...], as PyTorch's. Nothing is added to the result.
#pragma once

#include <husk/op.h>

#include "device.h"

namespace husk::cuda {

// OpFamily.open and .find (ops/find_op.cpp).
husk_status open_convolution(void* device, OpLibrary* out, husk_error* error);
husk_status find_convolution(const char* name, void* state, husk_op* op);

}  // namespace husk::cuda
