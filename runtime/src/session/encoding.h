// Registers as the bytes of an element type, and back.
#pragma once

#include "model/evaluate.h"

namespace husk::runtime {

// Converts the low bytes of `bits`, an element of `dtype`, to a register.
Register decode(uint8_t dtype, uint64_t bits);

// Writes the bytes of `value` as an element of `dtype`, low end first. Floats are rounded to
// nearest even. Returns false if an integer does not fit.
bool encode(uint8_t dtype, Register value, uint64_t* out);

}  // namespace husk::runtime
