// The kernels of a convolution. Vectors lie along the output channels, whose weights are packed,
// and each element of the input is multiplied with whole vectors of weights. Inputs and outputs
// whose channels are adjacent (channels last) are fastest, and any strides are possible.
//
// - General: a part computes a block of output positions for a block of output channels. The depth,
//   which is the pairs of a tap and an input channel, is divided into chunks whose packed weights
//   stay in the second-level cache. The sums of a tile, some positions by some vectors of channels,
//   stay in registers during a chunk.
// - Depthwise: each group has one input channel and one output channel, and vectors lie along the
//   groups.
// - Dots: a kernel with one tap and few output positions. Vectors lie along the input channels, and
//   the weights are read in place, because packing would take longer than multiplying.
//
// A transposed convolution with a stride is divided into phases: the output positions with equal
// remainders of the strides read the input through the same taps.
#pragma once

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

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t divide_up(int64_t a, int64_t b) { return (a - 1) / b + 1; }

// ---- parts of vectors ----

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
struct Row {
  uint64_t in;
  int64_t out, residual;
  int64_t at[kAxes];
  bool inside;  // all taps read elements of the input
};

// Visits the positions of a phase in order.
class Positions {
 public:
  Positions(const Convolution& convolution, const Phase& of, int64_t position)
      : c(convolution), phase(of) {
    for (int d = kAxes - 1; d >= 0; --d) {
      j[d] = position % phase.axis[d].count;
      position /= phase.axis[d].count;
    }
    image = position;
    find_row();
  }

  Row next() {
    const Row row = here;
    constexpr int last = kAxes - 1;
    const ConvolutionAxis& a = c.axis[last];
    const auto& along = phase.axis[last];
    if (++j[last] < along.count) {
      here.at[last] += along.in_step;
      here.in += static_cast<uint64_t>(along.in_step) * static_cast<uint64_t>(a.in_stride);
      here.out += along.out_step * a.out_stride;
      here.residual += along.out_step * a.residual_stride;
      here.inside = line_inside && is_inside(last);
      return row;
    }
    for (int d = last; j[d] == phase.axis[d].count; --d) {
      j[d] = 0;
      if (d == 0) {
        ++image;
        break;
      }
      ++j[d - 1];
    }
    find_row();
    return row;
  }

 private:
  bool is_inside(int d) const {
    return here.at[d] + phase.axis[d].low >= 0 && here.at[d] + phase.axis[d].high < c.axis[d].in;
  }
  void find_row() {
    here.in = static_cast<uint64_t>(image) * static_cast<uint64_t>(c.input_image);
    here.out = image * c.out_image;
    here.residual = image * c.residual_image;
    line_inside = true;
    for (int d = 0; d < kAxes; ++d) {
      const ConvolutionAxis& a = c.axis[d];
      const auto& along = phase.axis[d];
      const int64_t out = along.first + j[d] * along.out_step;
      here.at[d] = j[d] * along.in_step;
      here.in += static_cast<uint64_t>(here.at[d]) * static_cast<uint64_t>(a.in_stride);
      here.out += out * a.out_stride;
      here.residual += out * a.residual_stride;
      if (d < kAxes - 1) line_inside &= is_inside(d);
    }
    here.inside = line_inside && is_inside(kAxes - 1);
  }

  const Convolution& c;
  const Phase& phase;
  int64_t image, j[kAxes];
  Row here;          // the next position
  bool line_inside;  // along all axes but the last one
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

// ---- the end of a tile ----

// The factors and summands of a block of output channels.
template <class T>
struct Affine {
  bool scaled, shifted;
  alignas(64) T scale[kBlock<T>];
  alignas(64) T shift[kBlock<T>];

  template <class S>
  void read(const Convolution& c, int64_t channel, int64_t channels) {
    scaled = c.scale != nullptr;
    shifted = c.shift != nullptr;
    const S *scales = static_cast<const S*>(c.scale), *shifts = static_cast<const S*>(c.shift);
    for (int64_t o = 0; o < kBlock<T>; ++o) {
      const bool used = o < channels;
      scale[o] = scaled && used ? load_one(scales + (channel + o) * c.scale_stride) : T(0);
      shift[o] = shifted && used ? load_one(shifts + (channel + o) * c.shift_stride) : T(0);
    }
  }
};

// Computes `count` lanes of the result of one position from their sums.
template <class T, class S, Activation A>
inline void finish_lanes(const Convolution& c, const Affine<T>& affine, const T* sums,
                         const S* residual, S* to, int64_t o, int64_t count) {
  Vector<T> v = load(sums + o);
  if (affine.scaled) v *= load(affine.scale + o);
  if (affine.shifted) v += load(affine.shift + o);
  if (residual && c.residual_channel == 1) {
    v += load_some<T>(residual + o, count);
  } else if (residual) {
    for (int i = 0; i < count; ++i) v[i] += load_one(residual + (o + i) * c.residual_channel);
  }
  v = activate<T, A>(v);
  if (c.out_channel == 1) {
    store_some<T>(to + o, v, count);
  } else {
    for (int i = 0; i < count; ++i) store_one(to + (o + i) * c.out_channel, v[i]);
  }
}

template <class T, class S, Activation A>
void finish_rows(const Convolution& c, const Affine<T>& affine, const Row* rows, int64_t row_count,
                 const T* sums, int64_t channel, int64_t channels) {
  constexpr int L = kLaneCount<T>;
  const int64_t whole = channels - channels % L;
  for (int64_t r = 0; r < row_count; ++r, sums += kBlock<T>) {
    S* to = static_cast<S*>(c.out) + rows[r].out + channel * c.out_channel;
    const S* residual = c.residual ? static_cast<const S*>(c.residual) + rows[r].residual +
                                         channel * c.residual_channel
                                   : nullptr;
    for (int64_t o = 0; o < whole; o += L)
      finish_lanes<T, S, A>(c, affine, sums, residual, to, o, L);
    if (whole < channels)
      finish_lanes<T, S, A>(c, affine, sums, residual, to, whole, channels - whole);
  }
}

// Writes the elements of `row_count` positions and the output channels [channel, channel +
// channels), from sums with a pitch of kBlock.
template <class T, class S>
void finish(const Convolution& c, const Affine<T>& affine, const Row* rows, int64_t row_count,
            const T* sums, int64_t channel, int64_t channels) {
#define HUSK_CASE(A)  \
  case Activation::A: \
    return finish_rows<T, S, Activation::A>(c, affine, rows, row_count, sums, channel, channels);
  switch (c.activation) {
    HUSK_CASE(None)
    HUSK_CASE(Relu)
    HUSK_CASE(Relu6)
    HUSK_CASE(Hardsigmoid)
    HUSK_CASE(Hardswish)
    HUSK_CASE(Sigmoid)
    HUSK_CASE(Silu)
    HUSK_CASE(Tanh)
    HUSK_CASE(Gelu)
    HUSK_CASE(GeluTanh)
  }
#undef HUSK_CASE
}

// ---- division into parts ----

enum class Method { kGeneral, kDepthwise, kDots };

struct Plan {
  Method method;
  int64_t block;           // output channels of a part
  int64_t channel_blocks;  // in a group, or for the depthwise method in all groups
  int64_t phases;
  int64_t positions;  // the most of a phase
  int64_t position_block, position_blocks;
  int64_t parts;
};

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
  if (plain && c.taps == 1 && c.weight_in == 1 && c.in_channels >= kLaneCount<T> &&
      plan.positions <= kFewPositions)
    plan.method = Method::kDots;
  plan.block = kBlock<T>;
  int64_t most = kPositions, others = c.groups;
  if (plan.method == Method::kDepthwise) {
    plan.block *= larger(1, smaller(kBlocksAtOnce, kDepth / c.taps));
    plan.channel_blocks = divide_up(c.groups, plan.block);
    most = kThinPositions;
    others = 1;
  } else {
    plan.channel_blocks = divide_up(c.out_channels, plan.block);
  }
  others *= plan.channel_blocks * plan.phases;
  const int64_t wanted = divide_up(kMinParts, smaller(others, kMinParts));
  most = smaller(most, larger(kMinPositions, divide_up(plan.positions, wanted)));
  plan.position_blocks = divide_up(plan.positions, most);
  plan.position_block = divide_up(divide_up(plan.positions, plan.position_blocks), kMaxRows) *
                        kMaxRows;
  plan.position_blocks = divide_up(plan.positions, plan.position_block);
  plan.parts = others * plan.position_blocks;
  return plan;
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

// ---- general ----

// Adjacent rows of the packed weights, and the input elements that each position of a tile
// multiplies with them.
template <class S>
struct Run {
  const S* from[kMaxRows];
  int64_t row, length;
};

// A chunk of the depth: some taps by some input channels. Row t * channels + i of the packed
// weights belongs to taps[t] and channel first_channel + i.
struct Chunk {
  int64_t first_channel, channels;
  int tap_count;
  Tap taps[kMaxTaps];
  // For positions inside of the input, taps whose input elements follow each other are one run.
  int run_count;
  struct {
    uint64_t in;
    int64_t row, length;
  } runs[kMaxTaps];

  void find_taps(const Convolution& c, const Phase& phase, int64_t begin, int64_t end) {
    tap_count = 0;
    for (int64_t k = begin; k < end; ++k)
      if (find_tap(c, phase, k, taps[tap_count])) ++tap_count;
  }
  void find_runs(const Convolution& c) {
    run_count = 0;
    for (int t = 0; t < tap_count; ++t) {
      const bool follows = run_count > 0 && c.input_channel == 1 &&
                           taps[t].in == runs[run_count - 1].in +
                                             static_cast<uint64_t>(runs[run_count - 1].length);
      if (follows)
        runs[run_count - 1].length += channels;
      else
        runs[run_count++] = {taps[t].in, t * channels, channels};
    }
  }
};

// Adds the products of R positions with C vectors of weights to the sums, which have a pitch of
// kBlock. With `fresh` the sums begin with 0. `step` is the stride of the input channels. After
// each kSumDepth products the sums in registers are added to those in memory: the error of one long
// sum would be larger.
template <class T, class S, int R, int C>
void multiply(const Run<S>* runs, int run_count, int64_t step, const T* weights, bool fresh,
              T* sums) {
  constexpr int L = kLaneCount<T>;
  if (fresh && run_count == 0) {
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < C; ++v) store(sums + r * kBlock<T> + v * L, Vector<T>{});
  }
  Vector<T> total[R][C] = {};
  int64_t room = kSumDepth;
  for (const Run<S>* run = runs; run != runs + run_count; ++run) {
    const T *right = weights + run->row * C * L, *run_end = right + run->length * C * L;
    const S* from[R];
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) from[r] = run->from[r];
    for (int64_t at = 0; right != run_end;) {
      const int64_t length = smaller((run_end - right) / (C * L), room);
      room -= length;
      for (const T* end = right + length * C * L; right != end; right += C * L, at += step) {
        Vector<T> columns[C];
        HUSK_UNROLL
        for (int v = 0; v < C; ++v) columns[v] = load(right + v * L);
        HUSK_UNROLL
        for (int r = 0; r < R; ++r) {
          const Vector<T> left = T(load_one(from[r] + at)) - Vector<T>{};
          HUSK_UNROLL
          for (int v = 0; v < C; ++v) total[r][v] += left * columns[v];
        }
      }
      if (room > 0 && (right != run_end || run + 1 != runs + run_count)) continue;
      room = kSumDepth;
      HUSK_UNROLL
      for (int r = 0; r < R; ++r) {
        HUSK_UNROLL
        for (int v = 0; v < C; ++v) {
          T* to = sums + r * kBlock<T> + v * L;
          store(to, fresh ? total[r][v] : load(to) + total[r][v]);
          total[r][v] = Vector<T>{};
        }
      }
      fresh = false;
    }
  }
}

// Calls the smallest tile that holds `rows` positions.
template <class T, class S, int C>
void multiply_rows(int64_t rows, const Run<S>* runs, int run_count, int64_t step, const T* weights,
                   bool fresh, T* sums) {
  if (kTileRows<C> == 12 && rows > 6)
    return multiply<T, S, kTileRows<C>, C>(runs, run_count, step, weights, fresh, sums);
  if (rows > 4) return multiply<T, S, 6, C>(runs, run_count, step, weights, fresh, sums);
  if (rows > 2) return multiply<T, S, 4, C>(runs, run_count, step, weights, fresh, sums);
  if (rows > 1) return multiply<T, S, 2, C>(runs, run_count, step, weights, fresh, sums);
  multiply<T, S, 1, C>(runs, run_count, step, weights, fresh, sums);
}

// Zeros that positions outside of the input read.
template <class S>
struct Zeros {
  S values[kDepth];
};
template <class S>
alignas(64) constexpr Zeros<S> kZeros = {};

template <class T, class S>
struct GeneralPart {
  const Convolution& c;
  const Plan& plan;
  Cancellation& cancellation;
  Affine<T> affine;
  Chunk chunk;
  Run<S> runs[kMaxTaps];
  Row part_rows[kPositions];
  int64_t packed = -1;  // the number of the block of channels and the phase that `weights` holds
  alignas(64) T weights[kDepth * kBlock<T>];
  alignas(64) T sums[kPositions * kBlock<T>];
  S gathered[kMaxRows * kDepth];

  GeneralPart(const Convolution& convolution, const Plan& division, Cancellation& calls_end)
      : c(convolution), plan(division), cancellation(calls_end) {}

  // Packs L output channels of adjacent weights: row_of(j) is the row for the weight at from[j].
  template <class RowOf>
  void pack_lines(const S* from, int64_t count, int64_t length, T* to, int64_t pitch,
                  RowOf row_of) {
    constexpr int L = kLaneCount<T>;
    int64_t j = 0;
    for (; j + L <= length; j += L) {
      Vector<T> lanes[L];
      HUSK_UNROLL
      for (int o = 0; o < L; ++o)
        lanes[o] = o < count ? load(from + o * c.weight_out + j) : Vector<T>{};
      transpose(lanes);
      HUSK_UNROLL
      for (int i = 0; i < L; ++i) store(to + row_of(j + i) * pitch, lanes[i]);
    }
    for (; j < length; ++j) {
      T* row = to + row_of(j) * pitch;
      for (int o = 0; o < L; ++o) row[o] = o < count ? load_one(from + o * c.weight_out + j) : T(0);
    }
  }

  // Packs the weights of the chunk for `channels` output channels, in rows of `pitch` elements.
  void pack(const S* from, int64_t channels, int64_t pitch) {
    constexpr int L = kLaneCount<T>;
    from += chunk.first_channel * c.weight_in;
    bool taps_adjacent = chunk.tap_count == c.taps && c.weight_in == c.taps;
    for (int t = 0; t < chunk.tap_count && taps_adjacent; ++t)
      taps_adjacent = chunk.taps[t].weight == t;
    for (int64_t o = 0; o < channels; o += L) {
      const int64_t count = smaller(L, channels - o);
      const S* lines = from + o * c.weight_out;
      T* to = weights + o;
      if (taps_adjacent) {
        // Called for ascending j.
        int64_t tap = 0, row = 0;
        pack_lines(lines, count, chunk.channels * c.taps, to, pitch, [&](int64_t) {
          const int64_t at = row + tap * chunk.channels;
          if (++tap == c.taps) {
            tap = 0;
            ++row;
          }
          return at;
        });
        continue;
      }
      for (int t = 0; t < chunk.tap_count; ++t) {
        const S* line = lines + chunk.taps[t].weight;
        T* packed_rows = to + t * chunk.channels * pitch;
        if (c.weight_in == 1) {
          pack_lines(line, count, chunk.channels, packed_rows, pitch, [](int64_t j) { return j; });
          continue;
        }
        for (int64_t i = 0; i < chunk.channels; ++i, packed_rows += pitch, line += c.weight_in) {
          if (c.weight_out == 1) {
            store(packed_rows, load_some<T>(line, count));
            continue;
          }
          for (int64_t lane = 0; lane < L; ++lane)
            packed_rows[lane] = lane < count ? load_one(line + lane * c.weight_out) : T(0);
        }
      }
    }
  }

  // Fills `runs` for the positions of a tile and returns their number. Rows from `count` to
  // kMaxRows repeat the last position. `step` is then the stride of the channels.
  int find_runs(const S* input, const Row* rows, int64_t count, int64_t& step) {
    bool inside = true;
    for (int64_t r = 0; r < count; ++r) inside &= rows[r].inside;
    step = c.input_channel;
    if (inside) {
      for (int i = 0; i < chunk.run_count; ++i) {
        Run<S>& run = runs[i];
        run.row = chunk.runs[i].row;
        run.length = chunk.runs[i].length;
        for (int64_t r = 0; r < count; ++r)
          run.from[r] = input + static_cast<int64_t>(rows[r].in + chunk.runs[i].in);
        for (int64_t r = count; r < kMaxRows; ++r) run.from[r] = run.from[count - 1];
      }
      return chunk.run_count;
    }
    const bool is_gathered = step != 1;
    if (is_gathered) step = 1;
    int found = 0;
    for (int t = 0; t < chunk.tap_count; ++t) {
      Run<S>& run = runs[found];
      run.row = t * chunk.channels;
      run.length = chunk.channels;
      bool any = false;
      for (int64_t r = 0; r < count; ++r) {
        const bool reads = reads_inside(c, rows[r], chunk.taps[t]);
        any |= reads;
        run.from[r] = reads ? input + static_cast<int64_t>(rows[r].in + chunk.taps[t].in)
                            : kZeros<S>.values;
        if (!reads || !is_gathered) continue;
        S* to = gathered + r * kDepth + run.row;
        for (int64_t i = 0; i < chunk.channels; ++i) to[i] = run.from[r][i * c.input_channel];
        run.from[r] = to;
      }
      for (int64_t r = count; r < kMaxRows; ++r) run.from[r] = run.from[count - 1];
      found += any;
    }
    return found;
  }

  template <int C>
  void run_chunk(int64_t group, int64_t count, int64_t channel, int64_t channels, bool fresh,
                 bool last) {
    const S* input = static_cast<const S*>(c.input) +
                     (group * c.in_channels + chunk.first_channel) * c.input_channel;
    for (int64_t p = 0; p < count; p += kTileRows<C>) {
      const int64_t tile = smaller(kTileRows<C>, count - p);
      const Row* tile_rows = part_rows + p;
      int64_t step;
      const int run_count = find_runs(input, tile_rows, tile, step);
      // If there is one chunk, the sums of a tile need not be kept.
      T* tile_sums = fresh && last ? sums : sums + p * kBlock<T>;
      multiply_rows<T, S, C>(tile, runs, run_count, step, weights, fresh, tile_sums);
      if (last) finish<T, S>(c, affine, tile_rows, tile, tile_sums, channel, channels);
    }
  }

  template <int C>
  void run(const Part& part, const Phase& phase, int64_t first, int64_t count, int64_t offset,
           int64_t channels) {
    const S* from = static_cast<const S*>(c.weight) + part.group * c.weight_group +
                    offset * c.weight_out;
    const int64_t channel = part.group * c.out_channels + offset;
    const int64_t taps_at_once = smaller(c.taps, kMaxTaps);
    const int64_t slices = divide_up(c.in_channels, kDepth / taps_at_once);
    const int64_t channels_at_once = divide_up(c.in_channels, slices);
    const bool is_single = taps_at_once == c.taps && channels_at_once == c.in_channels;
    const int64_t key = (part.group * plan.channel_blocks + part.channel_block) * plan.phases +
                        part.phase;
    Positions positions(c, phase, first);
    for (int64_t r = 0; r < count; ++r) part_rows[r] = positions.next();
    bool fresh = true;
    for (int64_t k = 0; k < c.taps; k += taps_at_once) {
      const int64_t taps_end = smaller(c.taps, k + taps_at_once);
      for (int64_t i = 0; i < c.in_channels; i += channels_at_once) {
        if (cancellation.ends(count * C * channels_at_once * taps_at_once / 4)) return;
        if (!is_single || packed != key) {
          chunk.first_channel = i;
          chunk.channels = smaller(channels_at_once, c.in_channels - i);
          chunk.find_taps(c, phase, k, taps_end);
          chunk.find_runs(c);
          pack(from, channels, C * kLaneCount<T>);
          packed = is_single ? key : -1;
        }
        const bool last = taps_end == c.taps && i + channels_at_once >= c.in_channels;
        run_chunk<C>(part.group, count, channel, channels, fresh, last);
        fresh = false;
      }
    }
  }

  void run(const Part& part) {
    const Phase phase = find_phase(c, part.phase);
    const int64_t first = part.position_block * plan.position_block;
    const int64_t count = smaller(plan.position_block, phase.positions - first);
    const int64_t offset = part.channel_block * plan.block;
    const int64_t channels = smaller(plan.block, c.out_channels - offset);
    if (count <= 0) return;
    affine.template read<S>(c, part.group * c.out_channels + offset, channels);
    const int64_t vectors = divide_up(channels, kLaneCount<T>);
    if constexpr (kVectors == 4) {
      if (vectors == 4) return run<4>(part, phase, first, count, offset, channels);
      if (vectors == 3) return run<3>(part, phase, first, count, offset, channels);
    }
    if (vectors == 2) return run<2>(part, phase, first, count, offset, channels);
    run<1>(part, phase, first, count, offset, channels);
  }
};

// If there is no depth, the sums are 0.
template <class T, class S>
void finish_zeros(const Convolution& c, const Plan& plan, const Part& part,
                  Cancellation& cancellation) {
  const Phase phase = find_phase(c, part.phase);
  const int64_t first = part.position_block * plan.position_block;
  const int64_t count = smaller(plan.position_block, phase.positions - first);
  const int64_t offset = part.group * c.out_channels + part.channel_block * plan.block;
  const int64_t channels = smaller(plan.block, c.out_channels - part.channel_block * plan.block);
  if (count <= 0) return;
  Affine<T> affine;
  affine.template read<S>(c, offset, channels);
  alignas(64) const T sums[kBlock<T>] = {};
  Positions positions(c, phase, first);
  for (int64_t p = 0; p < count; ++p) {
    if (cancellation.ends(channels)) return;
    const Row row = positions.next();
    finish<T, S>(c, affine, &row, 1, sums, offset, channels);
  }
}

// ---- depthwise ----

template <class T, class S>
struct DepthwisePart {
  static constexpr int64_t kRows = 6;
  static constexpr uint64_t kOutside = uint64_t{1} << 63;  // no offset: they have less than 63 bits
  const Convolution& c;
  const Plan& plan;
  Cancellation& cancellation;
  Phase phase;
  Affine<T> affine[kBlocksAtOnce];
  Tap taps[kDepth];
  uint64_t offsets[kDepth][kRows];  // of the input elements that each position reads by tap
  int64_t packed = -1;              // the number of the block of channels that `weights` holds
  int64_t width = 0;                // channels of a tile
  alignas(64) T weights[kDepth * kBlock<T>];
  alignas(64) T sums[kRows * kBlock<T>];

  DepthwisePart(const Convolution& convolution, const Plan& division, Cancellation& calls_end)
      : c(convolution), plan(division), cancellation(calls_end), phase(find_phase(convolution, 0)) {
    for (int64_t t = 0; t < c.taps; ++t) find_tap(c, phase, t, taps[t]);
  }

  void pack(int64_t channel, int64_t channels) {
    const S* from = static_cast<const S*>(c.weight) + channel * c.weight_group;
    const int64_t all = divide_up(channels, kLaneCount<T>) * kLaneCount<T>;
    for (int64_t t = 0; t < c.taps; ++t) {
      T* to = weights + t * plan.block;
      const S* tap = from + taps[t].weight;
      for (int64_t o = 0; o < channels; ++o) to[o] = load_one(tap + o * c.weight_group);
      for (int64_t o = channels; o < all; ++o) to[o] = 0;
    }
  }

  // Sums C vectors of channels. The last one has `lanes` channels.
  template <int C, bool Whole>
  void multiply(const S* input, const T* right, int64_t lanes) {
    constexpr int L = kLaneCount<T>;
    Vector<T> total[kRows][C] = {};
    for (int64_t t = 0; t < c.taps; ++t, right += plan.block) {
      Vector<T> columns[C];
      HUSK_UNROLL
      for (int v = 0; v < C; ++v) columns[v] = load(right + v * L);
      HUSK_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const uint64_t offset = offsets[t][r];
        const S* from = offset == kOutside ? kZeros<S>.values
                                           : input + static_cast<int64_t>(offset);
        HUSK_UNROLL
        for (int v = 0; v < C; ++v) {
          const Vector<T> left = Whole || v < C - 1 ? Vector<T>(load(from + v * L))
                                                    : load_some<T>(from + v * L, lanes);
          total[r][v] += left * columns[v];
        }
      }
    }
    HUSK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      HUSK_UNROLL
      for (int v = 0; v < C; ++v) store(sums + r * kBlock<T> + v * L, total[r][v]);
    }
  }
  template <int C>
  void multiply_lanes(const S* input, const T* right, int64_t lanes) {
    lanes == kLaneCount<T> ? multiply<C, true>(input, right, lanes)
                           : multiply<C, false>(input, right, lanes);
  }
  void multiply_channels(const S* input, const T* right, int64_t channels) {
    const int64_t vectors = divide_up(channels, kLaneCount<T>);
    const int64_t lanes = channels - (vectors - 1) * kLaneCount<T>;
    if constexpr (kVectors == 4) {
      if (vectors == 4) return multiply_lanes<4>(input, right, lanes);
      if (vectors == 3) return multiply_lanes<3>(input, right, lanes);
    }
    if (vectors == 2) return multiply_lanes<2>(input, right, lanes);
    multiply_lanes<1>(input, right, lanes);
  }

  void find_offsets(const Row* rows, int64_t count) {
    bool inside = true;
    for (int64_t r = 0; r < count; ++r) inside &= rows[r].inside;
    for (int64_t t = 0; t < c.taps; ++t) {
      for (int64_t r = 0; r < kRows; ++r) {
        const Row& row = rows[smaller(r, count - 1)];
        offsets[t][r] = inside || reads_inside(c, row, taps[t]) ? row.in + taps[t].in : kOutside;
      }
    }
  }

  void run(const Part& part) {
    const int64_t first = part.position_block * plan.position_block;
    const int64_t count = smaller(plan.position_block, plan.positions - first);
    const int64_t channel = part.channel_block * plan.block;
    const int64_t channels = smaller(plan.block, c.groups - channel);
    if (packed != part.channel_block) {
      pack(channel, channels);
      // The vectors of channels are divided evenly, because one vector alone is slow.
      const int64_t vectors = divide_up(channels, kLaneCount<T>);
      width = divide_up(vectors, divide_up(vectors, kVectors)) * kLaneCount<T>;
      for (int64_t o = 0; o < channels; o += width)
        affine[o / width].template read<S>(c, channel + o, smaller(width, channels - o));
      packed = part.channel_block;
    }
    const S* input = static_cast<const S*>(c.input) + channel;
    Positions positions(c, phase, first);
    Row rows[kRows];
    for (int64_t p = 0; p < count; p += kRows) {
      if (cancellation.ends(c.taps * channels / 4)) return;
      const int64_t tile = smaller(kRows, count - p);
      for (int64_t r = 0; r < tile; ++r) rows[r] = positions.next();
      find_offsets(rows, tile);
      for (int64_t o = 0; o < channels; o += width) {
        const int64_t some = smaller(width, channels - o);
        multiply_channels(input + o, weights + o, some);
        finish<T, S>(c, affine[o / width], rows, tile, sums, channel + o, some);
      }
    }
  }
};

// ---- dots ----

constexpr int64_t kDotDepth = 4096;  // the most products that are summed in a row

// Adds the dot products of a position with N output channels to the sums.
template <class T, class S, int N>
void add_dots(const S* input, const S* weight, int64_t weight_out, int64_t depth, T* sums) {
  constexpr int L = kLaneCount<T>;
  Vector<T> total[N] = {};
  int64_t i = 0;
  for (; i + L <= depth; i += L) {
    const Vector<T> left = load(input + i);
    HUSK_UNROLL
    for (int n = 0; n < N; ++n) total[n] += left * load(weight + n * weight_out + i);
  }
  for (int n = 0; n < N; ++n) {
    T rest = 0;
    for (int64_t j = i; j < depth; ++j)
      rest += T(load_one(input + j)) * T(load_one(weight + n * weight_out + j));
    sums[n] += sum<T>(total[n]) + rest;
  }
}

template <class T, class S>
void run_dots(const Convolution& c, const Plan& plan, const Part& part,
              Cancellation& cancellation) {
  const int64_t offset = part.channel_block * plan.block;
  const int64_t channels = smaller(plan.block, c.out_channels - offset);
  const int64_t channel = part.group * c.out_channels + offset;
  const S* input = static_cast<const S*>(c.input) + part.group * c.in_channels;
  const S* weight = static_cast<const S*>(c.weight) + part.group * c.weight_group +
                    offset * c.weight_out;
  Affine<T> affine;
  affine.template read<S>(c, channel, channels);
  const Phase phase = find_phase(c, 0);
  Tap tap;
  find_tap(c, phase, 0, tap);
  const int64_t first = part.position_block * plan.position_block;
  const int64_t count = smaller(plan.position_block, plan.positions - first);
  Positions positions(c, phase, first);
  for (int64_t p = 0; p < count; ++p) {
    const Row row = positions.next();
    alignas(64) T sums[kBlock<T>] = {};
    for (int64_t d = 0; row.inside && d < c.in_channels; d += kDotDepth) {
      const int64_t depth = smaller(kDotDepth, c.in_channels - d);
      if (cancellation.ends(depth * channels / 8)) return;
      const S *from = input + static_cast<int64_t>(row.in + tap.in) + d, *right = weight + d;
      int64_t o = 0;
      for (; o + 4 <= channels; o += 4)
        add_dots<T, S, 4>(from, right + o * c.weight_out, c.weight_out, depth, sums + o);
      for (; o < channels; ++o)
        add_dots<T, S, 1>(from, right + o * c.weight_out, c.weight_out, depth, sums + o);
    }
    finish<T, S>(c, affine, &row, 1, sums, channel, channels);
  }
}

// ---- choice of the method ----

template <class T, class S>
void run_typed(const Convolution& c, const ConvolutionParts& parts) {
  const Plan plan = make_plan<T>(c);
  int64_t index;
  if (c.in_channels * c.taps == 0) {
    while (parts.next(parts.source, index))
      finish_zeros<T, S>(c, plan, Part(plan, index), parts.cancellation);
  } else if (plan.method == Method::kDots) {
    while (parts.next(parts.source, index))
      run_dots<T, S>(c, plan, Part(plan, index), parts.cancellation);
  } else if (plan.method == Method::kDepthwise) {
    DepthwisePart<T, S> part(c, plan, parts.cancellation);
    while (parts.next(parts.source, index)) part.run(Part(plan, index));
  } else {
    GeneralPart<T, S> part(c, plan, parts.cancellation);
    while (parts.next(parts.source, index)) part.run(Part(plan, index));
  }
}

void run(const Convolution& c, const ConvolutionParts& parts) {
  switch (c.dtype) {
    case HUSK_F16: return run_typed<float, Half>(c, parts);
    case HUSK_BF16: return run_typed<float, BFloat16>(c, parts);
    case HUSK_F32: return run_typed<float, float>(c, parts);
    default: return run_typed<double, double>(c, parts);
  }
}

int64_t count_parts(const Convolution& c) {
  return c.dtype == HUSK_F64 ? make_plan<double>(c).parts : make_plan<float>(c).parts;
}

}  // namespace
}  // namespace husk::host
