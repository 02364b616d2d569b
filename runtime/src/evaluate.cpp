#include "evaluate.h"

#include <husk/husk.h>

#include <cmath>
#include <cstdio>
#include <cstring>

namespace husk {
namespace {

// "size of dim 1 of input 'x' (7)", for the text of a failed guard.
struct Description {
  char text[80];
};

Description describe(const Code& code, uint32_t index, const Register* registers) {
  Description out;
  const fb::Instruction& op = code.scalars[index];
  const long long value = registers[index].i;
  switch (static_cast<Scalar>(op.op())) {
    case Scalar::op_size:
    case Scalar::op_stride:
      snprintf(out.text, sizeof(out.text), "%s %u of input '%.32s' (%lld)",
               static_cast<Scalar>(op.op()) == Scalar::op_size ? "size" : "stride", op.b(),
               code.input(op.a())->name()->c_str(), value);
      break;
    case Scalar::op_input:
      snprintf(out.text, sizeof(out.text), "input '%.32s' (%lld)", code.input(op.a())->name()->c_str(), value);
      break;
    default: snprintf(out.text, sizeof(out.text), "%lld", value);
  }
  return out;
}

int64_t floor_div(int64_t a, int64_t b) { return a / b - ((a % b != 0) & ((a < 0) != (b < 0))); }

bool power(int64_t base, int64_t exponent, int64_t* out) {  // true on overflow
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return true;
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return true;
  }
  *out = result;
  return false;
}

// Without the C library's functions for it, which would be four more symbols to bind. True if the value is outside int64 or no
// number. What is large enough to lie on the edge of int64 is whole.
bool from_float(Scalar how, double value, int64_t* out) {
  if (!(value >= -9223372036854775808.0 && value < 9223372036854775808.0)) return true;
  int64_t whole = static_cast<int64_t>(value);
  if (how != Scalar::op_trunc && static_cast<double>(whole) > value) --whole;   // floor
  const double rest = value - static_cast<double>(whole);
  if ((how == Scalar::op_ceil && rest > 0) || (how == Scalar::op_round && (rest > 0.5 || (rest == 0.5 && whole & 1)))) ++whole;
  *out = whole;
  return false;
}

Status overflow(uint32_t index, husk_error* error) {
  return refuse(error, "size arithmetic leaves int64 (or divides by zero) at register %%%u: the inputs are too "
              "large", index);
}

Status failed_guard(const Code& code, const fb::Instruction& op, const Register* r, husk_error* error) {
  const auto kind = static_cast<Scalar>(op.op());
  const char* text = code.text(kind == Scalar::op_check ? op.b() : op.c());
  const char* colon = *text ? ": " : "";
  if (kind == Scalar::op_check)
    return refuse(error, "%s%scheck failed", text, colon);
  return refuse(error, "%s%s%s must %s %s", text, colon, describe(code, op.a(), r).text,
              kind == Scalar::op_check_eq ? "equal" : "be at most", describe(code, op.b(), r).text);
}

Status failed_stride(const Code& code, const fb::Instruction& op, const InputValue& in, int64_t want,
                     husk_error* error) {
  return refuse(error, "stride %u of input '%s' is %lld, must be %lld: pass the memory format that was exported", op.b(),
              code.input(op.a())->name()->c_str(), static_cast<long long>(in.strides[op.b()]), static_cast<long long>(want));
}

// A stride says nothing where the tensor has no two elements along the dimension.
bool stride_matters(const InputValue& in, uint32_t rank, uint32_t dim) {
  for (uint32_t d = 0; d < rank; ++d)
    if (in.sizes[d] == 0) return false;
  return in.sizes[dim] > 1;
}

}  // namespace

Status evaluate(const Code& code, uint32_t segment, const InputValue* inputs, const Register* results, Register* r,
                husk_error* error) {
  const uint32_t end = code.segments[segment].scalar_end();
  for (uint32_t n = code.segments[segment].scalar_begin(); n < end; ++n) {
    const fb::Instruction& op = code.scalars[n];
    const uint32_t a = op.a(), b = op.b(), c = op.c();
    int64_t* out = &r[n].i;
    bool wrong = false;
    switch (static_cast<Scalar>(op.op())) {
      case Scalar::op_const:
      case Scalar::op_fconst: *out = immediate(op); break;
      case Scalar::op_input: *out = inputs[a].i; break;
      case Scalar::op_finput: r[n].f = inputs[a].f; break;
      case Scalar::op_size: *out = inputs[a].sizes[b]; break;
      case Scalar::op_stride: *out = inputs[a].strides[b]; break;
      case Scalar::op_result:
      case Scalar::op_fresult: r[n] = results[a]; break;
      case Scalar::op_bit_and: *out = r[a].i & r[b].i; break;
      case Scalar::op_bit_or: *out = r[a].i | r[b].i; break;
      case Scalar::op_bit_xor: *out = r[a].i ^ r[b].i; break;
      case Scalar::op_shl:
        wrong = r[b].i < 0 || r[b].i > 62 || __builtin_mul_overflow(r[a].i, int64_t{1} << r[b].i, out);
        break;
      case Scalar::op_shr:
        wrong = r[b].i < 0;
        if (!wrong) *out = r[a].i >> (r[b].i < 63 ? r[b].i : 63);
        break;
      case Scalar::op_add: wrong = __builtin_add_overflow(r[a].i, r[b].i, out); break;
      case Scalar::op_sub: wrong = __builtin_sub_overflow(r[a].i, r[b].i, out); break;
      case Scalar::op_mul: wrong = __builtin_mul_overflow(r[a].i, r[b].i, out); break;
      case Scalar::op_floordiv:
      case Scalar::op_mod:
      case Scalar::op_cdiv: {
        const int64_t x = r[a].i, y = r[b].i;
        if ((wrong = y == 0 || (x == INT64_MIN && y == -1))) break;
        const auto kind = static_cast<Scalar>(op.op());
        if (kind == Scalar::op_mod) {
          *out = x % y;
          if (*out != 0 && (*out < 0) != (y < 0)) *out += y;  // towards minus infinity, without a product that overflows
        } else {
          *out = floor_div(x, y) + (kind == Scalar::op_cdiv && x % y != 0);
        }
        break;
      }
      case Scalar::op_min: *out = r[a].i < r[b].i ? r[a].i : r[b].i; break;
      case Scalar::op_max: *out = r[a].i > r[b].i ? r[a].i : r[b].i; break;
      case Scalar::op_pow: wrong = r[b].i < 0 || power(r[a].i, r[b].i, out); break;
      case Scalar::op_eq: *out = r[a].i == r[b].i; break;
      case Scalar::op_ne: *out = r[a].i != r[b].i; break;
      case Scalar::op_lt: *out = r[a].i < r[b].i; break;
      case Scalar::op_le: *out = r[a].i <= r[b].i; break;
      case Scalar::op_and: *out = r[a].i && r[b].i; break;
      case Scalar::op_or: *out = r[a].i || r[b].i; break;
      case Scalar::op_not: *out = !r[a].i; break;
      case Scalar::op_select:
      case Scalar::op_fselect: r[n] = r[a].i ? r[b] : r[c]; break;
      case Scalar::op_range:
        *out = r[a].i;
        if (r[a].i < r[b].i || r[a].i > r[c].i)
          return refuse(error, "%s is outside %lld..%lld, the range that was exported",
                      describe(code, a, r).text, static_cast<long long>(r[b].i), static_cast<long long>(r[c].i));
        break;
      case Scalar::op_fadd: r[n].f = r[a].f + r[b].f; break;
      case Scalar::op_fsub: r[n].f = r[a].f - r[b].f; break;
      case Scalar::op_fmul: r[n].f = r[a].f * r[b].f; break;
      case Scalar::op_fdiv: r[n].f = r[a].f / r[b].f; break;
      case Scalar::op_fmin: r[n].f = r[a].f < r[b].f ? r[a].f : r[b].f; break;
      case Scalar::op_fmax: r[n].f = r[a].f > r[b].f ? r[a].f : r[b].f; break;
      case Scalar::op_feq: *out = r[a].f == r[b].f; break;
      case Scalar::op_flt: *out = r[a].f < r[b].f; break;
      case Scalar::op_fle: *out = r[a].f <= r[b].f; break;
      case Scalar::op_float: r[n].f = static_cast<double>(r[a].i); break;
      case Scalar::op_trunc:
      case Scalar::op_floor:
      case Scalar::op_ceil:
      case Scalar::op_round: wrong = from_float(static_cast<Scalar>(op.op()), r[a].f, out); break;
      case Scalar::op_sqrt: r[n].f = std::sqrt(r[a].f); break;
      case Scalar::op_fpow: r[n].f = std::pow(r[a].f, r[b].f); break;
      case Scalar::op_check:
        if (!r[a].i) return failed_guard(code, op, r, error);
        break;
      case Scalar::op_check_eq:
        if (r[a].i != r[b].i) return failed_guard(code, op, r, error);
        break;
      case Scalar::op_check_le:
        if (r[a].i > r[b].i) return failed_guard(code, op, r, error);
        break;
      case Scalar::op_check_stride:
        if (inputs[a].strides[b] != r[c].i && stride_matters(inputs[a], code.input(a)->rank(), b))
          return failed_stride(code, op, inputs[a], r[c].i, error);
        break;
    }
    if (wrong) return overflow(n, error);
  }
  return Status::ok;
}

namespace {

// Ends saturate: a bound that leaves int64 is no bound.
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

int64_t times(int64_t a, int64_t b) {  // a limit times 0 is 0: a missing bound is still a number
  int64_t product;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}

int64_t lower(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t higher(int64_t a, int64_t b) { return a > b ? a : b; }

// Of what grows or falls with each operand: its extremes are those of the ends.
Interval hull(Interval x, Interval y, int64_t (*of)(int64_t, int64_t)) {
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

Interval modulo(Interval x, Interval y) {
  if (y.low <= 0) return {};
  if (x.low >= 0 && x.high < y.low) return x;
  return {0, y.high == INT64_MAX ? (x.low >= 0 ? x.high : INT64_MAX) : y.high - 1};
}

Interval power(Interval x, Interval y) {
  int64_t low, high;
  if (x.low < 0 || y.low < 0 || power(x.low, y.low, &low)) return {};
  if (x.high == INT64_MAX || y.high == INT64_MAX || power(x.high, y.high, &high)) high = INT64_MAX;
  if (x.low == 0) low = 0;
  if (x.high == 0 && high < 1) high = 1;  // 0 to the power of 0
  return {low, high};
}

Interval decide(bool always, bool never) { return always ? Interval{1, 1} : never ? Interval{0, 0} : Interval{0, 1}; }

bool is_true(Interval x) { return x.low > 0 || x.high < 0; }
bool is_false(Interval x) { return x.low == 0 && x.high == 0; }
bool is_equal(Interval x, Interval y) { return x.low == x.high && y.low == y.high && x.low == y.low; }
bool is_apart(Interval x, Interval y) { return x.high < y.low || y.high < x.low; }

}  // namespace

namespace {

// The range of dimension `dim` of an input; an int has one dimension, or none.
Interval range_of(const Code& code, uint32_t input, uint32_t dim, const Interval* dims) {
  const fb::Value* value = code.input(input);
  if (dim >= count(value->dims())) return {};
  if (!dims) return {value->dims()->Get(dim)->min(), value->dims()->Get(dim)->max()};
  for (uint32_t i = 0; i < input; ++i) dims += count(code.input(i)->dims());
  return dims[dim];
}

// The bits that numbers of 0 … high may have.
int64_t mask(int64_t high) { return high <= 0 ? 0 : INT64_MAX >> __builtin_clzll(static_cast<uint64_t>(high)) << 1 | 1; }

Interval bits(Interval x, Interval y, bool both) {
  if (x.low < 0 || y.low < 0) return {};
  if (both) return {0, x.high < y.high ? x.high : y.high};
  return {0, mask(x.high | y.high)};
}

}  // namespace

Interval interval(const Code& code, uint32_t index, const Interval* known, const Interval* dims) {
  const fb::Instruction& op = code.scalars[index];
  const auto kind = static_cast<Scalar>(op.op());
  // Operands, where the op takes registers. A limit of int64 as the other end is a number, not a missing bound: one step
  // wider, and it looks like none.
  auto widen = [&](uint32_t reg) {
    const Interval i = known[reg];
    return Interval{i.low == INT64_MAX ? INT64_MAX - 1 : i.low, i.high == INT64_MIN ? INT64_MIN + 1 : i.high};
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
    case Scalar::op_mul: return hull(x, y, times);
    case Scalar::op_floordiv: return y.low <= 0 ? Interval{} : hull(x, y, divide_down);
    case Scalar::op_cdiv: return y.low <= 0 ? Interval{} : hull(x, y, divide_up);
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
    case Scalar::op_select: return is_true(x) ? y : is_false(x) ? z : Interval{lower(y.low, z.low), higher(y.high, z.high)};
    case Scalar::op_range: return {higher(x.low, y.low), lower(x.high, z.high)};
    case Scalar::op_feq:
    case Scalar::op_flt:
    case Scalar::op_fle: return {0, 1};
    default: return {};  // strides, results, floats, shl: nothing is known
  }
}

void find_intervals(const Code& code, const Interval* dims, Interval* out) {
  for (const fb::Segment& segment : code.segments) {
    for (uint32_t r = segment.scalar_begin(); r < segment.scalar_end(); ++r) out[r] = interval(code, r, out, dims);
    if (segment.when() == kNone) continue;
    for (uint32_t r = segment.scalar_begin(); r < segment.scalar_end(); ++r) {
      if (out[r].low > 0) out[r].low = 0;
      if (out[r].high < 0) out[r].high = 0;
    }
  }
}

}  // namespace husk
