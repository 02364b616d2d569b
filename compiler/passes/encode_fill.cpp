// Floats are rounded to nearest even, as IEEE 754 defines it. dtypes.def has their formats.
#include "passes/encode_fill.h"

#include <bit>
#include <cmath>

#include <husk/detail/dtype.h>
#include <husk/detail/float_format.h>

#include "ir/compile_error.h"
#include "ir/op_table.h"

namespace husk::compiler {
namespace {

using detail::FloatFormat;

// The bits of NaN.
uint64_t not_a_number(const FloatFormat& f) {
  if (f.one_zero()) return 1ull << (f.exponent + f.fraction);
  if (!f.infinities()) return (1ull << (f.exponent + f.fraction)) - 1;
  return ((1ull << (f.exponent + 1)) - 1) << (f.fraction - 1);
}

// The bits of the largest finite number without the sign.
uint64_t largest(const FloatFormat& f) {
  const uint64_t all = (1ull << (f.exponent + f.fraction)) - 1;
  if (f.infinities()) return all - (1ull << f.fraction);
  return f.one_zero() ? all : all - 1;
}

// Encodes `value` in `out`; false if the value is too large for the format.
bool encode(double value, const FloatFormat& f, uint64_t* out) {
  const uint64_t sign = std::signbit(value) ? 1ull << (f.exponent + f.fraction) : 0;
  if (std::isnan(value)) return *out = not_a_number(f), true;
  if (std::isinf(value)) return *out = sign | (largest(f) + 1), f.infinities();
  const double size = std::fabs(value);
  if (size == 0) return *out = f.one_zero() ? 0 : sign, true;
  int exponent = std::max(std::ilogb(size), 1 - f.bias);
  // The value in units of the last place. If it rounds up to the next power of two, the carry
  // increments the exponent.
  const double units = std::nearbyint(std::ldexp(size, f.fraction - exponent));
  const auto fraction = static_cast<uint64_t>(units);
  const uint64_t implied = 1ull << f.fraction;
  const uint64_t pattern = fraction < implied
                               ? fraction
                               : (static_cast<uint64_t>(exponent + f.bias) << f.fraction) +
                                     (fraction - implied);
  *out = pattern ? sign | pattern : (f.one_zero() ? 0 : sign);
  return pattern <= largest(f);
}

bool fits(int64_t value, husk_dtype dtype) {
  if (dtype == HUSK_BOOL) return value == 0 || value == 1;
  const bool has_sign = detail::element_kind(dtype) == detail::DtypeKind::Signed;
  const uint32_t bits = dtype_bytes(dtype) * 8;
  if (!has_sign) return value >= 0 && (bits == 64 || value < int64_t{1} << bits);
  return bits == 64 || (value >= -(int64_t{1} << (bits - 1)) && value < int64_t{1} << (bits - 1));
}

}  // namespace

uint64_t encode_fill(const State& state) {
  const Expr& literal = state.fill;
  const bool whole = literal.kind == ExprKind::integer;
  if (is_int_dtype(state.dtype)) {
    if (!whole || !fits(literal.integer, state.dtype))
      fail(literal.place, "state '{}' is {}: this is not a number of that type", state.name.text,
           dtype_name(state.dtype));
    const uint32_t bits = dtype_bytes(state.dtype) * 8;
    const auto value = static_cast<uint64_t>(literal.integer);
    return bits == 64 ? value : value & ((1ull << bits) - 1);
  }
  const double value = whole ? static_cast<double>(literal.integer)
                             : std::bit_cast<double>(literal.bits);
  if (state.dtype == HUSK_C128 && (value != 0 || std::signbit(value)))
    fail(literal.place, "a state of c128 is filled with 0 or made from a constant");
  uint64_t bits = 0;
  if (!encode(value, *detail::float_format(state.dtype), &bits))
    fail(literal.place, "{} is too large for {}", value, dtype_name(state.dtype));
  return bits;
}

}  // namespace husk::compiler
