// Elementwise ops of complex tensors, for which no frontend generates kernels. The ops also take
// real tensors. All of them compute in f64, but for powers of integers.
#include <complex>

#include "contracts.h"
#include "core/arguments.h"
#include "core/complex_log.h"
#include "core/complex_row.h"
#include "core/loop.h"
#include "error.h"

namespace husk::host {

namespace {

using StdComplex = std::complex<double>;

StdComplex to_std(Complex128 a) { return {a.re, a.im}; }
Complex128 from_std(StdComplex a) { return {a.real(), a.imag()}; }
Complex128 real(double value) { return {value, 0}; }

using UnaryFunction = Complex128 (*)(Complex128 a);

// The absolute value. std::hypot takes care of squares that overflow or lose digits, but is slow.
double size_of(Complex128 a) {
  const double square = a.re * a.re + a.im * a.im;
  return square > 0x1p-900 && square < 0x1p+1000 ? std::sqrt(square) : std::hypot(a.re, a.im);
}

// a / b by R. Smith's algorithm, as PyTorch has it: no square overflows, and where a part is
// infinite or b is 0, the same parts are NaN.
Complex128 divide(Complex128 a, Complex128 b) {
  const double re = std::fabs(b.re), im = std::fabs(b.im);
  if (re >= im) {
    if (re == 0 && im == 0) return {a.re / re, a.im / im};
    const double ratio = b.im / b.re, scale = 1 / (b.re + b.im * ratio);
    return {(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};
  }
  const double ratio = b.re / b.im, scale = 1 / (b.re * ratio + b.im);
  return {(a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale};
}

Complex128 power(Complex128 a, Complex128 b) {
  if (b.im == 0) {
    if (b.re == 2) return times(a, a);
    if (b.re == 3) return times(times(a, a), a);
    if (b.re == 1) return a;
    if (b.re == 0) return real(1);
    if (b.re == 0.5) return from_std(std::sqrt(to_std(a)));
    if (b.re == -1) return divide(real(1), a);
    if (b.re == -2) return divide(real(1), times(a, a));
    if (b.re == -0.5) return divide(real(1), from_std(std::sqrt(to_std(a))));
    if (a.im == 0 && (a.re >= 0 || b.re == std::floor(b.re))) return real(std::pow(a.re, b.re));
  }
  if (a.re == 0 && a.im == 0) return real(0);
  return from_std(std::pow(to_std(a), to_std(b)));
}

// ---- loops over operands ----

// out = what rows(values, count) makes of the values of self, elementwise. `named` lists the
// functions that call map().
using UnaryRows = void (*)(Complex128* values, int64_t count, UnaryFunction f);
husk_status map_rows(const Arguments& args, UnaryRows rows, UnaryFunction f) {
  constexpr ArgumentsOf named(
      "complex_abs", "complex_acos", "complex_acosh", "complex_angle", "complex_asin",
      "complex_asinh", "complex_atan", "complex_atanh", "complex_conj", "complex_cos",
      "complex_cosh", "complex_exp", "complex_exp2", "complex_expm1", "complex_imag",
      "complex_isfinite", "complex_isinf", "complex_isnan", "complex_log", "complex_log10",
      "complex_log1p", "complex_log2", "complex_logical_not", "complex_neg", "complex_real",
      "complex_reciprocal", "complex_rsqrt", "complex_sgn", "complex_sigmoid", "complex_sin",
      "complex_sinh", "complex_sqrt", "complex_square", "complex_tan", "complex_tanh");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"];
  HUSK_TRY(args.check_tensor(kSelf));
  HUSK_TRY(args.check_tensor(kOut));
  HUSK_TRY(args.check_same_shape(kOut, kSelf));
  const husk_op_arg &self = args[kSelf], &out = args[kOut];
  ReadRow read = nullptr;
  WriteRow write = nullptr;
  if (!row_reader(self.dtype, read)) return args.unsupported_dtype(kSelf);
  if (!row_writer(out.dtype, write)) return args.unsupported_dtype(kOut);
  Loop<2> loop(args);
  loop.shape(out);
  loop.add(1, self);
  loop.merge();
  each_row(loop, [&](const int64_t(&at)[2], int64_t count, const int64_t(&steps)[2]) {
    Complex128 values[kRowBlock];
    for (int64_t start = 0; start < count; start += kRowBlock) {
      const int64_t length = count - start < kRowBlock ? count - start : kRowBlock;
      read(self.data, at[1] + start * steps[1], steps[1], values, length);
      rows(values, length, f);
      write(out.data, at[0] + start * steps[0], steps[0], values, length);
    }
  });
  return HUSK_OK;
}

// out = f(self), elementwise.
husk_status map(const Arguments& args, UnaryFunction f) {
  return map_rows(
      args,
      [](Complex128* values, int64_t count, UnaryFunction g) {
        for (int64_t i = 0; i < count; ++i) values[i] = g(values[i]);
      },
      f);
}

// out = f(self), elementwise, for a function that takes less time than a call of it.
template <Complex128 (*f)(Complex128)>
husk_status map_inline(const Arguments& args) {
  return map_rows(
      args,
      [](Complex128* values, int64_t count, UnaryFunction) {
        for (int64_t i = 0; i < count; ++i) values[i] = f(values[i]);
      },
      nullptr);
}

Complex128 negative(Complex128 a) { return {-a.re, -a.im}; }
Complex128 conjugate(Complex128 a) { return {a.re, -a.im}; }
Complex128 real_part(Complex128 a) { return real(a.re); }
Complex128 imaginary_part(Complex128 a) { return real(a.im); }
Complex128 real_size(Complex128 a) { return real(size_of(a)); }
Complex128 square(Complex128 a) { return times(a, a); }

// The value of a scalar argument as the type that an op computes in.
Complex128 value_of(const Scalar& scalar, Complex128*) { return {scalar.re, scalar.im}; }
int64_t value_of(const Scalar& scalar, int64_t*) {
  return scalar.is_int ? scalar.i : cast<int64_t>(scalar.re);
}

// An operand of a binary op that computes in V: a tensor that broadcasts to the output, or a
// scalar.
template <class V>
struct Operand {
  const husk_op_arg* tensor = nullptr;
  ReadRowOf<V> read = nullptr;
  V value{};
  int64_t strides[kMaxRank] = {};

  husk_status read_argument(const Arguments& args, ArgumentPlace at, const husk_op_arg& out) {
    Scalar scalar;
    if (scalar_of(args[at], scalar)) {
      value = value_of(scalar, static_cast<V*>(nullptr));
      return HUSK_OK;
    }
    HUSK_TRY(args.check_tensor(at));
    tensor = &args[at];
    if (!row_reader(tensor->dtype, read)) return args.unsupported_dtype(at);
    if (broadcast(*tensor, out.sizes, out.rank, strides)) return HUSK_OK;
    return args.argument_error(at, HUSK_INVALID_ARGUMENT,
                               "has a shape that does not broadcast to the output's");
  }
  // Reads a block of a row: `count` elements from offset `at` on, `step` apart.
  void read_block(int64_t at, int64_t step, V* to, int64_t count) const {
    if (tensor) return read(tensor->data, at, step, to, count);
    for (int64_t i = 0; i < count; ++i) to[i] = value;
  }
};

// The places of two operands and of the output.
struct PairAt {
  ArgumentPlace first, second, out;

  constexpr PairAt(const ArgumentsOf& named, const char* first_name, const char* second_name)
      : first(named[first_name]), second(named[second_name]), out(named["out"]) {}
};

// out = f(first, second), elementwise. f takes and returns V.
template <class V = Complex128, class F>
husk_status map_pair(const Arguments& args, const PairAt& operands, F f) {
  HUSK_TRY(args.check_tensor(operands.out));
  const husk_op_arg& out = args[operands.out];
  Operand<V> a, b;
  HUSK_TRY(a.read_argument(args, operands.first, out));
  HUSK_TRY(b.read_argument(args, operands.second, out));
  WriteRowOf<V> write = nullptr;
  if (!row_writer(out.dtype, write)) return args.unsupported_dtype(operands.out);
  Loop<3> loop(args);
  loop.shape(out);
  for (int32_t d = 0; d < out.rank; ++d) {
    loop.strides[1][d] = a.strides[d];
    loop.strides[2][d] = b.strides[d];
  }
  loop.merge();
  each_row(loop, [&](const int64_t(&at)[3], int64_t count, const int64_t(&steps)[3]) {
    V left[kRowBlock], right[kRowBlock];
    for (int64_t start = 0; start < count; start += kRowBlock) {
      const int64_t length = count - start < kRowBlock ? count - start : kRowBlock;
      a.read_block(at[1] + start * steps[1], steps[1], left, length);
      b.read_block(at[2] + start * steps[2], steps[2], right, length);
      for (int64_t i = 0; i < length; ++i) left[i] = f(left[i], right[i]);
      write(out.data, at[0] + start * steps[0], steps[0], left, length);
    }
  });
  return HUSK_OK;
}

// The power of an integer modulo 2^64, as in eager mode: with a negative exponent all powers are 0
// but those of 1 and -1.
int64_t integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base != -1 ? 0 : exponent % 2 == 0 ? 1 : -1;
  uint64_t result = 1, factor = static_cast<uint64_t>(base);
  for (uint64_t rest = static_cast<uint64_t>(exponent); rest; rest >>= 1) {
    if (rest & 1) result *= factor;
    factor *= factor;
  }
  return static_cast<int64_t>(result);
}

// out = self + sign * alpha * other.
husk_status add_scaled(const Arguments& args, double sign) {
  constexpr ArgumentsOf named("complex_add", "complex_sub");
  constexpr PairAt kOperands(named, "self", "other");
  constexpr uint32_t kAlpha = named["alpha"];
  Scalar alpha;
  HUSK_TRY(get_scalar(args, kAlpha, alpha));
  const Complex128 factor{sign * alpha.re, sign * alpha.im};
  if (factor.re == 1 && factor.im == 0)
    return map_pair(args, kOperands, [](Complex128 a, Complex128 b) { return plus(a, b); });
  if (factor.re == -1 && factor.im == 0)
    return map_pair(args, kOperands, [](Complex128 a, Complex128 b) { return minus(a, b); });
  return map_pair(args, kOperands,
                  [&](Complex128 a, Complex128 b) { return plus(a, times(factor, b)); });
}

bool is_infinite(Complex128 a) { return std::isinf(a.re) || std::isinf(a.im); }

}  // namespace

husk_status complex_add(const Arguments& args) { return add_scaled(args, 1); }
husk_status complex_sub(const Arguments& args) { return add_scaled(args, -1); }
husk_status complex_rsub(const Arguments& args) {
  constexpr ArgumentsOf named("complex_rsub");
  constexpr PairAt kOperands(named, "other", "self");
  constexpr uint32_t kAlpha = named["alpha"];
  Scalar alpha;
  HUSK_TRY(get_scalar(args, kAlpha, alpha));
  const Complex128 factor{alpha.re, alpha.im};
  return map_pair(args, kOperands,
                  [&](Complex128 a, Complex128 b) { return minus(a, times(factor, b)); });
}
husk_status complex_mul(const Arguments& args) {
  constexpr PairAt kOperands(ArgumentsOf("complex_mul"), "self", "other");
  return map_pair(args, kOperands, [](Complex128 a, Complex128 b) { return times(a, b); });
}
husk_status complex_div(const Arguments& args) {
  constexpr PairAt kOperands(ArgumentsOf("complex_div"), "self", "other");
  return map_pair(args, kOperands, divide);
}
husk_status complex_pow(const Arguments& args) {
  constexpr PairAt kOperands(ArgumentsOf("complex_pow"), "self", "exponent");
  HUSK_TRY(args.check_tensor(kOperands.out));
  WriteRowOf<int64_t> integers = nullptr;
  if (row_writer(args[kOperands.out].dtype, integers))
    return map_pair<int64_t>(args, kOperands, integer_power);
  return map_pair(args, kOperands, power);
}
husk_status complex_eq(const Arguments& args) {
  constexpr PairAt kOperands(ArgumentsOf("complex_eq"), "self", "other");
  return map_pair(args, kOperands,
                  [](Complex128 a, Complex128 b) { return real(a.re == b.re && a.im == b.im); });
}
husk_status complex_ne(const Arguments& args) {
  constexpr PairAt kOperands(ArgumentsOf("complex_ne"), "self", "other");
  return map_pair(args, kOperands,
                  [](Complex128 a, Complex128 b) { return real(a.re != b.re || a.im != b.im); });
}
husk_status complex_from_parts(const Arguments& args) {
  constexpr PairAt kOperands(ArgumentsOf("complex_from_parts"), "real", "imag");
  return map_pair(args, kOperands,
                  [](Complex128 a, Complex128 b) { return Complex128{a.re, b.re}; });
}
husk_status complex_polar(const Arguments& args) {
  constexpr PairAt kOperands(ArgumentsOf("complex_polar"), "abs", "angle");
  return map_pair(args, kOperands, [](Complex128 a, Complex128 b) {
    return Complex128{a.re * std::cos(b.re), a.re * std::sin(b.re)};
  });
}

// out = self + value * tensor1 * tensor2. The product is stored in the output first.
husk_status complex_addcmul(const Arguments& args) {
  constexpr ArgumentsOf named("complex_addcmul");
  constexpr PairAt kProduct(named, "tensor1", "tensor2"), kSum(named, "self", "out");
  constexpr uint32_t kValue = named["value"], kOut = named["out"];
  HUSK_TRY(args.check_tensor(kOut));
  Scalar scalar;
  HUSK_TRY(get_scalar(args, kValue, scalar));
  const Complex128 factor{scalar.re, scalar.im};
  HUSK_TRY(map_pair(args, kProduct,
                    [&](Complex128 a, Complex128 b) { return times(factor, times(a, b)); }));
  return map_pair(args, kSum, [](Complex128 a, Complex128 b) { return plus(a, b); });
}

husk_status complex_neg(const Arguments& args) { return map_inline<negative>(args); }
husk_status complex_conj(const Arguments& args) { return map_inline<conjugate>(args); }
husk_status complex_real(const Arguments& args) { return map_inline<real_part>(args); }
husk_status complex_imag(const Arguments& args) { return map_inline<imaginary_part>(args); }
husk_status complex_abs(const Arguments& args) { return map_inline<real_size>(args); }
husk_status complex_angle(const Arguments& args) {
  return map(args,
             [](Complex128 a) { return real(is_nan(a) ? a.re + a.im : std::atan2(a.im, a.re)); });
}
husk_status complex_sgn(const Arguments& args) {
  return map(args, [](Complex128 a) {
    const double size = size_of(a);
    return size == 0 ? real(0) : Complex128{a.re / size, a.im / size};
  });
}
husk_status complex_exp(const Arguments& args) {
  return map(args, [](Complex128 a) { return from_std(std::exp(to_std(a))); });
}
husk_status complex_log(const Arguments& args) {
  return map(args, [](Complex128 a) { return from_std(std::log(to_std(a))); });
}
husk_status complex_sqrt(const Arguments& args) {
  return map(args, [](Complex128 a) { return from_std(std::sqrt(to_std(a))); });
}
husk_status complex_rsqrt(const Arguments& args) {
  return map(args, [](Complex128 a) { return divide(real(1), from_std(std::sqrt(to_std(a)))); });
}
husk_status complex_sin(const Arguments& args) {
  return map(args, [](Complex128 a) { return from_std(std::sin(to_std(a))); });
}
husk_status complex_cos(const Arguments& args) {
  return map(args, [](Complex128 a) { return from_std(std::cos(to_std(a))); });
}
husk_status complex_tan(const Arguments& args) {
  return map(args, [](Complex128 a) { return from_std(std::tan(to_std(a))); });
}
husk_status complex_sinh(const Arguments& args) {
  return map(args, [](Complex128 a) { return from_std(std::sinh(to_std(a))); });
}
husk_status complex_cosh(const Arguments& args) {
  return map(args, [](Complex128 a) { return from_std(std::cosh(to_std(a))); });
}
husk_status complex_tanh(const Arguments& args) {
  return map(args, [](Complex128 a) { return from_std(std::tanh(to_std(a))); });
}
husk_status complex_asin(const Arguments& args) {
  return map(args, [](Complex128 a) { return from_std(std::asin(to_std(a))); });
}
husk_status complex_acos(const Arguments& args) {
  return map(args, [](Complex128 a) { return from_std(std::acos(to_std(a))); });
}
husk_status complex_atan(const Arguments& args) {
  return map(args, [](Complex128 a) { return from_std(std::atan(to_std(a))); });
}
husk_status complex_asinh(const Arguments& args) {
  return map(args, [](Complex128 a) { return from_std(std::asinh(to_std(a))); });
}
husk_status complex_acosh(const Arguments& args) {
  return map(args, [](Complex128 a) { return from_std(std::acosh(to_std(a))); });
}
husk_status complex_atanh(const Arguments& args) {
  return map(args, [](Complex128 a) { return from_std(std::atanh(to_std(a))); });
}
husk_status complex_log2(const Arguments& args) {
  return map(args,
             [](Complex128 a) { return from_std(std::log(to_std(a)) / 0.69314718055994530942); });
}
husk_status complex_log10(const Arguments& args) {
  return map(args, [](Complex128 a) { return from_std(std::log10(to_std(a))); });
}
husk_status complex_log1p(const Arguments& args) {
  return map(args, [](Complex128 a) { return log_one_plus(a); });
}
husk_status complex_exp2(const Arguments& args) {
  return map(args,
             [](Complex128 a) { return from_std(std::exp(to_std(a) * 0.69314718055994530942)); });
}
husk_status complex_expm1(const Arguments& args) {
  return map(args, [](Complex128 a) {
    // The real part exp(x) cos(y) - 1 is written so that it does not lose x and y near 0.
    const double half = std::sin(a.im / 2), scale = std::exp(a.re);
    return Complex128{std::expm1(a.re) * std::cos(a.im) - 2 * half * half, scale * std::sin(a.im)};
  });
}
husk_status complex_sigmoid(const Arguments& args) {
  return map(args,
             [](Complex128 a) { return divide(real(1), from_std(1.0 + std::exp(-to_std(a)))); });
}
husk_status complex_reciprocal(const Arguments& args) {
  return map(args, [](Complex128 a) { return divide(real(1), a); });
}
husk_status complex_square(const Arguments& args) { return map_inline<square>(args); }
husk_status complex_isnan(const Arguments& args) {
  return map(args, [](Complex128 a) { return real(is_nan(a)); });
}
husk_status complex_isinf(const Arguments& args) {
  return map(args, [](Complex128 a) { return real(is_infinite(a)); });
}
husk_status complex_isfinite(const Arguments& args) {
  return map(args, [](Complex128 a) { return real(!is_nan(a) && !is_infinite(a)); });
}
husk_status complex_logical_not(const Arguments& args) {
  return map(args, [](Complex128 a) { return real(a.re == 0 && a.im == 0); });
}

}  // namespace husk::host
