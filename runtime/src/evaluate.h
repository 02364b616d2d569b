// Scalar ops, computed twice over: with the numbers of one run, and with the ranges that all runs keep to.
#pragma once

#include "rows.h"
#include "status.h"

namespace husk {

union Register {
  int64_t i;
  double f;
};

// What a run, or a resize, knows of one input. Tensors have sizes and strides in elements; ints, floats and bools
// their value.
struct InputValue {
  const int64_t* sizes;
  const int64_t* strides;
  uint8_t* data;      // element 0; may be null in a resize
  uint64_t bytes;     // from element 0 to the end of the last one
  int64_t i;
  double f;
};

// Runs the prologue of `segment`: writes the registers of its range. `results` is what the previous segment brought.
// Fails with HUSK_INVALID_INPUT where a guard does, an int leaves int64 or a divisor is 0. Allocates nothing.
Status evaluate(const Code& code, uint32_t segment, const InputValue* inputs, const Register* results,
                Register* registers, husk_error* error);

// Both ends belong to it; an end at the limit of int64 stands for "no bound". Floats are always unbounded.
struct Interval {
  int64_t low = INT64_MIN;
  int64_t high = INT64_MAX;

  bool bounded() const { return low != INT64_MIN && high != INT64_MAX; }
};

// The interval of one scalar op, from those of its operands in `known` (indexed by register). `dims` are the ranges of all
// inputs' dimensions, one input after the other, if they are others than the file's.
Interval interval(const Code& code, uint32_t index, const Interval* known, const Interval* dims = nullptr);

// Those of all registers of a variant, as a later segment sees them: a segment that is skipped leaves zeros.
void find_intervals(const Code& code, const Interval* dims, Interval* out);

}  // namespace husk
