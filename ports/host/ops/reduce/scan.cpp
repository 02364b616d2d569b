// aten::cumsum, cumprod, cummax, cummin and logcumsumexp. A row is scanned from left to right, one
// element after the other.
#include <cmath>
#include <complex>

#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/complex_log.h"
#include "core/loop.h"

namespace husk::host {

namespace {

constexpr ArgumentsOf kScans("cummax", "cummin", "cumprod", "cumsum", "logcumsumexp");

// The number of elements of a row, and its strides in self, the output and the second output.
struct ScanRow {
  Cancellation& cancellation;
  int64_t count, strides[3];
};

// Calls run(row, offsets of the row in the three tensors) for each row along dim.
template <class Run>
void each_scan(const Arguments& args, int32_t dim, const husk_op_arg& out,
               const husk_op_arg& second, Run run) {
  constexpr uint32_t kSelf = kScans["self"];
  const husk_op_arg& self = args[kSelf];
  Loop<3> loop(args);
  loop.shape(self);
  loop.add(1, out);
  loop.add(2, second);
  if (self.rank > 0) loop.drop(dim);
  const ScanRow row = self.rank > 0
                          ? ScanRow{args.cancellation,
                                    self.sizes[dim],
                                    {self.strides[dim], out.strides[dim], second.strides[dim]}}
                          : ScanRow{args.cancellation, 1, {1, 1, 1}};
  if (row.count == 0) return;
  each(loop, [&](const int64_t(&at)[3]) { run(row, at); });
}

// Checks self and the output, and reads the dimension.
husk_status check(const Arguments& args, ArgumentPlace out, int32_t& dim) {
  constexpr uint32_t kSelf = kScans["self"], kDim = kScans["dim"];
  HUSK_TRY(args.check_tensor(kSelf));
  HUSK_TRY(args.get_dim(kDim, args[kSelf].rank, dim));
  HUSK_TRY(args.check_tensor(out));
  return args.check_same_shape(out, kSelf);
}

// The type that sums and products of values of type V are computed in: f64 for all floats, complex
// numbers of f64 for all complex numbers, V itself for ints and bool.
template <class V>
struct SumType {
  using type = V;
};
template <>
struct SumType<float> {
  using type = double;
};
template <>
struct SumType<Complex<float>> {
  using type = Complex<double>;
};

template <class From, class To>
void fold_row(const ScanRow& row, const void* from, void* to, const int64_t (&at)[3],
              bool product) {
  using S = typename SumType<Value<To>>::type;
  S total = number_of<S>(product);
  each_index(row.cancellation, row.count, [&](int64_t i) {
    const Value<To> value = cast<Value<To>>(
        get(static_cast<const From*>(from) + at[0] + i * row.strides[0]));
    total = product ? times(total, cast<S>(value)) : plus(total, cast<S>(value));
    set(static_cast<To*>(to) + at[1] + i * row.strides[1], cast<Value<To>>(total));
  });
}

// cumsum and cumprod. If self has another dtype than the output, it is first converted into the
// output, and scanned there.
husk_status fold(const Arguments& args, bool product) {
  constexpr ArgumentsOf named("cumprod", "cumsum");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"];
  int32_t dim = 0;
  HUSK_TRY(check(args, kOut, dim));
  const husk_op_arg& out = args[kOut];
  HUSK_TRY(visit_argument<Numbers>(args, kOut, [&](auto target) {
    using T = typename decltype(target)::type;
    if (args[kSelf].dtype == out.dtype) {
      each_scan(args, dim, out, out, [&](const ScanRow& row, const int64_t(&at)[3]) {
        fold_row<T, T>(row, args[kSelf].data, out.data, at, product);
      });
    }
  }));
  if (args[kSelf].dtype == out.dtype) return HUSK_OK;
  HUSK_TRY(copy_elements(args, kOut, kSelf));
  visit<Numbers>(out.dtype, [&](auto target) {
    using T = typename decltype(target)::type;
    each_scan(args, dim, out, out, [&](const ScanRow& row, const int64_t(&at)[3]) {
      const int64_t out_at[3] = {at[1], at[1], at[1]};
      const ScanRow out_row{
          args.cancellation, row.count, {row.strides[1], row.strides[1], row.strides[1]}};
      fold_row<T, T>(out_row, out.data, out.data, out_at, product);
    });
  });
  return HUSK_OK;
}

husk_status extreme(const Arguments& args, bool maximum) {
  constexpr ArgumentsOf named("cummax", "cummin");
  constexpr uint32_t kSelf = named["self"], kValues = named["values"], kIndices = named["indices"];
  int32_t dim = 0;
  HUSK_TRY(check(args, kValues, dim));
  HUSK_TRY(args.check_tensor(kIndices));
  HUSK_TRY(args.check_same_shape(kIndices, kSelf));
  HUSK_TRY(args.check_same_dtype(kValues, kSelf));
  HUSK_TRY(args.check_dtype(kIndices, HUSK_I64));
  return visit_argument<AnyReal>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each_scan(
        args, dim, args[kValues], args[kIndices], [&](const ScanRow& row, const int64_t(&at)[3]) {
          Value<T> best = get(data_of<T>(args[kSelf]) + at[0]);
          int64_t best_index = 0;
          each_index(row.cancellation, row.count, [&](int64_t i) {
            const Value<T> value = get(data_of<T>(args[kSelf]) + at[0] + i * row.strides[0]);
            if (is_nan(value) || (!is_nan(best) && (maximum ? value >= best : value <= best))) {
              best = value;
              best_index = i;
            }
            set(writable<T>(args[kValues]) + at[1] + i * row.strides[1], best);
            writable<int64_t>(args[kIndices])[at[2] + i * row.strides[2]] = best_index;
          });
        });
  });
}

// log(exp(a) + exp(b)).
double log_sum(double a, double b) {
  if (is_nan(a) || is_nan(b)) return a + b;
  const double low = a < b ? a : b, high = a < b ? b : a;
  if (low == high && std::isinf(low)) return low;
  return high + std::log1p(std::exp(low - high));
}

// The same for complex numbers, with PyTorch's rules for NaN and infinities: a NaN in either part
// makes both parts NaN, and the angle of exp(-inf) does not matter.
Complex<double> log_sum(Complex<double> a, Complex<double> b) {
  if (is_nan(a) || is_nan(b)) return {__builtin_nan(""), __builtin_nan("")};
  const Complex<double> low = a.re < b.re ? a : b, high = a.re < b.re ? b : a;
  if (low.re == high.re && std::isinf(low.re)) {
    if (low.re < 0) return low;
    const std::complex<double> sum = std::exp(std::complex<double>{low.re, low.im}) +
                                     std::exp(std::complex<double>{high.re, high.im});
    const std::complex<double> result = std::log(sum);
    return {result.real(), result.imag()};
  }
  const double size = std::exp(low.re - high.re), angle = low.im - high.im;
  if (size == 0) return high;  // whatever the angle is
  const Complex<double> ratio{size * std::cos(angle), size * std::sin(angle)};
  return plus(high, log_one_plus(ratio));
}

// The type that a sum of exponentials of values of type V is kept in.
template <class V>
using LogSum = std::conditional_t<is_complex<V>, Complex<double>, double>;

}  // namespace

husk_status cumsum(const Arguments& args) { return fold(args, false); }
husk_status cumprod(const Arguments& args) { return fold(args, true); }
husk_status cummax(const Arguments& args) { return extreme(args, true); }
husk_status cummin(const Arguments& args) { return extreme(args, false); }

husk_status logcumsumexp(const Arguments& args) {
  constexpr ArgumentsOf named("logcumsumexp");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"];
  int32_t dim = 0;
  HUSK_TRY(check(args, kOut, dim));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  return visit_argument<Floats | Halves | Complexes>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = LogSum<T>;
    each_scan(args, dim, args[kOut], args[kOut], [&](const ScanRow& row, const int64_t(&at)[3]) {
      S total = cast<S>(-__builtin_inf());
      each_index(row.cancellation, row.count, [&](int64_t i) {
        const Value<T> value = get(data_of<T>(args[kSelf]) + at[0] + i * row.strides[0]);
        total = log_sum(cast<S>(value), total);
        set(writable<T>(args[kOut]) + at[1] + i * row.strides[1], cast<Value<T>>(total));
      });
    });
  });
}

}  // namespace husk::host
