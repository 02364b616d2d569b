#include "session/encoding.h"

#include <cstring>

#include <husk/detail/dtype.h>

namespace husk::runtime {
namespace {

uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

uint16_t to_half(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00);  // NaN
  if (magnitude >= 0x477FF000)
    return static_cast<uint16_t>(sign | 0x7C00);  // 65520 and above round to infinity
  if (magnitude < 0x38800000) {                   // subnormal: units of 2^-24
    float units = value < 0 ? -value : value;
    units *= 16777216.0f;
    uint32_t whole = static_cast<uint32_t>(units);
    const float rest = units - static_cast<float>(whole);
    whole += rest > 0.5f || (rest == 0.5f && (whole & 1));
    return static_cast<uint16_t>(sign | whole);
  }
  const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

uint16_t to_bfloat(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

double from_half(uint64_t bits) {
  const uint32_t magnitude = bits & 0x7FFF;
  uint32_t word = (magnitude << 13) + 0x38000000;  // the exponent's bias becomes that of a float
  if (magnitude >= 0x7C00) word += 0x38000000;     // infinity, NaN
  const double value = magnitude < 0x400 ? magnitude * 0x1p-24 : float_of(word);
  return bits & 0x8000 ? -value : value;
}

}  // namespace

Register decode(uint8_t dtype, uint64_t bits) {
  Register r;
  switch (dtype) {
    case HUSK_BOOL: r.i = (bits & 0xFF) != 0; break;
    case HUSK_F16: r.f = from_half(bits); break;
    case HUSK_BF16: r.f = float_of(static_cast<uint32_t>(bits << 16)); break;
    case HUSK_F32: r.f = float_of(static_cast<uint32_t>(bits)); break;
    default: {  // an int, or a double as it is
      const detail::Dtype& type = detail::kDtypes[dtype];
      const int unused = 64 - 8 * type.bytes;
      bits <<= unused;
      r.i = type.kind == detail::DtypeKind::Signed ? static_cast<int64_t>(bits) >> unused
                                                   : static_cast<int64_t>(bits >> unused);
    }
  }
  return r;
}

bool encode(uint8_t dtype, Register value, uint64_t* out) {
  *out = static_cast<uint64_t>(value.i);
  if (dtype == HUSK_F64) return true;
  if (dtype >= HUSK_F16 && dtype <= HUSK_F32) {
    const float single = static_cast<float>(value.f);
    *out = dtype == HUSK_F16    ? to_half(single)
           : dtype == HUSK_BF16 ? to_bfloat(single)
                                : bits_of(single);
    return true;
  }
  if (dtype == HUSK_BOOL) *out = value.i != 0;
  return dtype == HUSK_BOOL || decode(dtype, *out).i == value.i;
}

}  // namespace husk::runtime
