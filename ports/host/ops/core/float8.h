// Conversion of 8-bit floats (the OCP formats and their "fnuz" variants) from and to f32.
#pragma once

#include <husk/detail/float_format.h>

#include "core/element.h"

namespace husk::host {
namespace {

using Float8Format = detail::FloatFormat;

// The format of a dtype; null if the dtype is not an 8-bit float.
inline const Float8Format* float8_format(int32_t dtype) {
  const Float8Format* format = detail::float_format(dtype);
  return format && format->bits() == 8 ? format : nullptr;
}

inline float float8_decode(const Float8Format& f, uint8_t byte) {
  const uint32_t sign = static_cast<uint32_t>(byte & 0x80) << 24, rest = byte & 0x7f;
  const uint32_t nan = sign | 0x7fc00000;
  if (f.one_zero() && byte == 0x80) return bits_as<float>(0xffc00000u);
  if (!f.one_zero() && !f.infinities() && rest == 0x7f) return bits_as<float>(nan);
  if (f.infinities() && rest >> f.fraction == 0x7fu >> f.fraction)
    return bits_as<float>(rest & ((1u << f.fraction) - 1) ? nan : sign | 0x7f800000);
  const int exponent = static_cast<int>(rest >> f.fraction);
  const uint32_t fraction = rest & ((1u << f.fraction) - 1);
  // The value is an integer multiple of the step size of its exponent.
  const uint32_t whole = exponent ? fraction | 1u << f.fraction : fraction;
  const int scale = (exponent ? exponent : 1) - f.bias - f.fraction;
  const float value = static_cast<float>(whole) *
                      bits_as<float>(static_cast<uint32_t>(scale + 127) << 23);
  return sign ? -value : value;
}

// Rounds to nearest, ties to even. A value that is too large becomes infinity, or NaN in a format
// without infinities.
inline uint8_t float8_encode(const Float8Format& f, float value) {
  const uint32_t bits = bits_as<uint32_t>(value);
  const uint8_t sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t infinity = 0x7fu >> f.fraction << f.fraction;
  const uint32_t max_code = f.infinities() ? infinity - 1 : f.one_zero() ? 0x7f : 0x7e;
  const uint8_t nan = f.one_zero() ? 0x80 : static_cast<uint8_t>(sign | 0x7f);
  if (magnitude > 0x7f800000) return nan;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  int dropped = 23 - f.fraction;  // fraction bits that are rounded away
  uint32_t whole = (magnitude & 0x7fffff) | 0x800000;
  uint32_t code;
  if (exponent >= 1 - f.bias) {
    code = (static_cast<uint32_t>(exponent + f.bias) << 23 | (magnitude & 0x7fffff)) >> dropped;
  } else {
    dropped += 1 - f.bias - exponent;
    if (dropped > 25 || magnitude < 0x00800000) return f.one_zero() ? 0 : sign;
    code = whole >> dropped;
  }
  const uint32_t rest = whole & ((1u << dropped) - 1), half = 1u << (dropped - 1);
  code += rest > half || (rest == half && (code & 1));
  if (magnitude == 0x7f800000 || code > max_code)
    return f.infinities() ? static_cast<uint8_t>(sign | infinity) : nan;
  return code == 0 && f.one_zero() ? 0 : static_cast<uint8_t>(sign | code);
}

}  // namespace
}  // namespace husk::host
