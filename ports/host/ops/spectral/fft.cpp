// aten::_fft_c2c, _fft_r2c and _fft_c2r, computed in f64 for every dtype. A workspace has the
// memory of a line of points. Files of earlier versions of Husk have none: then lines of up to
// kStackPoints are transformed on the stack, and longer ones in place, if their length is a power
// of 2.
#include <cmath>

#include "contracts.h"
#include "core/arguments.h"
#include "core/complex_row.h"
#include "core/loop.h"
#include "core/workspace.h"
#include "error.h"
#include "spectral/line.h"

namespace husk::host {

namespace {

// Transforms a line in place, for lengths that are powers of 2: bit reversal, then butterflies.
// Each root is computed once per round.
template <class R>
void transform_long(Cancellation& cancellation, Complex<R>* data, int64_t stride, int64_t count,
                    bool forward) {
  int64_t j = 0;
  each_index(cancellation, count - 1, [&](int64_t before) {
    const int64_t i = before + 1;
    int64_t bit = count >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i >= j) return;
    const Complex<R> swapped = data[i * stride];
    data[i * stride] = data[j * stride];
    data[j * stride] = swapped;
  });
  for (int64_t length = 2; length <= count; length *= 2) {
    each_index_while(cancellation, length / 2, [&](int64_t k) {
      const double angle = (forward ? -kTwoPi : kTwoPi) * static_cast<double>(k) /
                           static_cast<double>(length);
      const Complex128 root{std::cos(angle), std::sin(angle)};
      return each_index(cancellation, count / length, [&](int64_t turn) {
        const int64_t i = k + turn * length;
        Complex<R>&a = data[i * stride], &b = data[(i + length / 2) * stride];
        const Complex128 left = cast<Complex128>(a), right = times(cast<Complex128>(b), root);
        a = cast<Complex<R>>(plus(left, right));
        b = cast<Complex<R>>(minus(left, right));
      });
    });
  }
}

struct Transform {
  int32_t dims[kMaxRank];
  int64_t count;
  double scale;
};

// Reads the list of dimensions and the scale of the normalization: 1, 1 / sqrt(n) or 1 / n for n
// points in total. If last_size is not negative, it replaces the size of the last listed dimension.
husk_status read_transform(const Arguments& args, int32_t rank, const int64_t* sizes,
                           int64_t last_size, Transform& t) {
  constexpr ArgumentsOf named("fft_c2c", "fft_c2r", "fft_r2c");
  constexpr uint32_t kDim = named["dim"], kNormalization = named["normalization"];
  const husk_op_arg& list = args[kDim];
  if (list.kind != HUSK_ARG_INTS || list.count < 1 || list.count > rank || !list.sizes)
    return args.argument_error(kDim, HUSK_INVALID_ARGUMENT, "is not a list of dimensions of self");
  int64_t mode = 0;
  HUSK_TRY(args.get_int(kNormalization, mode));
  if (mode < 0 || mode > 2)
    return args.argument_error(kNormalization, HUSK_INVALID_ARGUMENT, "is not 0, 1 or 2");
  double points = 1;
  uint32_t seen = 0;
  t.count = list.count;
  for (int64_t i = 0; i < list.count; ++i) {
    const int64_t dim = list.sizes[i] < 0 ? list.sizes[i] + rank : list.sizes[i];
    if (dim < 0 || dim >= rank || seen >> dim & 1)
      return args.argument_error(kDim, HUSK_INVALID_ARGUMENT, "names no dimension, or one twice");
    seen |= 1u << dim;
    t.dims[i] = static_cast<int32_t>(dim);
    points *= static_cast<double>(last_size >= 0 && i == list.count - 1 ? last_size : sizes[dim]);
  }
  t.scale = mode == 0 ? 1 : mode == 1 ? 1 / std::sqrt(points) : 1 / points;
  return HUSK_OK;
}

constexpr uint32_t kWorkspace = ArgumentsOf("fft_c2c", "fft_c2r", "fft_r2c")["workspace"];

// Whether the op can transform lines of `points` with the memory that it has. `in_place` says that
// they are complex numbers of `out`. `need` becomes that of the line that needs most.
husk_status check_length(const Arguments& args, int64_t points, bool in_place, Need& need) {
  constexpr ArgumentsOf named("fft_c2c", "fft_c2r", "fft_r2c");
  constexpr uint32_t kSelf = named["self"];
  if (points < 1)
    return args.argument_error(kSelf, HUSK_INVALID_INPUT, "has no points along a dimension");
  const Need line = line_need(points);
  if (!line.fits || line.total > need.total) need = line;
  if (!args.none(kWorkspace)) return check_workspace(args, kWorkspace, need);
  if (points <= kStackPoints || (in_place && (points & (points - 1)) == 0)) return HUSK_OK;
  return fail(args.error, HUSK_UNSUPPORTED,
              "%s: %lld points along a dimension need a workspace: export the model again", args.op,
              static_cast<long long>(points));
}

// Calls f(line) with the memory of a line, which lies on the stack if there is no workspace.
template <class F>
husk_status with_line(const Arguments& args, Complex128* memory, F&& f) {
  Features cpu;
  HUSK_TRY(args.get_features(cpu));
  if (memory) {
    Line line(args.cancellation, cpu, memory, true);
    f(line);
  } else {
    Complex128 stack[3 * kStackPoints];
    Line line(args.cancellation, cpu, stack, false);
    f(line);
  }
  return HUSK_OK;
}

template <class F>
husk_status with_line(const Arguments& args, F&& f) {
  return with_line(args, args.none(kWorkspace) ? nullptr : writable<Complex128>(args[kWorkspace]),
                   f);
}

template <class R>
Complex<R> scaled(const Complex128& value, double scale) {
  return {static_cast<R>(value.re * scale), static_cast<R>(value.im * scale)};
}

// Transforms out in place along one dimension.
template <class R>
void transform_dim(const Arguments& args, const husk_op_arg& out, int32_t dim, bool forward,
                   double scale, Line& line) {
  Loop<1> lines(args);
  lines.shape(out);
  lines.drop(dim);
  const int64_t count = out.sizes[dim], stride = out.strides[dim];
  const bool in_place = !line.fits(count);
  if (!in_place && !line.prepare(count, forward)) return;
  each_while(lines, [&](const int64_t(&at)[1]) {
    Complex<R>* data = writable<Complex<R>>(out) + at[0];
    if (in_place) {
      transform_long(*lines.cancellation, data, stride, count, forward);
      return each_index(*lines.cancellation, count, [&](int64_t i) {
        data[i * stride] = scaled<R>(cast<Complex128>(data[i * stride]), scale);
      });
    }
    Complex128* const points = line.points();
    if (!each_index(*lines.cancellation, count,
                    [&](int64_t i) { points[i] = cast<Complex128>(data[i * stride]); }))
      return false;
    const Complex128* const result = line.run();
    return result && each_index(*lines.cancellation, count,
                                [&](int64_t i) { data[i * stride] = scaled<R>(result[i], scale); });
  });
}

// The numbers of a line of a tensor, `step` elements apart.
template <class T>
struct Apart {
  T* data;
  int64_t step;
  T& operator[](int64_t i) const { return data[i * step]; }
};

// The spectrum of 2 * half reals, from the transform of Line, and the reverse. Points k and
// half - k are made of the same two: their sums come from the reals at even places, and their
// differences, turned, from those at odd ones.
template <class R>
bool store_spectrum(Line& line, const Complex128* points, int64_t half, bool whole, double scale,
                    const Apart<Complex<R>>& out) {
  return each_index(line.cancellation, half / 2 + 1, [&](int64_t k) {
    const int64_t m = half - k;
    const Complex128 one = points[k], other = Line::conjugate(points[k > 0 ? m : 0]);
    const Complex128 even = plus(one, other), difference = minus(one, other),
                     odd = times({difference.im, -difference.re}, line.real_root(k));
    const Complex128 left = plus(even, odd), right = Line::conjugate(minus(even, odd));
    out[m] = scaled<R>(right, scale / 2);
    out[k] = scaled<R>(left, scale / 2);
    if (!whole || k == 0) return;
    out[half + m] = scaled<R>(Line::conjugate(left), scale / 2);
    out[half + k] = scaled<R>(Line::conjugate(right), scale / 2);
  });
}
template <class C>
bool load_spectrum(Line& line, const Apart<const C>& in, int64_t half, Complex128* points) {
  const auto value_of = [&](int64_t k) {
    const Complex128 value = cast<Complex128>(in[k]);
    return k == 0 || k == half ? Complex128{value.re, 0} : value;
  };
  return each_index(line.cancellation, half / 2 + 1, [&](int64_t k) {
    const int64_t m = half - k;
    const Complex128 one = value_of(k), other = Line::conjugate(value_of(m));
    const Complex128 even = plus(one, other), odd = times(minus(one, other), line.real_root(k));
    if (k > 0) points[m] = {even.re + odd.im, odd.re - even.im};
    points[k] = {even.re - odd.im, even.im + odd.re};
  });
}

// Transforms real numbers to a spectrum, or to its first half.
template <class R>
void real_to_complex(const Arguments& args, const husk_op_arg& self, const husk_op_arg& out,
                     int32_t dim, double scale, Line& line) {
  Loop<2> lines(args);
  lines.shape(self);
  lines.add(1, out);
  lines.drop(dim);
  const int64_t count = self.sizes[dim], half = count / 2;
  const bool is_even = count % 2 == 0;
  if (!line.prepare(count, true, is_even)) return;
  Complex128* const points = line.points();
  each_while(lines, [&](const int64_t(&at)[2]) {
    const Apart<const R> from = {data_of<R>(self) + at[0], self.strides[dim]};
    const Apart<Complex<R>> to = {writable<Complex<R>>(out) + at[1], out.strides[dim]};
    if (is_even) {
      if (!each_index(line.cancellation, half, [&](int64_t i) {
            points[i] = {static_cast<double>(from[2 * i]), static_cast<double>(from[2 * i + 1])};
          }))
        return false;
      const Complex128* const result = line.run();
      return result && store_spectrum<R>(line, result, half, out.sizes[dim] == count, scale, to);
    }
    if (!each_index(line.cancellation, count,
                    [&](int64_t i) { points[i] = {static_cast<double>(from[i]), 0}; }))
      return false;
    const Complex128* const result = line.run();
    return result && each_index(line.cancellation, out.sizes[dim],
                                [&](int64_t i) { to[i] = scaled<R>(result[i], scale); });
  });
}

// Transforms a half spectrum to real numbers. The second half of the spectrum mirrors the first.
// The imaginary parts of its first and middle point are ignored.
template <class C, class R>
void complex_to_real(const Arguments& args, const husk_op_arg& self, const husk_op_arg& out,
                     int32_t dim, double scale, Line& line) {
  Loop<2> lines(args);
  lines.shape(out);
  lines.add(1, self);
  lines.drop(dim);
  const int64_t count = out.sizes[dim], half = count / 2;
  const bool is_even = count % 2 == 0;
  if (!line.prepare(count, false, is_even)) return;
  Complex128* const points = line.points();
  each_while(lines, [&](const int64_t(&at)[2]) {
    const Apart<const C> from = {data_of<C>(self) + at[1], self.strides[dim]};
    const Apart<R> to = {writable<R>(out) + at[0], out.strides[dim]};
    if (is_even) {
      const Complex128* const result = load_spectrum(line, from, half, points) ? line.run()
                                                                               : nullptr;
      return result && each_index(line.cancellation, half, [&](int64_t i) {
               to[2 * i] = static_cast<R>(result[i].re * scale);
               to[2 * i + 1] = static_cast<R>(result[i].im * scale);
             });
    }
    if (!each_index(line.cancellation, half + 1, [&](int64_t i) {
          const Complex128 value = cast<Complex128>(from[i]);
          points[i] = i == 0 ? Complex128{value.re, 0} : value;
          if (i > 0) points[count - i] = Line::conjugate(value);
        }))
      return false;
    const Complex128* const result = line.run();
    return result && each_index(line.cancellation, count,
                                [&](int64_t i) { to[i] = static_cast<R>(result[i].re * scale); });
  });
}

// Transforms a spectrum of several dimensions to real numbers: a copy of the spectrum in the
// workspace along all dimensions but the last one, then the last one. `need` is that of a line.
husk_status real_of_several(const Arguments& args, const Transform& t, Need need) {
  constexpr ArgumentsOf named("fft_c2r");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"];
  const husk_op_arg& self = args[kSelf];
  const int32_t last = t.dims[t.count - 1];
  int64_t elements = 1, strides[kMaxRank];
  for (int32_t d = self.rank; d-- > 0;) {
    strides[d] = elements;
    need.fits = need.fits && checked_multiply(elements, self.sizes[d], elements);
  }
  need.add(2, elements);
  HUSK_TRY(check_workspace(args, kWorkspace, need));
  Complex128* const memory = writable<Complex128>(args[kWorkspace]);
  husk_op_arg copy = self;
  copy.dtype = HUSK_C128;
  copy.data = memory;
  copy.strides = strides;
  Loop<2> loop(args);
  loop.shape(copy);
  loop.add(1, self);
  const auto copied = [&](auto tag) {
    using C = typename decltype(tag)::type;
    return each(loop, [&](const int64_t(&at)[2]) {
      memory[at[0]] = cast<Complex128>(data_of<C>(self)[at[1]]);
    });
  };
  if (!(self.dtype == HUSK_C64 ? copied(Tag<Complex<float>>()) : copied(Tag<Complex128>())))
    return HUSK_OK;  // the caller of the op returns HUSK_CANCELLED
  return with_line(args, memory + elements, [&](Line& line) {
    for (int64_t i = 0; i + 1 < t.count; ++i)
      transform_dim<double>(args, copy, t.dims[i], false, 1, line);
    if (self.dtype == HUSK_C64)
      complex_to_real<Complex128, float>(args, copy, args[kOut], last, t.scale, line);
    else
      complex_to_real<Complex128, double>(args, copy, args[kOut], last, t.scale, line);
  });
}

bool is_complex_dtype(int32_t dtype) { return dtype == HUSK_C64 || dtype == HUSK_C128; }

}  // namespace

husk_status fft_c2c(const Arguments& args) {
  constexpr ArgumentsOf named("fft_c2c");
  constexpr uint32_t kSelf = named["self"], kForward = named["forward"], kOut = named["out"];
  HUSK_TRY(args.check_tensor(kSelf, 1, kMaxRank));
  HUSK_TRY(args.check_tensor(kOut));
  HUSK_TRY(args.check_same_shape(kOut, kSelf));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  if (!is_complex_dtype(args[kSelf].dtype)) return args.unsupported_dtype(kSelf);
  bool forward = true;
  HUSK_TRY(args.get_bool(kForward, forward));
  Transform t{};
  HUSK_TRY(read_transform(args, args[kSelf].rank, args[kSelf].sizes, -1, t));
  Need need;
  for (int64_t i = 0; i < t.count; ++i)
    HUSK_TRY(check_length(args, args[kSelf].sizes[t.dims[i]], true, need));
  HUSK_TRY(copy_elements(args, kOut, kSelf));
  return with_line(args, [&](Line& line) {
    for (int64_t i = 0; i < t.count; ++i) {
      const double scale = i == 0 ? t.scale : 1;
      if (args[kOut].dtype == HUSK_C64)
        transform_dim<float>(args, args[kOut], t.dims[i], forward, scale, line);
      else
        transform_dim<double>(args, args[kOut], t.dims[i], forward, scale, line);
    }
  });
}

husk_status fft_r2c(const Arguments& args) {
  constexpr ArgumentsOf named("fft_r2c");
  constexpr uint32_t kSelf = named["self"], kOnesided = named["onesided"], kOut = named["out"];
  HUSK_TRY(args.check_tensor(kSelf, 1, kMaxRank));
  const int32_t rank = args[kSelf].rank;
  HUSK_TRY(args.check_tensor(kOut, rank, rank));
  const bool wide = args[kSelf].dtype == HUSK_F64;
  if (!wide && args[kSelf].dtype != HUSK_F32) return args.unsupported_dtype(kSelf);
  HUSK_TRY(args.check_dtype(kOut, wide ? HUSK_C128 : HUSK_C64));
  bool half = true;
  HUSK_TRY(args.get_bool(kOnesided, half));
  Transform t{};
  HUSK_TRY(read_transform(args, rank, args[kSelf].sizes, -1, t));
  const int32_t last = t.dims[t.count - 1];
  for (int32_t d = 0; d < rank; ++d) {
    HUSK_TRY(args.check_size(
        kOut, d, d == last && half ? args[kSelf].sizes[d] / 2 + 1 : args[kSelf].sizes[d],
        "the points of self"));
  }
  Need need;
  for (int64_t i = 0; i < t.count; ++i)
    HUSK_TRY(check_length(args, args[kSelf].sizes[t.dims[i]], t.dims[i] != last, need));
  return with_line(args, [&](Line& line) {
    if (wide)
      real_to_complex<double>(args, args[kSelf], args[kOut], last, t.scale, line);
    else
      real_to_complex<float>(args, args[kSelf], args[kOut], last, t.scale, line);
    for (int64_t i = 0; i + 1 < t.count; ++i)
      if (wide)
        transform_dim<double>(args, args[kOut], t.dims[i], true, 1, line);
      else
        transform_dim<float>(args, args[kOut], t.dims[i], true, 1, line);
  });
}

husk_status fft_c2r(const Arguments& args) {
  constexpr ArgumentsOf named("fft_c2r");
  constexpr uint32_t kSelf = named["self"], kDim = named["dim"],
                     kLastDimSize = named["last_dim_size"], kOut = named["out"];
  HUSK_TRY(args.check_tensor(kSelf, 1, kMaxRank));
  const int32_t rank = args[kSelf].rank;
  HUSK_TRY(args.check_tensor(kOut, rank, rank));
  if (!is_complex_dtype(args[kSelf].dtype)) return args.unsupported_dtype(kSelf);
  const bool wide = args[kSelf].dtype == HUSK_C128;
  HUSK_TRY(args.check_dtype(kOut, wide ? HUSK_F64 : HUSK_F32));
  int64_t size = 0;
  HUSK_TRY(args.get_int(kLastDimSize, size));
  Need need;
  HUSK_TRY(check_length(args, size, false, need));
  Transform t{};
  HUSK_TRY(read_transform(args, rank, args[kSelf].sizes, size, t));
  const int32_t last = t.dims[t.count - 1];
  for (int32_t d = 0; d < rank; ++d)
    HUSK_TRY(args.check_size(kOut, d, d == last ? size : args[kSelf].sizes[d],
                             "last_dim_size, or self's"));
  HUSK_TRY(args.check_size(kSelf, last, size / 2 + 1, "half of last_dim_size, and one"));
  if (t.count == 1) {
    return with_line(args, [&](Line& line) {
      if (wide)
        complex_to_real<Complex128, double>(args, args[kSelf], args[kOut], last, t.scale, line);
      else
        complex_to_real<Complex<float>, float>(args, args[kSelf], args[kOut], last, t.scale, line);
    });
  }
  if (args.none(kWorkspace))
    return args.argument_error(kDim, HUSK_UNSUPPORTED,
                               "has several dimensions, which need a workspace: export the model "
                               "again");
  for (int64_t i = 0; i + 1 < t.count; ++i)
    HUSK_TRY(check_length(args, args[kSelf].sizes[t.dims[i]], false, need));
  return real_of_several(args, t, need);
}

}  // namespace husk::host
