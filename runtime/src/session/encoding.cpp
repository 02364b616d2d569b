#include "session/encoding.h"

#include <husk/detail/dtype.h>

#include "base/halves.h"

namespace husk::runtime {

Register decode(uint8_t dtype, uint64_t bits) {
  Register r;
  switch (dtype) {
    case HUSK_BOOL: r.i = (bits & 0xFF) != 0; break;
    case HUSK_F16: r.f = from_half(static_cast<uint16_t>(bits)); break;
    case HUSK_BF16: r.f = from_bfloat16(static_cast<uint16_t>(bits)); break;
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
           : dtype == HUSK_BF16 ? to_bfloat16(single)
                                : bits_of(single);
    return true;
  }
  if (dtype == HUSK_BOOL) *out = value.i != 0;
  return dtype == HUSK_BOOL || decode(dtype, *out).i == value.i;
}

}  // namespace husk::runtime
