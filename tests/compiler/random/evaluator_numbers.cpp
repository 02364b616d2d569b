#include <bit>
#include <cmath>
#include <limits>

#include "evaluator.h"

namespace husk::test {

using namespace husk::compiler;

namespace {

using Wide = __int128;

PlainNumber whole(Wide value) {
  PlainNumber n;
  n.failed = value < std::numeric_limits<int64_t>::min() ||
             value > std::numeric_limits<int64_t>::max();
  n.i = n.failed ? 0 : static_cast<int64_t>(value);
  return n;
}

PlainNumber nothing() {
  PlainNumber n;
  n.failed = true;
  return n;
}

PlainNumber real(double value) {
  PlainNumber n;
  n.f = value;
  return n;
}

PlainNumber whole(double value) {
  if (!(value >= -9223372036854775808.0 && value < 9223372036854775808.0)) return nothing();
  return whole(static_cast<Wide>(value));
}

Wide floor_divide(Wide a, Wide b) {
  const Wide q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

PlainNumber power(int64_t base, int64_t exponent) {
  if (exponent < 0) return nothing();
  if (base == 0 || base == 1 || base == -1)
    return whole(Wide{exponent == 0 || base == 1 ? 1 : base == 0 ? 0 : exponent % 2 ? -1 : 1});
  Wide out = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    out *= base;
    if (out > std::numeric_limits<int64_t>::max() || out < std::numeric_limits<int64_t>::min())
      return nothing();
  }
  return whole(out);
}

double nearest_even(double x) {
  const double low = std::floor(x), rest = x - low;
  if (rest < 0.5) return low;
  if (rest > 0.5) return low + 1;
  return std::fmod(low, 2) == 0 ? low : low + 1;
}

PlainNumber int_op(const std::string& op, int64_t x, int64_t y, int64_t z) {
  const Wide a = x, b = y;
  if (op == "add") return whole(a + b);
  if (op == "sub") return whole(a - b);
  if (op == "mul") return whole(a * b);
  if (op == "floordiv") return b == 0 ? nothing() : whole(floor_divide(a, b));
  if (op == "mod") return b == 0 ? nothing() : whole(a - floor_divide(a, b) * b);
  if (op == "cdiv") return b == 0 ? nothing() : whole(-floor_divide(-a, b));
  if (op == "min") return whole(a < b ? a : b);
  if (op == "max") return whole(a > b ? a : b);
  if (op == "pow") return power(x, y);
  if (op == "eq") return whole(Wide{x == y});
  if (op == "ne") return whole(Wide{x != y});
  if (op == "lt") return whole(Wide{x < y});
  if (op == "le") return whole(Wide{x <= y});
  if (op == "and") return whole(Wide{x != 0 && y != 0});
  if (op == "or") return whole(Wide{x != 0 || y != 0});
  if (op == "not") return whole(Wide{x == 0});
  if (op == "select") return whole(Wide{x ? y : z});
  if (op == "bit_and") return whole(Wide{x & y});
  if (op == "bit_or") return whole(Wide{x | y});
  if (op == "bit_xor") return whole(Wide{x ^ y});
  if (op == "shl") return y < 0 || y > 62 ? nothing() : whole(a * (Wide{1} << y));
  if (op == "shr")
    return y < 0 ? nothing()
                 : whole(y > 100 ? Wide{x < 0 ? -1 : 0} : floor_divide(a, Wide{1} << y));
  throw PlainFailure{false, "the evaluator has no op " + op};
}

PlainNumber float_op(const std::string& op, const PlainNumber& a, const PlainNumber& b,
                     const PlainNumber& c) {
  if (op == "fadd") return real(a.f + b.f);
  if (op == "fsub") return real(a.f - b.f);
  if (op == "fmul") return real(a.f * b.f);
  if (op == "fdiv") return real(a.f / b.f);
  if (op == "fmin") return real(a.f < b.f ? a.f : b.f);
  if (op == "fmax") return real(a.f > b.f ? a.f : b.f);
  if (op == "feq") return whole(Wide{a.f == b.f});
  if (op == "flt") return whole(Wide{a.f < b.f});
  if (op == "fle") return whole(Wide{a.f <= b.f});
  if (op == "fselect") return real(a.i ? b.f : c.f);
  if (op == "float") return real(static_cast<double>(a.i));
  if (op == "trunc") return whole(std::trunc(a.f));
  if (op == "floor") return whole(std::floor(a.f));
  if (op == "ceil") return whole(std::ceil(a.f));
  if (op == "round") return whole(nearest_even(a.f));
  if (op == "sqrt") return real(std::sqrt(a.f));
  if (op == "fpow") return real(std::pow(a.f, b.f));
  return int_op(op, a.i, b.i, c.i);
}

}  // namespace

PlainNumber PlainEvaluator::expr(const Expr& e) {
  PlainNumber n;
  switch (e.kind) {
    case ExprKind::integer:
    case ExprKind::boolean: n.i = e.integer; return n;
    case ExprKind::floating: n.f = std::bit_cast<double>(e.bits); return n;
    case ExprKind::call: return call(e);
    case ExprKind::name: break;
  }
  if (auto let = lets_.find(e.name); let != lets_.end()) return let->second;
  return inputs_.at(e.name)->number;
}

int64_t PlainEvaluator::dimension(const Expr& e) {
  const PlainTensor& t = inputs_.at(e.operands[0].name)->tensor;
  const auto d = static_cast<size_t>(e.operands[1].integer);
  return e.name == "size" ? t.sizes[d] : t.strides[d];
}

PlainNumber PlainEvaluator::call(const Expr& e) {
  PlainNumber out;
  if (e.name == "size" || e.name == "stride") {
    out.i = dimension(e);
    return out;
  }
  if (e.name == "result" || e.name == "fresult")
    return previous_results_.at(static_cast<size_t>(e.operands[0].integer));
  PlainNumber operands[3];
  bool failed = false;
  for (size_t i = 0; i < e.operands.size(); ++i) {
    operands[i] = expr(e.operands[i]);
    failed = failed || operands[i].failed;
  }
  if (e.name == "range") {  // a guard: its operands are always needed
    if (failed) throw PlainFailure{true, "a range of what has no value"};
    if (operands[0].i < operands[1].i || operands[0].i > operands[2].i)
      throw PlainFailure{false, "outside its range"};
    return operands[0];
  }
  return failed ? nothing() : float_op(e.name, operands[0], operands[1], operands[2]);
}

int64_t PlainEvaluator::integer(const Expr& e) {
  const PlainNumber n = expr(e);
  if (n.failed) throw PlainFailure{true, "an int does not fit 64 bits"};
  return n.i;
}

double PlainEvaluator::floating(const Expr& e) {
  const PlainNumber n = expr(e);
  if (n.failed) throw PlainFailure{true, "an int that does not fit 64 bits is needed"};
  return n.f;
}

}  // namespace husk::test
