#include "model/interval.h"

#include <husk/husk.h>

#include "base/limits.h"
#include "model/integer.h"

namespace husk {
namespace {

// The ends of intervals. A sum that leaves int64 means that there is no bound.
int64_t add_low(int64_t a, int64_t b) {
  int64_t sum;
  return a == INT64_MIN || b == INT64_MIN || __builtin_add_overflow(a, b, &sum) ? INT64_MIN : sum;
}
int64_t add_high(int64_t a, int64_t b) {
  int64_t sum;
  return a == INT64_MAX || b == INT64_MAX || __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}
int64_t negate(int64_t a) { return a == INT64_MIN ? INT64_MAX : a == INT64_MAX ? INT64_MIN : -a; }

Interval add(Interval x, Interval y) { return {add_low(x.low, y.low), add_high(x.high, y.high)}; }
Interval negate(Interval x) { return {negate(x.high), negate(x.low)}; }

// A missing bound times 0 is 0, because it stands for a number.
int64_t times(int64_t a, int64_t b) {
  int64_t product;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}

int64_t lower(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t higher(int64_t a, int64_t b) { return a > b ? a : b; }

// Interval of a function that is monotonic in each operand: the extremes lie at the interval ends.
Interval monotonic(Interval x, Interval y, int64_t (*of)(int64_t, int64_t)) {
  Interval out = {INT64_MAX, INT64_MIN};
  for (int i = 0; i < 4; ++i) {
    const int64_t end = of(i & 1 ? x.low : x.high, i & 2 ? y.low : y.high);
    out = {lower(out.low, end), higher(out.high, end)};
  }
  return out;
}

int64_t divide(int64_t a, int64_t b, bool up) {  // b > 0
  if (a == INT64_MIN || a == INT64_MAX) return a;
  if (b == INT64_MAX) return up ? a > 0 : -(a < 0);
  return floor_div(a, b) + (up && a % b != 0);
}

int64_t divide_down(int64_t a, int64_t b) { return divide(a, b, false); }
int64_t divide_up(int64_t a, int64_t b) { return divide(a, b, true); }

// The interval of op_range is empty if no value passes it: its low end is above its high end.
bool is_divisor(Interval y) { return y.low > 0 && y.high > 0; }

Interval modulo(Interval x, Interval y) {
  if (y.low <= 0) return {};
  if (x.low >= 0 && x.high < y.low) return x;
  return {0, y.high == INT64_MAX ? (x.low >= 0 ? x.high : INT64_MAX) : y.high - 1};
}

Interval power(Interval x, Interval y) {
  int64_t low, high;
  if (x.low < 0 || y.low < 0 || power_overflows(x.low, y.low, &low)) return {};
  if (x.high == INT64_MAX || y.high == INT64_MAX || power_overflows(x.high, y.high, &high))
    high = INT64_MAX;
  if (x.low == 0) low = 0;
  if (x.high == 0 && high < 1) high = 1;  // 0 to the power of 0
  return {low, high};
}

Interval decide(bool always, bool never) {
  return always ? Interval{1, 1} : never ? Interval{0, 0} : Interval{0, 1};
}

bool is_true(Interval x) { return x.low > 0 || x.high < 0; }
bool is_false(Interval x) { return x.low == 0 && x.high == 0; }
bool is_equal(Interval x, Interval y) {
  return x.low == x.high && y.low == y.high && x.low == y.low;
}
bool is_apart(Interval x, Interval y) { return x.high < y.low || y.high < x.low; }

// Returns the range of a dimension of an input. An integer input has one dimension, or none.
Interval range_of(const Code& code, uint32_t input, uint32_t dim, const Interval* dims) {
  const fb::Value* value = code.input(input);
  if (dim >= count(value->dims())) return {};
  if (!dims) return {value->dims()->Get(dim)->min(), value->dims()->Get(dim)->max()};
  return dims[size_t{input} * limits::kMaxRank + dim];
}

// Returns a number with all bits that numbers from 0 to `high` may have.
int64_t mask(int64_t high) {
  return high <= 0 ? 0 : INT64_MAX >> __builtin_clzll(static_cast<uint64_t>(high)) << 1 | 1;
}

Interval bits(Interval x, Interval y, bool both) {
  if (x.low < 0 || y.low < 0) return {};
  if (both) return {0, x.high < y.high ? x.high : y.high};
  return {0, mask(x.high | y.high)};
}

}  // namespace

Interval interval(const Code& code, uint32_t index, const Interval* known, const Interval* dims) {
  const fb::Instruction& op = code.scalars[index];
  const auto kind = static_cast<Scalar>(op.op());
  // Operand intervals. INT64_MAX as a lower end, or INT64_MIN as an upper end, is a value and not a
  // missing bound; it is moved by one, so that the rules below do not confuse the two.
  auto widen = [&](uint32_t reg) {
    const Interval i = known[reg];
    return Interval{i.low == INT64_MAX ? INT64_MAX - 1 : i.low,
                    i.high == INT64_MIN ? INT64_MIN + 1 : i.high};
  };
  Interval x, y, z;
  if (kind >= Scalar::op_add && kind < Scalar::op_check) {
    x = widen(op.a());
    y = widen(op.b());
    z = widen(op.c());
  }
  switch (kind) {
    case Scalar::op_const: return {immediate(op), immediate(op)};
    case Scalar::op_input: {
      const Interval range = range_of(code, op.a(), 0, dims);
      return code.input(op.a())->kind() == HUSK_VALUE_BOOL ? Interval{0, 1} : range;
    }
    case Scalar::op_size: return range_of(code, op.a(), op.b(), dims);
    case Scalar::op_bit_and: return bits(x, y, true);
    case Scalar::op_bit_or:
    case Scalar::op_bit_xor: return bits(x, y, false);
    case Scalar::op_shr: return {lower(x.low, 0), higher(x.high, 0)};
    case Scalar::op_add: return add(x, y);
    case Scalar::op_sub: return add(x, negate(y));
    case Scalar::op_mul: return monotonic(x, y, times);
    case Scalar::op_floordiv: return is_divisor(y) ? monotonic(x, y, divide_down) : Interval{};
    case Scalar::op_cdiv: return is_divisor(y) ? monotonic(x, y, divide_up) : Interval{};
    case Scalar::op_mod: return modulo(x, y);
    case Scalar::op_min: return {lower(x.low, y.low), lower(x.high, y.high)};
    case Scalar::op_max: return {higher(x.low, y.low), higher(x.high, y.high)};
    case Scalar::op_pow: return power(x, y);
    case Scalar::op_eq: return decide(is_equal(x, y), is_apart(x, y));
    case Scalar::op_ne: return decide(is_apart(x, y), is_equal(x, y));
    case Scalar::op_lt: return decide(x.high < y.low, x.low >= y.high);
    case Scalar::op_le: return decide(x.high <= y.low, x.low > y.high);
    case Scalar::op_and: return decide(is_true(x) && is_true(y), is_false(x) || is_false(y));
    case Scalar::op_or: return decide(is_true(x) || is_true(y), is_false(x) && is_false(y));
    case Scalar::op_not: return decide(is_false(x), is_true(x));
    case Scalar::op_select:
      return is_true(x)    ? y
             : is_false(x) ? z
                           : Interval{lower(y.low, z.low), higher(y.high, z.high)};
    case Scalar::op_range: return {higher(x.low, y.low), lower(x.high, z.high)};
    case Scalar::op_feq:
    case Scalar::op_flt:
    case Scalar::op_fle: return {0, 1};
    default: return {};  // strides, results, floats, shl have no known bounds
  }
}

void find_intervals(const Code& code, const Interval* dims, Interval* out) {
  for (const fb::Segment& segment : code.segments) {
    for (uint32_t r = segment.scalar_begin(); r < segment.scalar_end(); ++r)
      out[r] = interval(code, r, out, dims);
    if (segment.when() == kNone) continue;
    for (uint32_t r = segment.scalar_begin(); r < segment.scalar_end(); ++r) {
      if (out[r].low > 0) out[r].low = 0;
      if (out[r].high < 0) out[r].high = 0;
    }
  }
}

}  // namespace husk
