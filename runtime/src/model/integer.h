// Integer operations that scalar ops and their intervals have in common.
#pragma once

#include <cstdint>

namespace husk {

// Division that rounds towards minus infinity. `b` is not 0, and not -1 if `a` is INT64_MIN.
inline int64_t floor_div(int64_t a, int64_t b) {
  return a / b - ((a % b != 0) & ((a < 0) != (b < 0)));
}

// Writes `base` to the power of `exponent`. Returns true on overflow.
inline bool power_overflows(int64_t base, int64_t exponent, int64_t* out) {
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return true;
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return true;
  }
  *out = result;
  return false;
}

}  // namespace husk
