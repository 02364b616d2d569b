// aten::_fft_c2c, _fft_r2c and _fft_c2r, computed in f64 for every dtype. Lines of up to kMaxPoints
// are transformed on the stack (Stockham's autosort algorithm, any factors). Longer lines are
// transformed in root_index, if their length is a power of 2.
#include <cmath>

#include "core/arguments.h"
#include "core/complex_row.h"
#include "core/loop.h"
#include "error.h"

namespace husk::host {

namespace {

constexpr int64_t kMaxPoints = 6144;
constexpr double kTwoPi = 2 * 3.14159265358979323846;

// A line of points on the stack, and the roots of unity for its length and direction.
struct Line {
  Complex128 buffers[2][kMaxPoints];
  Complex128 roots[kMaxPoints];
  int64_t count = 0;
  bool forward = true;

  explicit Line(const Arguments& args) : cancellation(args.cancellation) {}
  // Computes the roots, unless they are there already.
  void prepare(int64_t points, bool is_forward) {
    if (points == count && is_forward == forward) return;
    count = points;
    forward = is_forward;
    for (int64_t i = 0; i < count; ++i) {
      const double angle = (forward ? -kTwoPi : kTwoPi) * static_cast<double>(i) /
                           static_cast<double>(count);
      roots[i] = {std::cos(angle), std::sin(angle)};
    }
  }

  // Transforms buffers[0]. Returns the buffer with the result, or null if the call is to end.
  Complex128* run() {
    Complex128 *from = buffers[0], *to = buffers[1];
    int64_t left = count, step = 1;
    while (left > 1) {
      const int64_t p = factor(left);
      if (cancellation.ends(count * p)) return nullptr;
      pass(from, to, left, step, p);
      left /= p;
      step *= p;
      Complex128* other = from;
      from = to;
      to = other;
    }
    return from;
  }

 private:
  Cancellation& cancellation;

  static int64_t factor(int64_t n) {
    if (n % 4 == 0) return 4;
    for (int64_t p = 2; p * p <= n; ++p)
      if (n % p == 0) return p;
    return n;
  }
  void pass(const Complex128* from, Complex128* to, int64_t left, int64_t step, int64_t p) const {
    const int64_t m = left / p, turns = count / left, inner = count / p;
    for (int64_t k = 0; k < m; ++k) {
      for (int64_t j = 0; j < p; ++j) {
        const Complex128 root = roots[turns * k * j % count];
        for (int64_t q = 0; q < step; ++q) {
          Complex128 sum = from[q + step * k];
          for (int64_t r = 1; r < p; ++r) {
            const Complex128 value = from[q + step * (k + m * r)];
            const int64_t root_index = r * j % p * inner;
            sum = plus(sum, root_index == 0 ? value : times(value, roots[root_index]));
          }
          to[q + step * (p * k + j)] = times(sum, root);
        }
      }
    }
  }
};

// Transforms a line in root_index, for lengths that are powers of 2: bit reversal, then
// butterflies. Each root is computed once per round.
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
  const husk_op_arg& list = args[1];
  if (list.kind != HUSK_ARG_INTS || list.count < 1 || list.count > rank || !list.sizes)
    return args.argument_error(1, HUSK_INVALID_ARGUMENT, "is not a list of dimensions of self");
  int64_t mode = 0;
  HUSK_TRY(args.get_int(2, mode));
  if (mode < 0 || mode > 2)
    return args.argument_error(2, HUSK_INVALID_ARGUMENT, "is not 0, 1 or 2");
  double points = 1;
  uint32_t seen = 0;
  t.count = list.count;
  for (int64_t i = 0; i < list.count; ++i) {
    const int64_t dim = list.sizes[i] < 0 ? list.sizes[i] + rank : list.sizes[i];
    if (dim < 0 || dim >= rank || seen >> dim & 1)
      return args.argument_error(1, HUSK_INVALID_ARGUMENT, "names no dimension, or one twice");
    seen |= 1u << dim;
    t.dims[i] = static_cast<int32_t>(dim);
    points *= static_cast<double>(last_size >= 0 && i == list.count - 1 ? last_size : sizes[dim]);
  }
  t.scale = mode == 0 ? 1 : mode == 1 ? 1 / std::sqrt(points) : 1 / points;
  return HUSK_OK;
}

husk_status check_length(const Arguments& args, int64_t count, bool in_place) {
  if (count < 1)
    return args.argument_error(0, HUSK_INVALID_INPUT, "has no points along a dimension");
  if (count <= kMaxPoints || (in_place && (count & (count - 1)) == 0)) return HUSK_OK;
  return fail(args.error, HUSK_UNSUPPORTED,
              "%s: %lld points along a dimension; it takes up to %lld%s", args.op,
              static_cast<long long>(count), static_cast<long long>(kMaxPoints),
              in_place ? ", or a power of 2" : "");
}

// Transforms out in root_index along one dimension.
template <class R>
void transform_dim(const Arguments& args, const husk_op_arg& out, int32_t dim, bool forward,
                   double scale, Line& line) {
  Loop<1> lines(args);
  lines.shape(out);
  lines.drop(dim);
  const int64_t count = out.sizes[dim], stride = out.strides[dim];
  if (count <= kMaxPoints) line.prepare(count, forward);
  each_while(lines, [&](const int64_t(&at)[1]) {
    Complex<R>* data = writable<Complex<R>>(out) + at[0];
    if (count > kMaxPoints) {
      transform_long(*lines.cancellation, data, stride, count, forward);
      return each_index(*lines.cancellation, count, [&](int64_t i) {
        data[i * stride] = {static_cast<R>(data[i * stride].re * scale),
                            static_cast<R>(data[i * stride].im * scale)};
      });
    }
    for (int64_t i = 0; i < count; ++i) line.buffers[0][i] = cast<Complex128>(data[i * stride]);
    const Complex128* result = line.run();
    if (!result) return false;
    for (int64_t i = 0; i < count; ++i)
      data[i * stride] = cast<Complex<R>>(Complex128{result[i].re * scale, result[i].im * scale});
    return true;
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
  const int64_t count = self.sizes[dim];
  line.prepare(count, true);
  each_while(lines, [&](const int64_t(&at)[2]) {
    for (int64_t i = 0; i < count; ++i) {
      line.buffers[0][i] = {static_cast<double>(data_of<R>(self)[at[0] + i * self.strides[dim]]),
                            0};
    }
    const Complex128* result = line.run();
    if (!result) return false;
    for (int64_t i = 0; i < out.sizes[dim]; ++i) {
      writable<Complex<R>>(out)[at[1] + i * out.strides[dim]] = cast<Complex<R>>(
          Complex128{result[i].re * scale, result[i].im * scale});
    }
    return true;
  });
}

// Transforms a half spectrum to real numbers. The second half of the spectrum mirrors the first.
// The imaginary parts of its first and middle point are ignored.
template <class R>
void complex_to_real(const Arguments& args, const husk_op_arg& self, const husk_op_arg& out,
                     int32_t dim, double scale, Line& line) {
  Loop<2> lines(args);
  lines.shape(out);
  lines.add(1, self);
  lines.drop(dim);
  const int64_t count = out.sizes[dim];
  line.prepare(count, false);
  each_while(lines, [&](const int64_t(&at)[2]) {
    for (int64_t i = 0; i <= count / 2; ++i) {
      const Complex128 value = cast<Complex128>(
          data_of<Complex<R>>(self)[at[1] + i * self.strides[dim]]);
      line.buffers[0][i] = i == 0 || 2 * i == count ? Complex128{value.re, 0} : value;
      if (i > 0 && 2 * i < count) line.buffers[0][count - i] = {value.re, -value.im};
    }
    const Complex128* result = line.run();
    if (!result) return false;
    for (int64_t i = 0; i < count; ++i)
      writable<R>(out)[at[0] + i * out.strides[dim]] = static_cast<R>(result[i].re * scale);
    return true;
  });
}

bool is_complex_dtype(int32_t dtype) { return dtype == HUSK_C64 || dtype == HUSK_C128; }

}  // namespace

husk_status fft_c2c(const Arguments& args) {
  HUSK_TRY(args.check_tensor(0, 1, kMaxRank));
  HUSK_TRY(args.check_tensor(4));
  HUSK_TRY(args.check_same_shape(4, 0));
  HUSK_TRY(args.check_same_dtype(4, 0));
  if (!is_complex_dtype(args[0].dtype)) return args.unsupported_dtype(0);
  bool forward = true;
  HUSK_TRY(args.get_bool(3, forward));
  Transform t{};
  HUSK_TRY(read_transform(args, args[0].rank, args[0].sizes, -1, t));
  for (int64_t i = 0; i < t.count; ++i)
    HUSK_TRY(check_length(args, args[0].sizes[t.dims[i]], true));
  HUSK_TRY(copy_elements(args, 4, 0));
  Line line(args);
  for (int64_t i = 0; i < t.count; ++i) {
    const double scale = i == 0 ? t.scale : 1;
    if (args[4].dtype == HUSK_C64)
      transform_dim<float>(args, args[4], t.dims[i], forward, scale, line);
    else
      transform_dim<double>(args, args[4], t.dims[i], forward, scale, line);
  }
  return HUSK_OK;
}

husk_status fft_r2c(const Arguments& args) {
  HUSK_TRY(args.check_tensor(0, 1, kMaxRank));
  const int32_t rank = args[0].rank;
  HUSK_TRY(args.check_tensor(4, rank, rank));
  const bool wide = args[0].dtype == HUSK_F64;
  if (!wide && args[0].dtype != HUSK_F32) return args.unsupported_dtype(0);
  HUSK_TRY(args.check_dtype(4, wide ? HUSK_C128 : HUSK_C64));
  bool half = true;
  HUSK_TRY(args.get_bool(3, half));
  Transform t{};
  HUSK_TRY(read_transform(args, rank, args[0].sizes, -1, t));
  const int32_t last = t.dims[t.count - 1];
  for (int32_t d = 0; d < rank; ++d) {
    HUSK_TRY(args.check_size(4, d, d == last && half ? args[0].sizes[d] / 2 + 1 : args[0].sizes[d],
                             "the points of self"));
  }
  for (int64_t i = 0; i < t.count; ++i)
    HUSK_TRY(check_length(args, args[0].sizes[t.dims[i]], t.dims[i] != last));
  Line line(args);
  if (wide)
    real_to_complex<double>(args, args[0], args[4], last, t.scale, line);
  else
    real_to_complex<float>(args, args[0], args[4], last, t.scale, line);
  for (int64_t i = 0; i + 1 < t.count; ++i)
    if (wide)
      transform_dim<double>(args, args[4], t.dims[i], true, 1, line);
    else
      transform_dim<float>(args, args[4], t.dims[i], true, 1, line);
  return HUSK_OK;
}

husk_status fft_c2r(const Arguments& args) {
  HUSK_TRY(args.check_tensor(0, 1, kMaxRank));
  const int32_t rank = args[0].rank;
  HUSK_TRY(args.check_tensor(4, rank, rank));
  if (!is_complex_dtype(args[0].dtype)) return args.unsupported_dtype(0);
  const bool wide = args[0].dtype == HUSK_C128;
  HUSK_TRY(args.check_dtype(4, wide ? HUSK_F64 : HUSK_F32));
  int64_t size = 0;
  HUSK_TRY(args.get_int(3, size));
  HUSK_TRY(check_length(args, size, false));
  Transform t{};
  HUSK_TRY(read_transform(args, rank, args[0].sizes, size, t));
  if (t.count != 1)
    return args.argument_error(
        1, HUSK_UNSUPPORTED,
        "has several dimensions: apply _fft_c2c to all but the last of them first");
  for (int32_t d = 0; d < rank; ++d)
    HUSK_TRY(args.check_size(4, d, d == t.dims[0] ? size : args[0].sizes[d],
                             "last_dim_size, or self's"));
  HUSK_TRY(args.check_size(0, t.dims[0], size / 2 + 1, "half of last_dim_size, and one"));
  Line line(args);
  if (wide)
    complex_to_real<double>(args, args[0], args[4], t.dims[0], t.scale, line);
  else
    complex_to_real<float>(args, args[0], args[4], t.dims[0], t.scale, line);
  return HUSK_OK;
}

}  // namespace husk::host
