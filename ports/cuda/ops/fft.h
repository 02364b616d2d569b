// "husk::fft": Fourier transforms by cuFFT, without a factor.
//
// Arguments: the input; the number of its last dimensions that are transformed, 1 to 3; an int, 1
// if the sign of the exponent is positive; the sizes of the result, which are not read; the result.
// Complex numbers lie as pairs in a last dimension of two, which is not counted among the
// transformed ones. If the input lacks that dimension, real numbers are transformed, and the result
// has the first half of the last dimension. If the result lacks it, it is real, and the input is
// such a half. All tensors are dense.
#pragma once

#include <husk/op.h>

#include "device.h"

namespace husk::cuda {

// OpFamily.open and .find (ops/find_op.cpp).
husk_status open_fft(void* device, OpLibrary* out, husk_error* error);
husk_status find_fft(const char* name, void* state, husk_op* op);

}  // namespace husk::cuda
