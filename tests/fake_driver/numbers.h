// Numbers of f16, bf16, f32 and f64 in memory, for fakes of libraries that compute on the host in
// double precision.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fake {

enum class Number { f16, bf16, f32, f64 };

inline size_t width(Number type) { return type == Number::f64 ? 8 : type == Number::f32 ? 4 : 2; }

inline double from_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double value = exponent == 31  ? (fraction ? NAN : INFINITY)
                       : exponent == 0 ? ldexp(fraction, -24)
                                       : ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -value : value;
}

inline uint16_t to_half(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = fabs(value);
  if (std::isnan(value)) return 0x7E00;
  if (magnitude >= 65520) return sign | 0x7C00;
  int exponent = 0;
  frexp(magnitude, &exponent);
  const int shift = exponent - 11 < -24 ? -24 : exponent - 11;  // the unit of the last place
  const double units = nearbyint(ldexp(magnitude, -shift));
  if (units < 1024) return static_cast<uint16_t>(sign | static_cast<int>(units));
  return static_cast<uint16_t>(sign + ((shift + 24) << 10) + static_cast<int>(units));
}

inline double load(Number type, const void* from, int64_t index) {
  const char* at = static_cast<const char*>(from) + index * static_cast<int64_t>(width(type));
  uint32_t word = 0;
  float single;
  double wide;
  switch (type) {
    case Number::f64: memcpy(&wide, at, 8); return wide;
    case Number::f32: memcpy(&single, at, 4); return single;
    case Number::f16: memcpy(&word, at, 2); return from_half(static_cast<uint16_t>(word));
    case Number::bf16:
      memcpy(reinterpret_cast<char*>(&word) + 2, at, 2);
      memcpy(&single, &word, 4);
      return single;
  }
  abort();
}

inline void store(Number type, void* to, int64_t index, double value) {
  char* at = static_cast<char*>(to) + index * static_cast<int64_t>(width(type));
  const float single = static_cast<float>(value);
  uint32_t word;
  switch (type) {
    case Number::f64: memcpy(at, &value, 8); return;
    case Number::f32: memcpy(at, &single, 4); return;
    case Number::f16: {
      const uint16_t bits = to_half(single);
      memcpy(at, &bits, 2);
      return;
    }
    case Number::bf16: {
      memcpy(&word, &single, 4);
      word += 0x7FFF + (word >> 16 & 1);
      memcpy(at, reinterpret_cast<const char*>(&word) + 2, 2);
      return;
    }
  }
}

}  // namespace fake
