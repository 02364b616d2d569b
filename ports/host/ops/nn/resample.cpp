// aten::grid_sampler_2d, grid_sampler_3d and antialiased upsampling. Each output is a weighted mean
// of inputs near a position.
#include <algorithm>
#include <cmath>

#include "contracts.h"
#include "core/arguments.h"
#include "core/element.h"
#include "core/loop.h"
#include "error.h"
#include "nn/axes.h"

namespace husk::host {

namespace {

// ---- grid_sampler ----

enum class Padding { Zeros = 0, Border = 1, Reflection = 2 };

struct Grid {
  int64_t sizes[kAxes], strides[kAxes];  // of the input; 1 and 0 for an unused axis
  int dims;                              // 2 or 3
  bool nearest, align;
  Padding padding;

  // Maps a grid coordinate in [-1, 1] to a position along an axis.
  double position(double x, int64_t size) const {
    const double n = static_cast<double>(size);
    double at = align ? (x + 1) / 2 * (n - 1) : ((x + 1) * n - 1) / 2;
    if (padding == Padding::Reflection) at = align ? reflect(at, 0, n - 1) : reflect(at, -0.5, n);
    if (padding != Padding::Zeros) at = !(at > 0) ? 0 : at > n - 1 ? n - 1 : at;
    return at > -1e9 && at < 1e9 ? at : -1e9;  // NaN and far positions lie outside
  }

 private:
  // Reflects x into [low, low + span].
  static double reflect(double x, double low, double span) {
    if (span == 0) return 0;
    const double beyond = std::fabs(x - low), rest = std::fmod(beyond, span);
    return std::fmod(std::floor(beyond / span), 2) == 0 ? rest + low : span - rest + low;
  }
};

// The input elements around a position, and their weights.
struct Corners {
  int64_t first[kAxes];
  double part[kAxes];  // distance from `first`, in [0, 1)

  // Calls f(offset, weight) for each corner that lies inside of the input and has a weight other
  // than 0.
  template <class F>
  void visit(const Grid& g, F f) const {
    for (int corner = 0; corner < 8; ++corner) {
      int64_t offset = 0;
      double weight = 1;
      bool inside = true;
      for (int d = 0; d < kAxes; ++d) {
        const int step = corner >> (kAxes - 1 - d) & 1;
        const int64_t i = first[d] + step;
        weight *= step ? part[d] : 1 - part[d];
        inside &= i >= 0 && i < g.sizes[d];
        if (inside) offset += i * g.strides[d];
      }
      if (inside && weight != 0) f(offset, weight);
    }
  }
};

template <class T>
void sample(const Arguments& args, const husk_op_arg& input, const husk_op_arg& grid,
            const husk_op_arg& out, const Grid& g) {
  Loop<2> positions(args);  // over the output without its channels; operands: grid, output
  const int32_t rank = out.rank;
  positions.rank = rank - 1;
  for (int32_t d = 0; d < positions.rank; ++d) {
    const int32_t out_dim = d == 0 ? 0 : d + 1;
    positions.sizes[d] = out.sizes[out_dim];
    positions.strides[0][d] = grid.strides[d];
    positions.strides[1][d] = out.strides[out_dim];
  }
  if (numel(out) == 0) return;
  int64_t count = 0, each_image = numel(out) / out.sizes[0] / (out.sizes[1] ? out.sizes[1] : 1);
  each(positions, [&](const int64_t(&at)[2]) {
    const int64_t image = count++ / each_image;
    Corners corners{};
    for (int d = 0; d < kAxes; ++d) {
      const int from_end = kAxes - 1 - d;  // the grid stores x first
      if (from_end >= g.dims) continue;
      const double x = static_cast<double>(
          get(data_of<T>(grid) + at[0] + from_end * grid.strides[grid.rank - 1]));
      const double position = g.position(x, g.sizes[d]),
                   low = g.nearest ? std::nearbyint(position) : std::floor(position);
      corners.first[d] = static_cast<int64_t>(low);  // lies within 1e9
      corners.part[d] = g.nearest ? 0 : position - low;
    }
    each_index(args.cancellation, out.sizes[1], [&](int64_t c) {
      const T* from = data_of<T>(input) + image * input.strides[0] + c * input.strides[1];
      double total = 0;
      corners.visit(g, [&](int64_t offset, double weight) {
        total += weight * static_cast<double>(get(from + offset));
      });
      set(writable<T>(out) + at[1] + c * out.strides[1], static_cast<Value<T>>(total));
    });
  });
}

husk_status grid_sampler(const Arguments& args, int dims) {
  constexpr ArgumentsOf named("grid_sampler_2d", "grid_sampler_3d");
  constexpr uint32_t kInput = named["input"], kGrid = named["grid"],
                     kInterpolationMode = named["interpolation_mode"],
                     kPaddingMode = named["padding_mode"], kAlignCorners = named["align_corners"],
                     kOut = named["out"];
  const int32_t rank = dims + 2;
  HUSK_TRY(args.check_tensor(kInput, rank, rank));
  HUSK_TRY(args.check_tensor(kGrid, rank, rank));
  HUSK_TRY(args.check_tensor(kOut, rank, rank));
  HUSK_TRY(args.check_same_dtype(kGrid, kInput));
  HUSK_TRY(args.check_same_dtype(kOut, kInput));
  const husk_op_arg &input = args[kInput], &grid = args[kGrid], &out = args[kOut];
  int64_t mode = 0, padding = 0;
  Grid g{};
  HUSK_TRY(args.get_int(kInterpolationMode, mode));
  HUSK_TRY(args.get_int(kPaddingMode, padding));
  HUSK_TRY(args.get_bool(kAlignCorners, g.align));
  if (mode != 0 && mode != 1)
    return args.argument_error(kInterpolationMode, HUSK_UNSUPPORTED,
                               "is neither 0 (linear) nor 1 (nearest)");
  if (padding < 0 || padding > 2)
    return args.argument_error(kPaddingMode, HUSK_INVALID_ARGUMENT, "is not 0, 1 or 2");
  g.nearest = mode == 1;
  g.padding = static_cast<Padding>(padding);
  g.dims = dims;
  HUSK_TRY(args.check_size(kGrid, 0, input.sizes[0], "the input's images"));
  HUSK_TRY(args.check_size(kGrid, rank - 1, dims, "one for each axis"));
  HUSK_TRY(args.check_size(kOut, 0, input.sizes[0], "the input's images"));
  HUSK_TRY(args.check_size(kOut, 1, input.sizes[1], "the input's channels"));
  for (int32_t d = 2; d < rank; ++d)
    HUSK_TRY(args.check_size(kOut, d, grid.sizes[d - 1], "the grid's"));
  for (int d = 0; d < kAxes; ++d) {
    const int32_t at = rank - kAxes + d;
    g.sizes[d] = d < kAxes - dims ? 1 : input.sizes[at];
    g.strides[d] = d < kAxes - dims ? 0 : input.strides[at];
    if (g.sizes[d] == 0 && numel(out) > 0)
      return args.argument_error(kInput, HUSK_INVALID_INPUT, "has an empty spatial dimension");
  }
  return visit_argument<Floats | Halves>(args, kInput, [&](auto tag) {
    sample<typename decltype(tag)::type>(args, input, grid, out, g);
  });
}

// ---- upsampling with antialiasing ----

double linear_filter(double x) {
  x = std::fabs(x);
  return x < 1 ? 1 - x : 0;
}

// The cubic convolution filter of R. Keys with a = -1/2.
double cubic_filter(double x) {
  constexpr double kA = -0.5;
  x = std::fabs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
}

// The inputs that contribute to an output along one axis.
struct Window {
  static constexpr int64_t kKnown = 64;  // weights that are computed once

  int64_t first, count;
  double center, inverse, sum;
  double (*filter)(double);
  double known[kKnown];

  double weight(int64_t i) const { return i < kKnown ? known[i] : filtered(i) / sum; }
  double filtered(int64_t i) const {
    return filter((static_cast<double>(i + first) - center + 0.5) * inverse);
  }
};

struct Resize {
  Cancellation& cancellation;
  int64_t in, out;
  double scale;  // inputs per output
  double reach;  // of the filter, in inputs, before it is widened for downsampling
  double (*filter)(double);

  Window window(int64_t i) const {
    const double support = scale >= 1 ? reach * scale : reach;
    Window w;
    w.center = scale * (static_cast<double>(i) + 0.5);
    w.inverse = scale >= 1 ? 1 / scale : 1;
    w.filter = filter;
    w.first = input_at(w.center - support + 0.5);
    w.count = input_at(w.center + support + 0.5) - w.first;
    double sum = 0;
    each_index(cancellation, w.count, [&](int64_t k) {
      const double weight = w.filtered(k);
      if (k < Window::kKnown) w.known[k] = weight;
      sum += weight;
    });
    w.sum = sum != 0 ? sum : 1;
    for (int64_t k = 0; k < std::min(w.count, Window::kKnown); ++k) w.known[k] /= w.sum;
    return w;
  }

 private:
  // The number of the input at a position, limited to [0, in]. A scale may make the position any
  // number, even NaN.
  int64_t input_at(double position) const {
    if (!(position > 0)) return 0;
    return position < static_cast<double>(in) ? static_cast<int64_t>(position) : in;
  }
};

husk_status read_resize(const Arguments& args, int32_t at, ArgumentPlace scale_at, bool align,
                        Resize& r) {
  constexpr ArgumentsOf named("upsample_bilinear2d_aa", "upsample_bicubic2d_aa");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"];
  r.in = args[kSelf].sizes[at];
  r.out = args[kOut].sizes[at];
  const double in = static_cast<double>(r.in), out = static_cast<double>(r.out);
  if (align) {
    r.scale = r.out > 1 ? (in - 1) / (out - 1) : 0;
    return HUSK_OK;
  }
  double factor = 0;
  if (!args.none(scale_at)) HUSK_TRY(args.get_number(scale_at, factor));
  r.scale = factor > 0 ? 1 / factor : in / out;
  return HUSK_OK;
}

husk_status upsample(const Arguments& args, double reach, double (*filter)(double)) {
  constexpr ArgumentsOf named("upsample_bilinear2d_aa", "upsample_bicubic2d_aa");
  constexpr uint32_t kSelf = named["self"], kOutputSize = named["output_size"],
                     kAlignCorners = named["align_corners"], kScalesH = named["scales_h"],
                     kScalesW = named["scales_w"], kOut = named["out"];
  HUSK_TRY(args.check_tensor(kSelf, 4, 4));
  HUSK_TRY(args.check_tensor(kOut, 4, 4));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  HUSK_TRY(args.check_ints(kOutputSize, 2));
  const husk_op_arg &self = args[kSelf], &out = args[kOut];
  bool align = false;
  HUSK_TRY(args.get_bool(kAlignCorners, align));
  for (int32_t d = 0; d < 4; ++d)
    HUSK_TRY(args.check_size(kOut, d, d < 2 ? self.sizes[d] : args[kOutputSize].sizes[d - 2],
                             "output_size, or the input's"));
  if (numel(out) == 0) return HUSK_OK;
  if (numel(self) == 0) return args.argument_error(kSelf, HUSK_INVALID_INPUT, "has no elements");
  Resize rows{args.cancellation, 0, 0, 0, reach, filter}, columns = rows;
  HUSK_TRY(read_resize(args, 2, kScalesH, align, rows));
  HUSK_TRY(read_resize(args, 3, kScalesW, align, columns));
  Loop<2> planes(args);
  planes.shape(self);
  planes.add(1, out);
  planes.rank = 2;
  return visit_argument<Floats | Halves>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each_index_while(args.cancellation, rows.out, [&](int64_t y) {
      const Window vertical = rows.window(y);
      return each_index_while(args.cancellation, columns.out, [&](int64_t x) {
        const Window horizontal = columns.window(x);
        // Loops over a few weights do not report them, and one in another is many together.
        constexpr int64_t kWeightWork = 4;
        const int64_t few = kWeightWork * std::min(vertical.count, kUnreportedWork) *
                            std::min(horizontal.count, kUnreportedWork);
        return each_while(planes, [&](const int64_t(&at)[2]) {
          if (args.cancellation.ends(few)) return false;
          double total = 0;
          const bool summed = each_index_while(args.cancellation, vertical.count, [&](int64_t v) {
            const T* row = data_of<T>(self) + at[0] + (vertical.first + v) * self.strides[2];
            double sum = 0;
            const bool row_summed = each_index(args.cancellation, horizontal.count, [&](int64_t h) {
              sum += horizontal.weight(h) *
                     static_cast<double>(get(row + (horizontal.first + h) * self.strides[3]));
            });
            total += vertical.weight(v) * sum;
            return row_summed;
          });
          set(writable<T>(out) + at[1] + y * out.strides[2] + x * out.strides[3],
              static_cast<Value<T>>(total));
          return summed;
        });
      });
    });
  });
}

}  // namespace

husk_status grid_sampler_2d(const Arguments& args) { return grid_sampler(args, 2); }
husk_status grid_sampler_3d(const Arguments& args) { return grid_sampler(args, 3); }
husk_status upsample_bilinear2d_aa(const Arguments& args) {
  return upsample(args, 1, linear_filter);
}
husk_status upsample_bicubic2d_aa(const Arguments& args) { return upsample(args, 2, cubic_filter); }

}  // namespace husk::host
