// Elementwise ops of complex tensors, which no frontend compiles to kernels. They take real tensors as well; everything
// is computed in f64.
#include <complex>

#include "arguments.h"
#include "error.h"
#include "loop.h"
#include "wide.h"

namespace husk::host {

namespace {

using Standard = std::complex<double>;

Standard standard(Wide a) { return {a.re, a.im}; }
Wide wide(Standard a) { return {a.real(), a.imag()}; }
Wide real(double value) { return {value, 0}; }

using One = Wide (*)(Wide a);
using Two = Wide (*)(Wide a, Wide b);

// By the larger part of b, so that neither square overflows.
Wide divide(Wide a, Wide b) {
  const double scale = std::fmax(std::fabs(b.re), std::fabs(b.im));
  const double c = b.re / scale, d = b.im / scale, size = scale * (c * c + d * d);
  if (b.im == 0 && a.im == 0) return real(a.re / b.re);
  return {(a.re * c + a.im * d) / size, (a.im * c - a.re * d) / size};
}

Wide power(Wide a, Wide b) {
  if (b.im == 0) {
    if (b.re == 2) return times(a, a);
    if (b.re == 3) return times(times(a, a), a);
    if (b.re == 1) return a;
    if (b.re == 0) return real(1);
    if (b.re == 0.5) return wide(std::sqrt(standard(a)));
    if (b.re == -1) return divide(real(1), a);
    if (b.re == -2) return divide(real(1), times(a, a));
    if (b.re == -0.5) return divide(real(1), wide(std::sqrt(standard(a))));
    if (a.im == 0 && (a.re >= 0 || b.re == std::floor(b.re))) return real(std::pow(a.re, b.re));
  }
  if (a.re == 0 && a.im == 0) return real(0);
  return wide(std::pow(standard(a), standard(b)));
}

// ---- drivers ----

// out = f(self), for the arguments at 0 and at `out_at`.
husk_status map(const Arguments& args, uint32_t out_at, One f) {
  HUSK_TRY(args.tensor(0));
  HUSK_TRY(args.tensor(out_at));
  HUSK_TRY(args.same_shape(out_at, 0));
  const husk_op_arg &self = args[0], &out = args[out_at];
  ReadWide read = nullptr;
  WriteWide write = nullptr;
  if (!reader_of(self.dtype, read)) return args.unsupported_dtype(0);
  if (!writer_of(out.dtype, write)) return args.unsupported_dtype(out_at);
  Loop<2> loop;
  loop.shape(out);
  loop.add(1, self);
  loop.merge();
  each_row(loop, [&](const int64_t(&at)[2], int64_t count, const int64_t(&steps)[2]) {
    Wide values[wide_block];
    for (int64_t start = 0; start < count; start += wide_block) {
      const int64_t length = count - start < wide_block ? count - start : wide_block;
      read(self.data, at[1] + start * steps[1], steps[1], values, length);
      for (int64_t i = 0; i < length; i++) values[i] = f(values[i]);
      write(out.data, at[0] + start * steps[0], steps[0], values, length);
    }
  });
  return HUSK_OK;
}

// A tensor that broadcasts to the output, or a scalar.
struct Operand {
  const husk_op_arg* tensor = nullptr;
  ReadWide read = nullptr;
  Wide value{};
  int64_t strides[most_dims] = {};

  husk_status take(const Arguments& args, uint32_t at, const husk_op_arg& out) {
    Scalar scalar;
    if (scalar_of(args[at], scalar)) {
      value = {scalar.re, scalar.im};
      return HUSK_OK;
    }
    HUSK_TRY(args.tensor(at));
    tensor = &args[at];
    if (!reader_of(tensor->dtype, read)) return args.unsupported_dtype(at);
    if (broadcast(*tensor, out.sizes, out.rank, strides)) return HUSK_OK;
    return args.refuse(at, HUSK_INVALID_ARGUMENT, "has a shape that does not broadcast to the output's");
  }
  void block(int64_t at, int64_t step, Wide* to, int64_t count) const {
    if (tensor) return read(tensor->data, at, step, to, count);
    for (int64_t i = 0; i < count; i++) to[i] = value;
  }
};

// out = f(first, second), elementwise.
template <class F>
husk_status map_pair(const Arguments& args, uint32_t first, uint32_t second, uint32_t out_at, F f) {
  HUSK_TRY(args.tensor(out_at));
  const husk_op_arg& out = args[out_at];
  Operand a, b;
  HUSK_TRY(a.take(args, first, out));
  HUSK_TRY(b.take(args, second, out));
  WriteWide write = nullptr;
  if (!writer_of(out.dtype, write)) return args.unsupported_dtype(out_at);
  Loop<3> loop;
  loop.shape(out);
  for (int32_t d = 0; d < out.rank; d++) {
    loop.strides[1][d] = a.strides[d];
    loop.strides[2][d] = b.strides[d];
  }
  loop.merge();
  each_row(loop, [&](const int64_t(&at)[3], int64_t count, const int64_t(&steps)[3]) {
    Wide left[wide_block], right[wide_block];
    for (int64_t start = 0; start < count; start += wide_block) {
      const int64_t length = count - start < wide_block ? count - start : wide_block;
      a.block(at[1] + start * steps[1], steps[1], left, length);
      b.block(at[2] + start * steps[2], steps[2], right, length);
      for (int64_t i = 0; i < length; i++) left[i] = f(left[i], right[i]);
      write(out.data, at[0] + start * steps[0], steps[0], left, length);
    }
  });
  return HUSK_OK;
}

husk_status scaled(const Arguments& args, double sign) {
  Scalar alpha;
  if (!scalar_of(args[2], alpha)) return args.refuse(2, HUSK_INVALID_ARGUMENT, "is no number");
  const Wide factor{sign * alpha.re, sign * alpha.im};
  if (factor.re == 1 && factor.im == 0) return map_pair(args, 0, 1, 3, [](Wide a, Wide b) { return plus(a, b); });
  if (factor.re == -1 && factor.im == 0) return map_pair(args, 0, 1, 3, [](Wide a, Wide b) { return minus(a, b); });
  return map_pair(args, 0, 1, 3, [&](Wide a, Wide b) { return plus(a, times(factor, b)); });
}

bool is_infinite(Wide a) { return std::isinf(a.re) || std::isinf(a.im); }

}  // namespace

husk_status complex_add(const Arguments& args) { return scaled(args, 1); }
husk_status complex_sub(const Arguments& args) { return scaled(args, -1); }
husk_status complex_rsub(const Arguments& args) {
  Scalar alpha;
  if (!scalar_of(args[2], alpha)) return args.refuse(2, HUSK_INVALID_ARGUMENT, "is no number");
  const Wide factor{alpha.re, alpha.im};
  return map_pair(args, 1, 0, 3, [&](Wide a, Wide b) { return minus(a, times(factor, b)); });
}
husk_status complex_mul(const Arguments& args) {
  return map_pair(args, 0, 1, 2, [](Wide a, Wide b) { return times(a, b); });
}
husk_status complex_div(const Arguments& args) { return map_pair(args, 0, 1, 2, divide); }
husk_status complex_pow(const Arguments& args) { return map_pair(args, 0, 1, 2, power); }
husk_status complex_eq(const Arguments& args) {
  return map_pair(args, 0, 1, 2, [](Wide a, Wide b) { return real(a.re == b.re && a.im == b.im); });
}
husk_status complex_ne(const Arguments& args) {
  return map_pair(args, 0, 1, 2, [](Wide a, Wide b) { return real(a.re != b.re || a.im != b.im); });
}
husk_status complex_from_parts(const Arguments& args) {
  return map_pair(args, 0, 1, 2, [](Wide a, Wide b) { return Wide{a.re, b.re}; });
}
husk_status complex_polar(const Arguments& args) {
  return map_pair(args, 0, 1, 2, [](Wide a, Wide b) { return Wide{a.re * std::cos(b.re), a.re * std::sin(b.re)}; });
}

// self + value * tensor1 * tensor2, in two steps through the output.
husk_status complex_addcmul(const Arguments& args) {
  HUSK_TRY(args.tensor(4));
  Scalar scalar;
  if (!scalar_of(args[3], scalar)) return args.refuse(3, HUSK_INVALID_ARGUMENT, "is no number");
  const Wide factor{scalar.re, scalar.im};
  HUSK_TRY(map_pair(args, 1, 2, 4, [&](Wide a, Wide b) { return times(factor, times(a, b)); }));
  return map_pair(args, 0, 4, 4, [](Wide a, Wide b) { return plus(a, b); });
}

husk_status complex_neg(const Arguments& args) { return map(args, 1, [](Wide a) { return Wide{-a.re, -a.im}; }); }
husk_status complex_conj(const Arguments& args) { return map(args, 1, [](Wide a) { return Wide{a.re, -a.im}; }); }
husk_status complex_real(const Arguments& args) { return map(args, 1, [](Wide a) { return real(a.re); }); }
husk_status complex_imag(const Arguments& args) { return map(args, 1, [](Wide a) { return real(a.im); }); }
husk_status complex_abs(const Arguments& args) {
  return map(args, 1, [](Wide a) { return real(std::hypot(a.re, a.im)); });
}
husk_status complex_angle(const Arguments& args) {
  return map(args, 1, [](Wide a) { return real(is_nan(a) ? a.re + a.im : std::atan2(a.im, a.re)); });
}
husk_status complex_sgn(const Arguments& args) {
  return map(args, 1, [](Wide a) {
    const double size = std::hypot(a.re, a.im);
    return size == 0 ? real(0) : Wide{a.re / size, a.im / size};
  });
}
husk_status complex_exp(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::exp(standard(a))); });
}
husk_status complex_log(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::log(standard(a))); });
}
husk_status complex_sqrt(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::sqrt(standard(a))); });
}
husk_status complex_rsqrt(const Arguments& args) {
  return map(args, 1, [](Wide a) { return divide(real(1), wide(std::sqrt(standard(a)))); });
}
husk_status complex_sin(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::sin(standard(a))); });
}
husk_status complex_cos(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::cos(standard(a))); });
}
husk_status complex_tan(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::tan(standard(a))); });
}
husk_status complex_sinh(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::sinh(standard(a))); });
}
husk_status complex_cosh(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::cosh(standard(a))); });
}
husk_status complex_tanh(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::tanh(standard(a))); });
}
husk_status complex_asin(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::asin(standard(a))); });
}
husk_status complex_acos(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::acos(standard(a))); });
}
husk_status complex_atan(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::atan(standard(a))); });
}
husk_status complex_asinh(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::asinh(standard(a))); });
}
husk_status complex_acosh(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::acosh(standard(a))); });
}
husk_status complex_atanh(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::atanh(standard(a))); });
}
husk_status complex_log2(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::log(standard(a)) / 0.69314718055994530942); });
}
husk_status complex_log10(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::log10(standard(a))); });
}
husk_status complex_log1p(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::log(standard({a.re + 1, a.im}))); });
}
husk_status complex_exp2(const Arguments& args) {
  return map(args, 1, [](Wide a) { return wide(std::exp(standard(a) * 0.69314718055994530942)); });
}
husk_status complex_expm1(const Arguments& args) {
  return map(args, 1, [](Wide a) {
    // exp(x) cos y - 1, without the loss of x and y near 0.
    const double half = std::sin(a.im / 2), scale = std::exp(a.re);
    return Wide{std::expm1(a.re) * std::cos(a.im) - 2 * half * half, scale * std::sin(a.im)};
  });
}
husk_status complex_sigmoid(const Arguments& args) {
  return map(args, 1, [](Wide a) { return divide(real(1), wide(1.0 + std::exp(-standard(a)))); });
}
husk_status complex_reciprocal(const Arguments& args) {
  return map(args, 1, [](Wide a) { return divide(real(1), a); });
}
husk_status complex_square(const Arguments& args) { return map(args, 1, [](Wide a) { return times(a, a); }); }
husk_status complex_isnan(const Arguments& args) { return map(args, 1, [](Wide a) { return real(is_nan(a)); }); }
husk_status complex_isinf(const Arguments& args) { return map(args, 1, [](Wide a) { return real(is_infinite(a)); }); }
husk_status complex_isfinite(const Arguments& args) {
  return map(args, 1, [](Wide a) { return real(!is_nan(a) && !is_infinite(a)); });
}
husk_status complex_logical_not(const Arguments& args) {
  return map(args, 1, [](Wide a) { return real(a.re == 0 && a.im == 0); });
}

}  // namespace husk::host
