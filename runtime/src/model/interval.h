// Scalar ops, computed with the ranges that the values of all runs keep to.
#pragma once

#include "model/evaluate.h"

namespace husk {

// Both ends belong to the interval. A lower end of INT64_MIN and an upper end of INT64_MAX mean
// that there is no bound. Floats have no bounds.
struct Interval {
  int64_t low = INT64_MIN;
  int64_t high = INT64_MAX;

  bool bounded() const { return low != INT64_MIN && high != INT64_MAX; }
};

// Returns the interval of one scalar op, from the intervals of its operands in `known` (by
// register). `dims` are the ranges of the inputs' dimensions, limits::kMaxRank places for each
// input; null stands for the ranges of the file.
Interval interval(const Code& code, uint32_t index, const Interval* known,
                  const Interval* dims = nullptr);

// Writes the intervals of all registers of a variant. A later segment reads zeros from a segment
// that did not run, so the intervals of segments with a condition contain 0.
void find_intervals(const Code& code, const Interval* dims, Interval* out);

}  // namespace husk
