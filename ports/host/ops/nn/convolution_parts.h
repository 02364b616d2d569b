// All methods of convolution_kernels.h share this: the positions and taps of a convolution, the end
// of a tile, and the division into parts.
#pragma once

#include "core/extremes.h"
#include "core/lanes.h"
#include "core/vector_math.h"
#include "nn/convolution.h"

namespace husk::host {
namespace {

// The vectors of channels in a tile. A tile has 24 vectors of sums if there are 32 vector
// registers, and 12 if there are 16.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kVectors = 4;
#else
constexpr int kVectors = 2;
#endif
constexpr int kMaxRows = 12;
template <int C>
constexpr int kTileRows = C > kVectors / 2 ? 6 : 12;
// The output channels of a part.
template <class T>
constexpr int64_t kBlock = kVectors * kLaneCount<T>;
constexpr int64_t kDepth = 512;          // the most pairs of tap and channel in a chunk
constexpr int64_t kSumDepth = 128;       // the most products that are summed in a row
constexpr int64_t kMaxTaps = 64;         // the most taps in a chunk
constexpr int64_t kPositions = 192;      // the most positions of a part
constexpr int64_t kThinPositions = 768;  // the most positions of a depthwise part
constexpr int64_t kMinParts = 8;         // fewer parts are divided further
constexpr int64_t kMinPositions = 24;    // the fewest positions of a part that is divided
constexpr int64_t kFewPositions = 8;     // the most positions for the method of dots
constexpr int64_t kBlocksAtOnce = 4;     // the most blocks of channels of a depthwise part
constexpr int64_t kBlocksTogether = 8;   // the most blocks of channels of a general part
// Winograd's method.
constexpr int64_t kWinogradBlock = 64;        // the output channels of a part
constexpr int64_t kWinogradTiles = 60;        // the most tiles of a part
constexpr int64_t kWinogradDepth = 32;        // the most input channels in a chunk
constexpr int64_t kWinogradMinParts = 4;      // fewer parts are divided further
constexpr int64_t kWinogradMinChannels = 16;  // fewer channels are multiplied as usual
constexpr int64_t kWinogradMinTiles = 12;     // fewer tiles are multiplied as usual

inline int64_t divide_up(int64_t a, int64_t b) { return (a - 1) / b + 1; }
template <class T>
int64_t whole_vectors(int64_t channels) {
  return divide_up(channels, kLaneCount<T>) * kLaneCount<T>;
}

// ---- scratch memory ----

// A class whose objects lie in scratch memory. This `new` is a member because the global one would
// be an inline function of the standard library.
struct InScratch {
  static void* operator new(size_t, void* at) { return at; }
};

// Makes the object with which a thread computes its parts. It is not destroyed.
template <class Part, class... Values>
Part& make(void* scratch, Values&&... values) {
  static_assert(sizeof(Part) <= kConvolutionScratch, "core/scratch.h");
  return *new (scratch) Part(values...);
}

// ---- positions ----

// The output positions with certain remainders, and the input coordinates that they read: position
// j along an axis is output coordinate first + j * out_step. Through a tap with offset `delta` it
// reads input coordinate j * in_step + delta. `low` and `high` bound the offsets of the taps.
struct Phase {
  struct {
    int64_t first, count, out_step, in_step, low, high;
  } axis[kAxes];
  int64_t positions;  // in all images
};

// The number of phases along an axis.
inline int64_t phases_along(const Convolution& c, int d) {
  return c.transposed ? smaller(c.axis[d].stride, c.axis[d].out) : 1;
}

inline int64_t divide_down(int64_t a, int64_t b) {
  return a / b - (a % b < 0);  // b > 0
}

inline Phase find_phase(const Convolution& c, int64_t index) {
  Phase phase = {};
  phase.positions = c.batch;
  for (int d = kAxes - 1; d >= 0; --d) {
    const ConvolutionAxis& a = c.axis[d];
    const int64_t count = phases_along(c, d), span = (a.kernel - 1) * a.dilation;
    auto& along = phase.axis[d];
    along.first = index % count;
    index /= count;
    if (c.transposed) {
      along.count = divide_up(a.out - along.first, a.stride);
      along.out_step = a.stride;
      along.in_step = 1;
      along.low = divide_down(along.first + a.padding - span, a.stride);
      along.high = divide_down(along.first + a.padding, a.stride);
    } else {
      along.count = a.out;
      along.out_step = 1;
      along.in_step = a.stride;
      along.low = -a.padding;
      along.high = span - a.padding;
    }
    phase.positions *= along.count;
  }
  return phase;
}

// One output position: offsets in the tensors, and the input coordinates for a tap offset of 0.
// Coordinates may lie outside of the input, where offsets may not fit an int64_t. Hence offsets of
// the input wrap around.
struct alignas(64) Row {
  uint64_t in;
  int64_t out, residual;
  int64_t at[kAxes];
  bool inside;  // all taps read elements of the input
};

// The numbers of a Row, which are added together. They are as many vectors as the instruction set
// needs: of one longer vector, GCC keeps the parts in memory.
struct RowNumbers {
  static constexpr int kCount = 64 / HUSK_VECTOR_BYTES;
  typedef uint64_t Numbers __attribute__((vector_size(HUSK_VECTOR_BYTES)));
  Numbers numbers[kCount];

  RowNumbers() = default;
  explicit RowNumbers(const Row& row) { __builtin_memcpy(numbers, &row, sizeof numbers); }
  void write(Row* row) const { __builtin_memcpy(static_cast<void*>(row), numbers, sizeof numbers); }
  RowNumbers& operator+=(const RowNumbers& other) {
    HUSK_UNROLL
    for (int i = 0; i < kCount; ++i) numbers[i] += other.numbers[i];
    return *this;
  }
};
static_assert(sizeof(Row) == sizeof(RowNumbers), "a row is copied as numbers");

// Visits the positions of a phase in order. The rows are added as vectors and not made of their
// numbers each time, because a CPU reads a vector that it has just written in parts only after all
// earlier writes have reached the cache.
class Positions {
 public:
  Positions(const Convolution& convolution, const Phase& of, int64_t position)
      : c(convolution), phase(of) {
    find_step(kLast, step);
    find_step(kLast - 1, line_step);
    for (int d = kLast; d >= 0; --d) {
      j[d] = position % phase.axis[d].count;
      position /= phase.axis[d].count;
    }
    image = position;
    find_line();
    for (int i = 0; i < RowNumbers::kCount; ++i)
      row.numbers[i] += step.numbers[i] * static_cast<uint64_t>(j[kLast]);
  }

  // Writes the next `count` positions to `rows`.
  void next(Row* rows, int64_t count) {
    const ConvolutionAxis& a = c.axis[kLast];
    const auto along = phase.axis[kLast];
    while (count > 0) {
      const int64_t length = smaller(count, along.count - j[kLast]);
      int64_t at = j[kLast] * along.in_step;
      RowNumbers position = row;
      for (int64_t i = 0; i < length; ++i, ++rows, at += along.in_step, position += step) {
        position.write(rows);
        rows->inside = line_inside && at + along.low >= 0 && at + along.high < a.in;
      }
      row = position;
      j[kLast] += length;
      count -= length;
      if (j[kLast] == along.count) next_line();
    }
  }

 private:
  static constexpr int kLast = kAxes - 1;

  // From a position to the next one along an axis.
  void find_step(int d, RowNumbers& numbers) const {
    const ConvolutionAxis& a = c.axis[d];
    const auto& along = phase.axis[d];
    Row steps = {};
    steps.in = static_cast<uint64_t>(along.in_step) * static_cast<uint64_t>(a.in_stride);
    steps.out = along.out_step * a.out_stride;
    steps.residual = along.out_step * a.residual_stride;
    steps.at[d] = along.in_step;
    numbers = RowNumbers(steps);
  }
  void next_line() {
    j[kLast] = 0;
    if (++j[kLast - 1] < phase.axis[kLast - 1].count) {
      line += line_step;
      begin_line();
      return;
    }
    for (int d = kLast - 1; j[d] == phase.axis[d].count; --d) {
      j[d] = 0;
      if (d == 0) {
        ++image;
        break;
      }
      ++j[d - 1];
    }
    find_line();
  }
  void begin_line() {
    row = line;
    line_inside = true;
    for (int d = 0; d < kLast; ++d) {
      const int64_t at = j[d] * phase.axis[d].in_step;
      line_inside &= at + phase.axis[d].low >= 0 && at + phase.axis[d].high < c.axis[d].in;
    }
  }
  // Finds the first position of a line.
  void find_line() {
    Row first = {};
    first.in = static_cast<uint64_t>(image) * static_cast<uint64_t>(c.input_image);
    first.out = image * c.out_image;
    first.residual = image * c.residual_image;
    for (int d = 0; d < kAxes; ++d) {
      const ConvolutionAxis& a = c.axis[d];
      const auto& along = phase.axis[d];
      const int64_t at = d < kLast ? j[d] : 0, out = along.first + at * along.out_step;
      first.at[d] = at * along.in_step;
      first.in += static_cast<uint64_t>(first.at[d]) * static_cast<uint64_t>(a.in_stride);
      first.out += out * a.out_stride;
      first.residual += out * a.residual_stride;
    }
    line = RowNumbers(first);
    begin_line();
  }

  const Convolution& c;
  const Phase& phase;
  int64_t image, j[kAxes];
  RowNumbers step, line_step;
  RowNumbers line, row;  // the first position of the line, and the next position; without `inside`
  bool line_inside;      // along all axes but the last one
};

// ---- taps ----

struct Tap {
  int64_t delta[kAxes];
  uint64_t in;     // the offset of the input element for the coordinates `delta`
  int64_t weight;  // the offset in the weights
};

// Finds tap `index` of the kernel. Returns false if no position of the phase reads through it.
inline bool find_tap(const Convolution& c, const Phase& phase, int64_t index, Tap& tap) {
  tap.in = 0;
  tap.weight = 0;
  for (int d = kAxes - 1; d >= 0; --d) {
    const ConvolutionAxis& a = c.axis[d];
    const int64_t k = index % a.kernel;
    index /= a.kernel;
    if (c.transposed) {
      const int64_t delta = phase.axis[d].first + a.padding - k * a.dilation;
      if (delta % a.stride != 0) return false;
      tap.delta[d] = delta / a.stride;
    } else {
      tap.delta[d] = k * a.dilation - a.padding;
    }
    tap.in += static_cast<uint64_t>(tap.delta[d]) * static_cast<uint64_t>(a.in_stride);
    tap.weight += k * a.kernel_stride;
  }
  return true;
}

inline bool reads_inside(const Convolution& c, const Row& row, const Tap& tap) {
  for (int d = 0; d < kAxes; ++d) {
    const int64_t i = row.at[d] + tap.delta[d];
    if (i < 0 || i >= c.axis[d].in) return false;
  }
  return true;
}

// Zeros that positions outside of the input read.
template <class S>
struct Zeros {
  S values[kDepth];
};
template <class S>
alignas(64) constexpr Zeros<S> kZeros = {};

// ---- the end of a tile ----

// The factors and summands of output channels, in whole vectors.
template <class T>
struct Affine {
  const T *scale, *shift;
};

// Room for those of N output channels.
template <class T, int64_t N>
struct AffineValues {
  alignas(64) T scale[N];
  alignas(64) T shift[N];

  template <class S>
  void read(const Convolution& c, int64_t channel, int64_t channels) {
    const S *scales = static_cast<const S*>(c.scale), *shifts = static_cast<const S*>(c.shift);
    for (int64_t o = 0; o < N && o < whole_vectors<T>(channels); ++o) {
      const bool used = o < channels;
      scale[o] = scales && used ? load_one(scales + (channel + o) * c.scale_stride) : T(1);
      shift[o] = shifts && used ? load_one(shifts + (channel + o) * c.shift_stride) : T(0);
    }
  }
  // Returns the values from channel `o` of the N on. `o` is a multiple of the lanes of a vector.
  Affine<T> from(int64_t o) const { return {scale + o, shift + o}; }
};

// Computes `count` lanes of the result of one position, at most a vector, from their sums.
template <class T, class S, Activation A>
inline void finish_lanes(const Convolution& c, Vector<T> v, const S* residual, S* to,
                         int64_t count) {
  if (residual && c.residual_channel == 1) {
    v += load_some<T>(residual, count);
  } else if (residual) {
    for (int i = 0; i < count; ++i) v[i] += load_one(residual + i * c.residual_channel);
  }
  v = activate<T, A>(v);
  if (c.out_channel == 1) {
    store_some<T>(to, v, count);
  } else {
    for (int i = 0; i < count; ++i) store_one(to + i * c.out_channel, v[i]);
  }
}

// Positions whose results, and whose elements of the residual, are equally far apart.
struct EvenRows {
  int64_t count, out, residual;  // the offsets of the first position
  int64_t out_step, residual_step;

  EvenRows(int64_t rows, int64_t first_out, int64_t first_residual, int64_t from_out_to_out,
           int64_t from_residual_to_residual)
      : count(rows),
        out(first_out),
        residual(first_residual),
        out_step(from_out_to_out),
        residual_step(from_residual_to_residual) {}
  // The longest begin of `rows` that is even.
  EvenRows(const Row* rows, int64_t most)
      : count(1), out(rows[0].out), residual(rows[0].residual), out_step(0), residual_step(0) {
    if (most == 1) return;
    out_step = rows[1].out - out;
    residual_step = rows[1].residual - residual;
    do {
      ++count;
    } while (count < most && rows[count].out - rows[count - 1].out == out_step &&
             rows[count].residual - rows[count - 1].residual == residual_step);
  }
};

// Where the results of such positions lie for a block of channels that are adjacent in memory.
template <class T, class S>
struct EvenOutput {
  Affine<T> affine;
  S* out;             // of the first position
  const S* residual;  // null if nothing is added
  int64_t out_step, residual_step;
  int64_t lanes;  // the channels of the last vector

  // Channel `channel` is the first of `channels`.
  EvenOutput(const Convolution& c, Affine<T> values, const EvenRows& rows, int64_t channel,
             int64_t channels)
      : affine(values),
        out(static_cast<S*>(c.out) + channel + rows.out),
        residual(c.residual ? static_cast<const S*>(c.residual) + channel + rows.residual
                            : nullptr),
        out_step(rows.out_step),
        residual_step(rows.residual_step),
        lanes((channels - 1) % kLaneCount<T> + 1) {}
};

// Whether the channels of the results and of what is added to them are adjacent.
inline bool has_adjacent_outputs(const Convolution& c) {
  return c.out_channel == 1 && (!c.residual || c.residual_channel == 1);
}

// Computes the results of `rows` positions for V vectors of channels, or if V is 0 for `count` of
// them, which for one position may be any number. With Whole the last vector has all its channels.
// Each position is written as a whole before the next one, because a CPU fetches lines ahead of
// writes only if these follow each other. For the same reason the addresses are computed and not
// read from memory: writes to addresses that are known late wait for their lines one after another.
template <class T, class S, Activation A, int V, bool Whole>
void finish_vectors(const EvenOutput<T, S>& to, int64_t rows, const T* sums, int64_t count) {
  constexpr int L = kLaneCount<T>;
  const int64_t vectors = V ? V : count;
  Vector<T> scale[V + 1], shift[V + 1];
  HUSK_UNROLL
  for (int v = 0; v < V; ++v) {
    scale[v] = load(to.affine.scale + v * L);
    shift[v] = load(to.affine.shift + v * L);
  }
  S* out = to.out;
  const S* residual = to.residual;
  const int64_t out_step = to.out_step, residual_step = to.residual_step;
  const auto finish_vector = [&](int64_t v) {
    Vector<T> sum;
    if constexpr (V == 0)
      sum = load(sums + v * L) * load(to.affine.scale + v * L) + load(to.affine.shift + v * L);
    else
      sum = load(sums + v * L) * scale[v] + shift[v];
    if constexpr (Whole) {
      if (residual) sum += Vector<T>(load(residual + v * L));
      store(out + v * L, activate<T, A>(sum));
    } else {
      const int64_t lanes = v < vectors - 1 ? L : to.lanes;
      if (residual) sum += load_some<T>(residual + v * L, lanes);
      store_some<T>(out + v * L, activate<T, A>(sum), lanes);
    }
  };
  for (int64_t r = 0; r < rows; ++r) {
    if constexpr (V == 0) {
      for (int64_t v = 0; v < vectors; ++v) finish_vector(v);
    } else {
      HUSK_UNROLL
      for (int64_t v = 0; v < V; ++v) finish_vector(v);
    }
    sums += kBlock<T>;
    out += out_step;
    if (residual) residual += residual_step;
  }
}

template <class T, class S, Activation A, int V>
void finish_vectors(const EvenOutput<T, S>& to, int64_t rows, const T* sums) {
  to.lanes == kLaneCount<T> ? finish_vectors<T, S, A, V, true>(to, rows, sums, V)
                            : finish_vectors<T, S, A, V, false>(to, rows, sums, V);
}

template <class T, class S, Activation A>
void finish_adjacent(const EvenOutput<T, S>& to, int64_t rows, const T* sums, int64_t vectors) {
  // The other activations take so long that a loop over the vectors costs little beside them.
  if constexpr (A > Activation::Hardswish)
    return finish_vectors<T, S, A, 0, false>(to, rows, sums, vectors);
  if (vectors > kVectors) return finish_vectors<T, S, A, 0, false>(to, rows, sums, vectors);
  if constexpr (kVectors == 4) {
    if (vectors == 4) return finish_vectors<T, S, A, 4>(to, rows, sums);
    if (vectors == 3) return finish_vectors<T, S, A, 3>(to, rows, sums);
  }
  if (vectors == 2) return finish_vectors<T, S, A, 2>(to, rows, sums);
  finish_vectors<T, S, A, 1>(to, rows, sums);
}

template <class T, class S, Activation A>
void finish_even(const Convolution& c, Affine<T> affine, const EvenRows& rows, const T* sums,
                 int64_t channel, int64_t channels) {
  constexpr int L = kLaneCount<T>;
  if (has_adjacent_outputs(c))
    return finish_adjacent<T, S, A>(EvenOutput<T, S>(c, affine, rows, channel, channels),
                                    rows.count, sums, divide_up(channels, L));
  S* out = static_cast<S*>(c.out) + channel * c.out_channel + rows.out;
  const S* residual = nullptr;
  if (c.residual)
    residual = static_cast<const S*>(c.residual) + channel * c.residual_channel + rows.residual;
  for (int64_t o = 0; o < channels; o += L) {
    const Vector<T> scale = load(affine.scale + o), shift = load(affine.shift + o);
    for (int64_t r = 0; r < rows.count; ++r) {
      finish_lanes<T, S, A>(
          c, load(sums + r * kBlock<T> + o) * scale + shift,
          residual ? residual + r * rows.residual_step + o * c.residual_channel : nullptr,
          out + r * rows.out_step + o * c.out_channel, smaller(L, channels - o));
    }
  }
}

// Fetches the lines of memory that the results of positions are written to, and those that are read
// for them, while other work is done.
template <class S>
inline void fetch_outputs(const Convolution& c, const EvenRows& rows, int64_t channel,
                          int64_t channels) {
  if (c.out_channel != 1) return;
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(S));
  const bool adds = c.residual && c.residual_channel == 1;
  int64_t out = rows.out, residual = rows.residual;
  for (int64_t r = 0; r < rows.count; ++r, out += rows.out_step, residual += rows.residual_step) {
    for (int64_t o = channel; o < channel + channels; o += kLine) {
      __builtin_prefetch(static_cast<const S*>(c.out) + out + o, 1);
      if (adds) __builtin_prefetch(static_cast<const S*>(c.residual) + residual + o, 0);
    }
  }
}

// Writes the elements of positions and of the output channels [channel, channel + channels), from
// sums with a pitch of kBlock. More than kBlock channels are possible for one position.
template <class T, class S>
void finish(const Convolution& c, Affine<T> affine, const EvenRows& rows, const T* sums,
            int64_t channel, int64_t channels) {
#define HUSK_CASE(A)  \
  case Activation::A: \
    return finish_even<T, S, Activation::A>(c, affine, rows, sums, channel, channels);
  switch (c.activation) {
    HUSK_CASE(None)
#define HUSK_ACTIVATION(Name, name) HUSK_CASE(Name)
#include <activations.def>
  }
#undef HUSK_CASE
}
template <class T, class S>
void finish(const Convolution& c, Affine<T> affine, const Row* rows, int64_t row_count,
            const T* sums, int64_t channel, int64_t channels) {
  for (int64_t r = 0; r < row_count;) {
    const EvenRows even(rows + r, row_count - r);
    finish<T, S>(c, affine, even, sums + r * kBlock<T>, channel, channels);
    r += even.count;
  }
}

// ---- division into parts ----

enum class Method { kGeneral, kDepthwise, kDots, kWinograd };

struct Plan {
  Method method;
  int64_t block;           // output channels of a block
  int64_t blocks;          // blocks of a part; more than one only in the general method
  int64_t channel_blocks;  // parts along the channels of a group, or if depthwise of all groups
  int64_t phases;
  int64_t positions;  // the most of a phase; for Winograd's method its tiles
  int64_t position_block, position_blocks;
  int64_t parts;
};

// Whether Winograd's method computes a convolution: it has taps of 3 x 3 that are adjacent, and
// enough channels and positions to pay for transforming its weights.
template <class T>
bool suits_winograd(const Convolution& c) {
  if (sizeof(T) != sizeof(float) || c.transposed || c.input_channel != 1) return false;
  const ConvolutionAxis& depth = c.axis[0];
  if (depth.kernel != 1 || depth.stride != 1 || depth.padding != 0) return false;
  int64_t tiles = c.batch * depth.out;
  for (int d = 1; d < kAxes; ++d) {
    const ConvolutionAxis& a = c.axis[d];
    if (a.kernel != 3 || a.stride != 1 || a.dilation != 1) return false;
    tiles *= divide_up(a.out, 2);
  }
  return c.in_channels >= kWinogradMinChannels && c.out_channels >= kWinogradMinChannels &&
         tiles >= kWinogradMinTiles;
}

// The size of equal parts of `count` of at most `most` each, a multiple of `step`.
inline int64_t divide_evenly(int64_t count, int64_t most, int64_t step) {
  const int64_t steps = divide_up(count, step);
  return divide_up(steps, divide_up(steps, most / step)) * step;
}

// The most blocks of output channels of a part of the general method: their packed weights fit the
// room for those of one block.
template <class T>
int64_t most_blocks(const Convolution& c, const Plan& plan) {
  if (c.taps == 0 || c.taps > kMaxTaps || c.in_channels == 0 || c.in_channels > kDepth / c.taps)
    return 1;
  return larger(
      1, smaller(kBlocksTogether, kDepth * kBlock<T> / (c.in_channels * c.taps * plan.block)));
}

template <class T>
Plan make_plan(const Convolution& c) {
  Plan plan;
  plan.phases = 1;
  plan.positions = c.batch;
  for (int d = 0; d < kAxes; ++d) {
    plan.phases *= phases_along(c, d);
    plan.positions *= divide_up(c.axis[d].out, phases_along(c, d));
  }
  const bool plain = !c.transposed && c.input_channel == 1;
  plan.method = Method::kGeneral;
  if (plain && c.in_channels == 1 && c.out_channels == 1 && c.groups > 1 && c.taps > 0 &&
      c.taps <= kDepth)
    plan.method = Method::kDepthwise;
  if (!c.packs && plain && c.taps == 1 && c.weight_in == 1 && c.in_channels >= kLaneCount<T> &&
      plan.positions <= kFewPositions)
    plan.method = Method::kDots;
  if (plan.method == Method::kGeneral && suits_winograd<T>(c)) {
    plan.method = Method::kWinograd;
    plan.positions = c.batch * c.axis[0].out;
    for (int d = 1; d < kAxes; ++d) plan.positions *= divide_up(c.axis[d].out, 2);
  }
  int64_t most = kPositions, others = c.groups;
  plan.blocks = 1;
  if (plan.method == Method::kDepthwise) {
    plan.block = kBlock<T> * larger(1, smaller(kBlocksAtOnce, kDepth / c.taps));
    plan.channel_blocks = divide_up(c.groups, plan.block);
    most = kThinPositions;
    others = 1;
  } else {
    const int64_t most_channels = plan.method == Method::kWinograd ? kWinogradBlock : kBlock<T>;
    plan.block = divide_evenly(c.out_channels, most_channels, kLaneCount<T>);
    plan.channel_blocks = divide_up(c.out_channels, plan.block);
    if (plan.method == Method::kGeneral) {
      const int64_t blocks = plan.channel_blocks;
      plan.channel_blocks = divide_up(blocks, most_blocks<T>(c, plan));
      plan.blocks = divide_up(blocks, plan.channel_blocks);
      plan.channel_blocks = divide_up(blocks, plan.blocks);
    }
  }
  int64_t min_parts = kMinParts;
  if (plan.method == Method::kWinograd) {
    most = kWinogradTiles;
    min_parts = kWinogradMinParts;
  }
  others *= plan.channel_blocks * plan.phases;
  const int64_t wanted = divide_up(min_parts, smaller(others, min_parts));
  most = smaller(most, larger(kMinPositions, divide_up(plan.positions, wanted)));
  plan.position_blocks = divide_up(plan.positions, most);
  plan.position_block = divide_up(divide_up(plan.positions, plan.position_blocks), kMaxRows) *
                        kMaxRows;
  plan.position_blocks = divide_up(plan.positions, plan.position_block);
  plan.parts = others * plan.position_blocks;
  return plan;
}

// ---- packed weights ----

// What packed weights begin with: the choices and numbers that they depend on. It is as large as a
// line of the cache, so that the weights after it are aligned to lines.
struct PackedHeader {
  int64_t method, block, groups, in_channels, out_channels, taps;
  int64_t unused[2] = {};

  PackedHeader(const Convolution& c, const Plan& plan)
      : method(static_cast<int64_t>(plan.method)),
        block(plan.block),
        groups(c.groups),
        in_channels(c.in_channels),
        out_channels(c.out_channels),
        taps(c.taps) {}
  bool operator==(const PackedHeader& other) const {
    return method == other.method && block == other.block && groups == other.groups &&
           in_channels == other.in_channels && out_channels == other.out_channels &&
           taps == other.taps;
  }
};

// Returns the packed weights, or null if there are none for this plan.
template <class T>
const T* packed_weights(const Convolution& c, const Plan& plan) {
  const auto* header = static_cast<const PackedHeader*>(c.packed);
  return header && *header == PackedHeader(c, plan) ? reinterpret_cast<const T*>(header + 1)
                                                    : nullptr;
}

struct Part {
  int64_t group, channel_block, phase, position_block;

  Part(const Plan& plan, int64_t index) {
    position_block = index % plan.position_blocks;
    index /= plan.position_blocks;
    phase = index % plan.phases;
    index /= plan.phases;
    channel_block = index % plan.channel_blocks;
    group = index / plan.channel_blocks;
  }
};

}  // namespace
}  // namespace husk::host
