// aten::grid_sampler_2d and grid_sampler_3d. Each output is a weighted mean of inputs near a
// position, which is the same for all channels.
#include "nn/grid_sampler.h"

#include <cmath>

#include "contracts.h"
#include "core/arguments.h"
#include "core/element.h"
#include "core/kernel_choice.h"
#include "core/loop.h"
#include "core/parallel.h"
#include "device.h"
#include "error.h"
#include "nn/axes.h"

namespace husk::host {

namespace {

enum class Sampling { Linear = 0, Nearest = 1, Cubic = 2 };
enum class Padding { Zeros = 0, Border = 1, Reflection = 2 };

struct Grid {
  int64_t sizes[kAxes], strides[kAxes];  // of the input; 1 and 0 for an unused axis
  int dims;                              // 2 or 3
  Sampling mode;
  bool align;
  Padding padding;

  // The elements along an axis that a result depends on.
  int sides() const { return mode == Sampling::Cubic ? 4 : 2; }
  // The input elements that a result depends on.
  int corners() const { return mode == Sampling::Cubic ? 16 : 1 << dims; }
  // Maps a grid coordinate in [-1, 1] to a position along an axis. Cubic polynomials pad elements,
  // the other modes the position. Far positions of polynomials keep their side, and no polynomial
  // has a value at infinity, as in PyTorch.
  double position(double x, int64_t size) const {
    const double n = static_cast<double>(size);
    const double at = align ? (x + 1) / 2 * (n - 1) : ((x + 1) * n - 1) / 2;
    if (mode == Sampling::Cubic)
      return !std::isfinite(at) ? static_cast<double>(NAN) : std::fmin(std::fmax(at, -kFar), kFar);
    const double inside = padded(at, n);
    return inside > -kFar && inside < kFar ? inside : -kFar;  // NaN and far positions lie outside
  }
  // The place of an element of a cubic polynomial along an axis.
  int64_t place(int64_t at, int64_t size) const {
    if (is_within(at, size)) return at;
    return static_cast<int64_t>(padded(static_cast<double>(at), static_cast<double>(size)));
  }

 private:
  static constexpr double kFar = 1e9;

  double padded(double at, double n) const {
    if (padding == Padding::Reflection) at = align ? reflect(at, 0, n - 1) : reflect(at, -0.5, n);
    if (padding != Padding::Zeros) at = !(at > 0) ? 0 : at > n - 1 ? n - 1 : at;
    return at;
  }
  // Reflects x into [low, low + span].
  static double reflect(double x, double low, double span) {
    if (span == 0) return 0;
    const double beyond = std::fabs(x - low), rest = std::fmod(beyond, span);
    return std::fmod(std::floor(beyond / span), 2) == 0 ? rest + low : span - rest + low;
  }
};

// The largest int that is not above a position within 1e9. `floor` is a call on some CPUs.
int64_t floor_of(double position) {
  const int64_t whole = static_cast<int64_t>(position);
  return whole - (static_cast<double>(whole) > position);
}

// The weights of the elements before and behind a position between two elements, `part` behind the
// first. The cubic polynomials are those of PyTorch, whose second derivative at 1 is 0.75
// (aten/src/ATen/native/UpSample.h).
void set_weights(Sampling mode, double part, double (&weights)[4]) {
  if (mode != Sampling::Cubic) {
    weights[0] = 1 - part;
    weights[1] = part;
    return;
  }
  constexpr double a = -0.75;
  const auto near = [](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  weights[0] = far(part + 1);
  weights[1] = near(part);
  weights[2] = near(1 - part);
  weights[3] = far(2 - part);
}

// The elements along an axis that a result depends on, and their weights. Those outside of the
// input have the offset 0 and the weight 0.
struct Side {
  double weights[4];
  int64_t offsets[4];

  void set(const Grid& g, int d, double at) {
    const bool cubic = g.mode == Sampling::Cubic, nearest = g.mode == Sampling::Nearest;
    const int64_t low = std::isnan(at) ? 0
                        : nearest      ? static_cast<int64_t>(std::nearbyint(at))
                                       : floor_of(at);
    set_weights(g.mode, nearest ? 0 : at - static_cast<double>(low), weights);
    for (int side = 0; side < g.sides(); ++side) {
      const int64_t place = cubic ? g.place(low - 1 + side, g.sizes[d]) : low + side;
      const bool inside = is_within(place, g.sizes[d]);
      if (!inside) weights[side] = 0;
      offsets[side] = inside ? place * g.strides[d] : 0;
    }
  }
};

// Calls f(corner, weight, offset) for each element that the result at a position depends on.
template <class F>
void set_corners(const Grid& g, const double (&at)[kAxes], const F& f) {
  Side axes[kAxes];
  for (int d = kAxes - g.dims; d < kAxes; ++d) axes[d].set(g, d, at[d]);
  const int bits = g.sides() / 2;  // of a corner, for each axis
  for (int corner = 0; corner < g.corners(); ++corner) {
    int64_t offset = 0;
    double weight = 1;
    for (int d = kAxes - g.dims; d < kAxes; ++d) {
      const int side = corner >> (kAxes - 1 - d) * bits & (g.sides() - 1);
      weight *= axes[d].weights[side];
      offset += axes[d].offsets[side];
    }
    f(corner, weight, offset);
  }
}

// The input elements around the positions of a tile. Corners outside of the input have the offset 0
// and the weight 0.
template <class W>
struct Corners {
  int64_t offsets[GridTile::kCorners][GridTile::kMost];
  W weights[GridTile::kCorners][GridTile::kMost];

  // Sets those of position i. at[d] is the position along axis d.
  void set(const Grid& g, int64_t i, const double (&at)[kAxes]) {
    set_corners(g, at, [&](int corner, double weight, int64_t offset) {
      const W rounded = static_cast<W>(weight);
      weights[corner][i] = rounded;
      offsets[corner][i] = rounded != 0 ? offset : 0;
    });
  }
};

// The kernels that compute a tile.
struct GridKernels {
  GridPrepare prepare;
  GridSample sample;  // null if the kernels do not fit
};

constexpr KernelFor<GridPrepare> kGridPrepares[] = HUSK_KERNELS(grid_prepare);
constexpr KernelFor<GridSample> kGridSamples[] = HUSK_KERNELS(grid_sample);

// Kernels have offsets of 32 bits.
GridKernels grid_kernels(Features cpu, const Grid& g) {
  double reach = 0;
  for (int d = 0; d < kAxes; ++d)
    reach += static_cast<double>(g.sizes[d]) * std::fabs(static_cast<double>(g.strides[d]));
  if (reach >= 0x1p31) return {};
  return {best_kernel(cpu, kGridPrepares), best_kernel(cpu, kGridSamples)};
}

// The results of some positions that lie in a row of the output.
template <class T>
struct Sampler {
  using V = Value<T>;

  const husk_op_arg &input, &grid, &out;
  const Grid& g;
  GridKernels kernels;

  // Samples `count` positions, at most those of a tile, in all channels. at[] and steps[] are those
  // of the grid and the output.
  void sample(Cancellation& cancellation, int64_t image, const int64_t (&at)[2],
              const int64_t (&steps)[2], int64_t count) const {
    if (std::is_same_v<T, float> && kernels.sample)
      return by_kernel(cancellation, image, at, steps, count);
    Corners<V> corners;
    for (int64_t i = 0; i < count; ++i) {
      double positions[kAxes] = {};
      for (int d = kAxes - g.dims; d < kAxes; ++d) positions[d] = position(d, at[0] + i * steps[0]);
      corners.set(g, i, positions);
    }
    each_channel(cancellation, image, at, count, [&](const T* from, T* to) {
      for (int64_t i = 0; i < count; ++i) {
        V total = 0;
        for (int corner = 0; corner < g.corners(); ++corner) {
          const V weight = corners.weights[corner][i];
          if (weight != 0) total += weight * get(from + corners.offsets[corner][i]);
        }
        set(to + i * steps[1], total);
      }
    });
  }

 private:
  // The position along axis d that the grid has at an offset. The grid stores x first.
  double position(int d, int64_t at) const {
    const int64_t step = (kAxes - 1 - d) * grid.strides[grid.rank - 1];
    return g.position(static_cast<double>(get(data_of<T>(grid) + at + step)), g.sizes[d]);
  }

  // Calls f(address of the image, address of the results) for each channel.
  template <class F>
  void each_channel(Cancellation& cancellation, int64_t image, const int64_t (&at)[2],
                    int64_t count, const F& f) const {
    each_index_while(cancellation, out.sizes[1], [&](int64_t c) {
      if (cancellation.ends(count * g.corners())) return false;
      f(data_of<T>(input) + image * input.strides[0] + c * input.strides[1],
        writable<T>(out) + at[1] + c * out.strides[1]);
      return true;
    });
  }

  void prepare_cubic(GridTile& tile) const {
    for (int64_t i = 0; i < GridTile::kMost; ++i) {
      double at[kAxes] = {};
      for (int d = kAxes - g.dims; d < kAxes; ++d) at[d] = tile.positions[d][i];
      set_corners(g, at, [&](int corner, double weight, int64_t offset) {
        tile.weights[corner][i] = static_cast<float>(weight);
        tile.offsets[corner][i] = static_cast<int32_t>(offset);
      });
    }
  }

  void by_kernel(Cancellation& cancellation, int64_t image, const int64_t (&at)[2],
                 const int64_t (&steps)[2], int64_t count) const {
    GridTile tile;
    tile.count = count;
    tile.dims = g.dims;
    tile.nearest = g.mode == Sampling::Nearest;
    tile.corners = tile.nearest ? 1 : g.corners();
    for (int d = kAxes - g.dims; d < kAxes; ++d) {
      // A position is far below INT32_MAX, and a size that is larger has no strides.
      tile.sizes[d] = static_cast<int32_t>(g.sizes[d] < INT32_MAX ? g.sizes[d] : INT32_MAX);
      tile.strides[d] = g.sizes[d] > 1 ? static_cast<int32_t>(g.strides[d]) : 0;
      for (int64_t i = 0; i < GridTile::kMost; ++i)
        tile.positions[d][i] = i < count ? position(d, at[0] + i * steps[0]) : 0;
    }
    if (g.mode == Sampling::Cubic)
      prepare_cubic(tile);
    else
      kernels.prepare(tile);
    each_channel(cancellation, image, at, count, [&](const T* from, T* to) {
      if constexpr (std::is_same_v<T, float>) {
        alignas(64) float results[GridTile::kMost];
        kernels.sample(tile, from, results);
        for (int64_t i = 0; i < count; ++i) to[i * steps[1]] = results[i];
      }
    });
  }
};

template <class T>
void sample(const Arguments& args, Features cpu, const husk_op_arg& input, const husk_op_arg& grid,
            const husk_op_arg& out, const Grid& g) {
  if (numel(out) == 0) return;
  const Sampler<T> sampler{input, grid, out, g, grid_kernels(cpu, g)};
  // A part is a row of an image, or a plane of a volume: all but the first spatial dimension.
  Loop<2> part_positions(args);  // operands: grid, output
  const int32_t rank = out.rank;
  part_positions.rank = rank - 3;
  for (int32_t d = 0; d < part_positions.rank; ++d) {
    part_positions.sizes[d] = out.sizes[d + 3];
    part_positions.strides[0][d] = grid.strides[d + 2];
    part_positions.strides[1][d] = out.strides[d + 3];
  }
  part_positions.work = 16;
  const int64_t rows = out.sizes[2];
  const double work = static_cast<double>(numel(out)) * g.corners() * 16;
  run_in_parts(args, out.sizes[0] * rows, work, [&](Parts& taken) {
    Loop<2> positions = part_positions;
    positions.cancellation = &taken.cancellation;
    for (int64_t part = 0; taken.next(part);) {
      const int64_t image = part / rows, row = part % rows;
      each_row(positions, [&](const int64_t(&at)[2], int64_t count, const int64_t(&steps)[2]) {
        for (int64_t i = 0; i < count; i += GridTile::kMost) {
          const int64_t first[2] = {
              image * grid.strides[0] + row * grid.strides[1] + at[0] + i * steps[0],
              image * out.strides[0] + row * out.strides[2] + at[1] + i * steps[1]};
          const int64_t length = count - i < GridTile::kMost ? count - i : GridTile::kMost;
          sampler.sample(taken.cancellation, image, first, steps, length);
        }
      });
    }
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
  if (mode < 0 || mode > (dims == 2 ? 2 : 1))
    return args.argument_error(kInterpolationMode, HUSK_UNSUPPORTED,
                               "is not 0 (linear), 1 (nearest) or, of an image, 2 (cubic)");
  if (padding < 0 || padding > 2)
    return args.argument_error(kPaddingMode, HUSK_INVALID_ARGUMENT, "is not 0, 1 or 2");
  g.mode = static_cast<Sampling>(mode);
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
  Features cpu{};
  HUSK_TRY(args.get_features(cpu));
  return visit_argument<Floats | Halves>(args, kInput, [&](auto tag) {
    sample<typename decltype(tag)::type>(args, cpu, input, grid, out, g);
  });
}

}  // namespace

husk_status grid_sampler_2d(const Arguments& args) { return grid_sampler(args, 2); }
husk_status grid_sampler_3d(const Arguments& args) { return grid_sampler(args, 3); }

}  // namespace husk::host
