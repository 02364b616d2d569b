// Arithmetic on sizes, offsets and counts that a file chooses. Each function writes the exact
// result to `out` and returns true. It returns false if an int64_t cannot hold the result; `out` is
// then undefined.
//
// The product of the sizes of one tensor fits (Arguments::check_tensor), and so does an offset of
// an element. All other sums and products of arguments use these functions: a stride of 0 makes
// every size legal, so the product of the sizes of two tensors need not fit.
#pragma once

#include <cstdint>

namespace husk::host {
namespace {

[[nodiscard]] inline bool checked_add(int64_t a, int64_t b, int64_t& out) {
  return !__builtin_add_overflow(a, b, &out);
}

[[nodiscard]] inline bool checked_subtract(int64_t a, int64_t b, int64_t& out) {
  return !__builtin_sub_overflow(a, b, &out);
}

[[nodiscard]] inline bool checked_multiply(int64_t a, int64_t b, int64_t& out) {
  return !__builtin_mul_overflow(a, b, &out);
}

// The product of `count` sizes, none of which is negative. A size of 0 makes it 0, whatever the
// other sizes are.
[[nodiscard]] inline bool checked_product(const int64_t* sizes, int32_t count, int64_t& out) {
  for (int32_t d = 0; d < count; ++d) {
    if (sizes[d] == 0) {
      out = 0;
      return true;
    }
  }
  out = 1;
  for (int32_t d = 0; d < count; ++d)
    if (!checked_multiply(out, sizes[d], out)) return false;
  return true;
}

// Converts a double to an integer and drops its fraction. NaN and infinities do not fit.
[[nodiscard]] inline bool checked_int(double value, int64_t& out) {
  if (!(value >= -0x1p63 && value < 0x1p63)) return false;
  out = static_cast<int64_t>(value);
  return true;
}

}  // namespace
}  // namespace husk::host
