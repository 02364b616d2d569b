// Floats of 16 bits, and the bits of floats.
#pragma once

#include <cstdint>
#include <cstring>

namespace husk {

inline float float_of(uint32_t bits) {
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

inline uint32_t bits_of(float number) {
  uint32_t result;
  memcpy(&result, &number, sizeof result);
  return result;
}

inline float from_bfloat16(uint16_t bits) { return float_of(uint32_t{bits} << 16); }

// Rounds to the nearest number, and to an even one between two.
inline uint16_t to_bfloat16(float number) {
  const uint32_t bits = bits_of(number);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>(bits >> 16 | 0x40);  // NaN
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline float from_half(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16, rest = bits & 0x7FFFu;
  if (rest >= 0x7C00) return float_of(sign | 0x7F800000 | (rest & 0x3FF) << 13);
  // The exponent of a float is larger by 112, which also makes small numbers normal.
  return float_of(sign | bits_of(float_of(rest << 13) * 0x1p112f));
}

// Rounds as to_bfloat16; a number that is too large becomes infinity.
inline uint16_t to_half(float number) {
  const uint32_t bits = bits_of(number), rest = bits & 0x7FFFFFFF;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (rest > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00);
  if (rest >= 0x47800000) return static_cast<uint16_t>(sign | 0x7C00);  // 65536 and more
  // Below the normal numbers, the sum with 0.5 has the digits at its end, rounded.
  if (rest < 0x38800000) {
    return static_cast<uint16_t>(sign | (bits_of(float_of(rest) + 0.5f) - bits_of(0.5f)));
  }
  return static_cast<uint16_t>(sign | (rest - 0x38000000 + 0xFFF + (rest >> 13 & 1)) >> 13);
}

}  // namespace husk
