/** @file
 * The encoding of the floats among the element types, for the sources of the compiler, of its tools
 * and of the ports. The header is private. C++17. */
#ifndef HUSK_DETAIL_FLOAT_FORMAT_H
#define HUSK_DETAIL_FLOAT_FORMAT_H

#include <husk/types.h>

namespace husk::detail {

/** Which codes of a float are special: dtypes.def explains the values under HUSK_FLOAT. */
enum class FloatSpecial : uint8_t { Infinities, OneNan, OneZero };

/** The bits of a float below its sign, or of each part of a complex number. */
struct FloatFormat {
  int32_t dtype;
  int exponent, fraction, bias;
  FloatSpecial special;

  constexpr bool infinities() const { return special == FloatSpecial::Infinities; }
  constexpr bool one_zero() const { return special == FloatSpecial::OneZero; }
  /** The bits of an element that is a float. */
  constexpr int bits() const { return 1 + exponent + fraction; }
};

/** The formats in the order of dtypes.def. */
inline constexpr FloatFormat kFloatFormats[] = {
#define HUSK_FLOAT(NAME, exponent, fraction, bias, special) \
  {HUSK_##NAME, exponent, fraction, bias, FloatSpecial::special},
#include "dtypes.def"
};

/** The format of a dtype; null if its elements are no floats and have no parts that are. */
constexpr const FloatFormat* float_format(int32_t dtype) {
  for (const FloatFormat& format : kFloatFormats)
    if (format.dtype == dtype) return &format;
  return nullptr;
}

}  // namespace husk::detail

#endif
