// Scalar ops, computed with the numbers of one run. interval.h computes them with ranges.
#pragma once

#include "base/status.h"
#include "model/rows.h"

namespace husk {

union Register {
  int64_t i;
  double f;
};

// An input of a run or resize. Tensors have sizes, and strides in elements; integers, floats and
// bools have a value.
struct InputValue {
  const int64_t* sizes;
  const int64_t* strides;
  uint8_t* data;   // element 0; may be null in a resize
  uint64_t bytes;  // from element 0 to the end of the last one
  int64_t i;
  double f;
};

// Runs the prologue of `segment`: writes the registers of its range. `results` are those of the
// segment before it. Fails with HUSK_INVALID_INPUT if a guard fails, an integer leaves int64 or a
// divisor is 0. If `known` is not null, only the registers whose entry is not 0 are computed.
// Allocates nothing.
Status evaluate(const Code& code, uint32_t segment, const InputValue* inputs,
                const Register* results, Register* registers, husk_error* error,
                const uint8_t* known = nullptr);

}  // namespace husk
