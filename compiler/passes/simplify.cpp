// Identities that hold for all values of the operands. No identity makes an op fail that would
// succeed without it; some make an op succeed that would fail, which HIR.md allows.
#include "ir/tree.h"
#include "passes/registers.h"

namespace husk::compiler {

std::optional<uint32_t> Registers::simplify_int(Scalar kind, uint32_t a, uint32_t b) {
  switch (kind) {
    case Scalar::op_add:
    case Scalar::op_sub:
    case Scalar::op_mul: return simplify_sum(kind, a, b);
    case Scalar::op_floordiv:
    case Scalar::op_cdiv:
    case Scalar::op_mod: return simplify_quotient(kind, a, b);
    case Scalar::op_pow:
      if (is_value(b, 0)) return integer(1);
      if (is_value(b, 1)) return a;
      return std::nullopt;
    case Scalar::op_min:
      if (a == b || ranges_[a].high <= ranges_[b].low) return a;
      if (ranges_[b].high <= ranges_[a].low) return b;
      return std::nullopt;
    case Scalar::op_max:
      if (a == b || ranges_[a].low >= ranges_[b].high) return a;
      if (ranges_[b].low >= ranges_[a].high) return b;
      return std::nullopt;
    case Scalar::op_bit_and:
    case Scalar::op_bit_or:
    case Scalar::op_bit_xor:
    case Scalar::op_shl:
    case Scalar::op_shr: return simplify_bits(kind, a, b);
    default: return simplify_logic(kind, a, b);
  }
}

std::optional<uint32_t> Registers::simplify_bits(Scalar kind, uint32_t a, uint32_t b) {
  if (a == b && (kind == Scalar::op_bit_and || kind == Scalar::op_bit_or)) return a;
  if (a == b && kind == Scalar::op_bit_xor) return integer(0);
  const auto y = constant(b);
  if (y == 0) return kind == Scalar::op_bit_and ? b : a;
  if (y == -1 && kind == Scalar::op_bit_and) return a;
  // A product or a quotient has a tighter range than a shift, and equals other such expressions.
  if (!y || *y < 0 || *y > 62) return std::nullopt;
  if (kind == Scalar::op_shl) return mul(a, integer(int64_t{1} << *y));
  if (kind == Scalar::op_shr) return op(Scalar::op_floordiv, {}, a, integer(int64_t{1} << *y));
  return std::nullopt;
}

std::optional<uint32_t> Registers::simplify_sum(Scalar kind, uint32_t a, uint32_t b) {
  const auto y = constant(b);
  if (kind == Scalar::op_sub) {
    if (a == b) return integer(0);
    if (y && *y != INT64_MIN) return add(a, integer(-*y));
    // (x + y) - x
    if (is(a, Scalar::op_add) && ops_[a].a() == b) return ops_[a].b();
    if (is(a, Scalar::op_add) && ops_[a].b() == b) return ops_[a].a();
    return std::nullopt;
  }
  if (!y) return kind == Scalar::op_mul ? move_constant_out(a, b) : std::nullopt;
  if (*y == (kind == Scalar::op_add ? 0 : 1)) return a;
  // (x + p) + q and (x * p) * q become one op unless p and q combined leave int64.
  if (!is(a, kind)) return std::nullopt;
  const uint32_t inner = ops_[a].a();
  const auto x = constant(ops_[a].b());
  int64_t joined;
  if (!x) return std::nullopt;
  if (kind == Scalar::op_add ? __builtin_add_overflow(*x, *y, &joined)
                             : __builtin_mul_overflow(*x, *y, &joined))
    return std::nullopt;
  return op(kind, {}, inner, integer(joined));
}

// (x * c) * y becomes (x * y) * c, so that equal products have equal keys and their constants can
// be combined. No intermediate product is larger than before.
std::optional<uint32_t> Registers::move_constant_out(uint32_t a, uint32_t b) {
  for (auto [product, other] : {std::pair(a, b), std::pair(b, a)}) {
    if (!is(product, Scalar::op_mul)) continue;
    const uint32_t factor = ops_[product].b(), inner = ops_[product].a();
    if (const auto c = constant(factor); c && *c != 0) return mul(mul(inner, other), factor);
  }
  return std::nullopt;
}

std::optional<uint32_t> Registers::simplify_quotient(Scalar kind, uint32_t a, uint32_t b) {
  const bool is_mod = kind == Scalar::op_mod;
  if (is_mod && ranges_[a].low >= 0 && ranges_[a].high < ranges_[b].low) return a;
  const auto divisor = constant(b);
  if (is_value(b, 1)) return is_mod ? integer(0) : a;
  // (x * p) / q if q divides p.
  if (!divisor || *divisor < 1 || !is(a, Scalar::op_mul)) return std::nullopt;
  const auto factor = constant(ops_[a].b());
  if (!factor || *factor % *divisor != 0) return std::nullopt;
  return is_mod ? integer(0) : mul(ops_[a].a(), integer(*factor / *divisor));
}

std::optional<uint32_t> Registers::simplify_logic(Scalar kind, uint32_t a, uint32_t b) {
  switch (kind) {
    case Scalar::op_eq:
    case Scalar::op_le:
      if (a == b) return integer(1);
      break;
    case Scalar::op_ne:
    case Scalar::op_lt:
      if (a == b) return integer(0);
      if (kind == Scalar::op_ne && is_value(b, 0) && is_bool(a)) return a;
      break;
    case Scalar::op_and:
    case Scalar::op_or: {
      const auto y = constant(b);
      const bool one_decides = y && (*y != 0) == (kind == Scalar::op_or);
      if (one_decides) return integer(kind == Scalar::op_or);
      if ((a == b || y) && is_bool(a)) return a;
      break;
    }
    case Scalar::op_not: {
      const uint32_t x = ops_[a].a(), y = ops_[a].b();
      if (is(a, Scalar::op_not) && is_bool(x)) return x;
      if (is(a, Scalar::op_lt)) return op(Scalar::op_le, {}, y, x);
      if (is(a, Scalar::op_le)) return op(Scalar::op_lt, {}, y, x);
      if (is(a, Scalar::op_eq)) return op(Scalar::op_ne, {}, x, y);
      if (is(a, Scalar::op_ne)) return op(Scalar::op_eq, {}, x, y);
      break;
    }
    default: break;
  }
  return std::nullopt;
}

std::optional<uint32_t> Registers::simplify_choice(Scalar kind, uint32_t a, uint32_t b,
                                                   uint32_t c) {
  const Interval x = ranges_[a];
  if (b == c || x.low > 0 || x.high < 0) return b;
  if (x.low == 0 && x.high == 0) return c;
  if (is(a, Scalar::op_not)) return op(kind, {}, ops_[a].a(), c, b);
  if (kind == Scalar::op_select && is_bool(a) && is_value(b, 1) && is_value(c, 0)) return a;
  return std::nullopt;
}

std::optional<uint32_t> Registers::simplify_float(Scalar kind, uint32_t a, uint32_t b) {
  // Signed zeros and NaN must be preserved: x + 0.0 is not x if x is -0.0.
  switch (kind) {
    case Scalar::op_fmul:
    case Scalar::op_fdiv:
      if (float_constant(b) == 1.0) return a;
      break;
    case Scalar::op_fmin:
    case Scalar::op_fmax:
      if (a == b) return a;
      break;
    default: break;
  }
  return std::nullopt;
}

}  // namespace husk::compiler
