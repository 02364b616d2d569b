// Floats of 8 bits (OCP MX and the "fnuz" variants of them), to and from f32.
#ifndef HUSK_HOST_EIGHT_H
#define HUSK_HOST_EIGHT_H

#include "element.h"

namespace husk::host {
namespace {

struct EightBits {
  int32_t dtype;
  int fraction;        // bits of it; the exponent has 7 less these
  int bias;
  bool infinite;       // the highest exponent holds infinities and NaNs; else only numbers but one NaN
  bool unsigned_zero;  // "fnuz": -0 is the only NaN
};

inline const EightBits* eight_bits(int32_t dtype) {
  static constexpr EightBits all[] = {{HUSK_F8E4M3FN, 3, 7, false, false}, {HUSK_F8E5M2, 2, 15, true, false},
                                      {HUSK_F8E4M3FNUZ, 3, 8, false, true}, {HUSK_F8E5M2FNUZ, 2, 16, false, true}};
  for (const EightBits& format : all) {
    if (format.dtype == dtype) return &format;
  }
  return nullptr;
}

inline float eight_decode(const EightBits& f, uint8_t byte) {
  const uint32_t sign = static_cast<uint32_t>(byte & 0x80) << 24, rest = byte & 0x7f;
  const uint32_t nan = sign | 0x7fc00000;
  if (f.unsigned_zero && byte == 0x80) return bits_as<float>(0xffc00000u);
  if (!f.unsigned_zero && !f.infinite && rest == 0x7f) return bits_as<float>(nan);
  if (f.infinite && rest >> f.fraction == 0x7fu >> f.fraction) {
    return bits_as<float>(rest & ((1u << f.fraction) - 1) ? nan : sign | 0x7f800000);
  }
  const int exponent = static_cast<int>(rest >> f.fraction);
  const uint32_t fraction = rest & ((1u << f.fraction) - 1);
  // The value is a whole number of the smallest steps of its exponent.
  const uint32_t whole = exponent ? fraction | 1u << f.fraction : fraction;
  const int scale = (exponent ? exponent : 1) - f.bias - f.fraction;
  const float value = static_cast<float>(whole) * bits_as<float>(static_cast<uint32_t>(scale + 127) << 23);
  return sign ? -value : value;
}

// To nearest, ties to even; what is too large becomes infinity, or NaN where there is none.
inline uint8_t eight_encode(const EightBits& f, float value) {
  const uint32_t bits = bits_as<uint32_t>(value);
  const uint8_t sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t infinity = 0x7fu >> f.fraction << f.fraction;
  const uint32_t most = f.infinite ? infinity - 1 : f.unsigned_zero ? 0x7f : 0x7e;
  const uint8_t nan = f.unsigned_zero ? 0x80 : static_cast<uint8_t>(sign | 0x7f);
  if (magnitude > 0x7f800000) return nan;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  int kept = 23 - f.fraction;                      // bits that are rounded away
  uint32_t whole = (magnitude & 0x7fffff) | 0x800000;
  uint32_t code;
  if (exponent >= 1 - f.bias) {
    code = (static_cast<uint32_t>(exponent + f.bias) << 23 | (magnitude & 0x7fffff)) >> kept;
  } else {
    kept += 1 - f.bias - exponent;
    if (kept > 25 || magnitude < 0x00800000) return f.unsigned_zero ? 0 : sign;
    code = whole >> kept;
  }
  const uint32_t rest = whole & ((1u << kept) - 1), half = 1u << (kept - 1);
  code += rest > half || (rest == half && (code & 1));
  if (magnitude == 0x7f800000 || code > most) return f.infinite ? static_cast<uint8_t>(sign | infinity) : nan;
  return code == 0 && f.unsigned_zero ? 0 : static_cast<uint8_t>(sign | code);
}

}  // namespace
}  // namespace husk::host

#endif
