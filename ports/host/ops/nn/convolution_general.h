// The general method of a convolution (see convolution_kernels.h).
#pragma once

#include "nn/convolution_parts.h"

namespace husk::host {
namespace {

// Adjacent rows of the packed weights, and the input elements that each position r of a tile
// multiplies with them, which begin at from[r] + offset.
template <class S>
struct Run {
  const S* const* from;
  int64_t offset, row, length;
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

// Packs L output channels of adjacent weights: row_of(j) is the row for the weight at from[j].
template <class T, class S, class RowOf>
void pack_lines(const S* from, int64_t weight_out, int64_t count, int64_t length, T* to,
                int64_t pitch, RowOf row_of) {
  constexpr int L = kLaneCount<T>;
  int64_t j = 0;
  for (; j + L <= length; j += L) {
    Vector<T> lanes[L];
    HUSK_UNROLL
    for (int o = 0; o < L; ++o)
      lanes[o] = o < count ? load(from + o * weight_out + j) : Vector<T>{};
    transpose(lanes);
    HUSK_UNROLL
    for (int i = 0; i < L; ++i) store(to + row_of(j + i) * pitch, lanes[i]);
  }
  for (; j < length; ++j) {
    T* row = to + row_of(j) * pitch;
    for (int o = 0; o < L; ++o) row[o] = o < count ? load_one(from + o * weight_out + j) : T(0);
  }
}

// Packs the weights of a chunk for `channels` output channels, in rows of `pitch` elements.
template <class T, class S>
void pack_weights(const Convolution& c, const Chunk& chunk, const S* from, int64_t channels,
                  T* weights, int64_t pitch) {
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
      pack_lines(lines, c.weight_out, count, chunk.channels * c.taps, to, pitch, [&](int64_t) {
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
        pack_lines(line, c.weight_out, count, chunk.channels, packed_rows, pitch,
                   [](int64_t j) { return j; });
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

// The division of the depth into chunks.
struct Chunks {
  int64_t taps, channels;  // of a chunk, at most

  explicit Chunks(const Convolution& c) : taps(smaller(c.taps, kMaxTaps)) {
    channels = divide_up(c.in_channels, divide_up(c.in_channels, kDepth / taps));
  }
};

// The packed weights of all channels. Each group has its blocks of output channels, a block its
// chunks, one after another, and a chunk is what pack_weights writes. Returns the number of
// weights. Only convolutions with one phase are packed.
template <class T, class S>
int64_t pack_general(const Convolution& c, const Plan& plan, T* to) {
  if (plan.phases != 1) return 0;
  if (!to) return c.groups * c.taps * c.in_channels * whole_vectors<T>(c.out_channels);
  const Phase phase = find_phase(c, 0);
  const Chunks chunks(c);
  Chunk chunk;
  const T* begin = to;
  for (int64_t group = 0; group < c.groups; ++group) {
    const S* from = static_cast<const S*>(c.weight) + group * c.weight_group;
    for (int64_t o = 0; o < c.out_channels; o += plan.block) {
      const int64_t channels = smaller(plan.block, c.out_channels - o),
                    pitch = whole_vectors<T>(channels);
      for (int64_t k = 0; k < c.taps; k += chunks.taps) {
        for (int64_t i = 0; i < c.in_channels; i += chunks.channels) {
          chunk.first_channel = i;
          chunk.channels = smaller(chunks.channels, c.in_channels - i);
          chunk.find_taps(c, phase, k, smaller(c.taps, k + chunks.taps));
          if (c.packing->ends(chunk.tap_count * chunk.channels * pitch)) return to - begin;
          pack_weights(c, chunk, from + o * c.weight_out, channels, to, pitch);
          to += chunk.tap_count * chunk.channels * pitch;
        }
      }
    }
  }
  return to - begin;
}

// The input elements that the positions of a tile read.
template <class S>
struct TileInput {
  const Run<S>* runs;
  int run_count;
  int64_t step;      // the stride of the input channels
  int64_t distance;  // from one position to the next, if it is the same for all 12; else 0
};

// The elements that R positions multiply with a row of weights. With Even they are `distance`
// apart, so that four pointers are enough for 12 positions, and stay in registers.
template <class S, int R, bool Even>
struct Elements {
  static constexpr int kOfPointer = Even ? 3 : 1, kPointers = R / kOfPointer;
  const S* from[kPointers];
  int64_t distance;

  Elements(const Run<S>& run, int64_t apart) : distance(apart) {
    HUSK_UNROLL
    for (int i = 0; i < kPointers; ++i) from[i] = run.from[i * kOfPointer] + run.offset;
  }
  [[gnu::always_inline]] const S* of(int r) const {
    return from[r / kOfPointer] + r % kOfPointer * distance;
  }
  [[gnu::always_inline]] void advance(int64_t step) {
    HUSK_UNROLL
    for (int i = 0; i < kPointers; ++i) from[i] += step;
  }
};

// How the sums of a tile end.
enum class End {
  kStore,      // They are stored, for `finish` or for the next chunk.
  kClamp,      // The results are written: scaled, shifted, added and clamped.
  kHardswish,  // The same with hardswish in place of the clamp.
};

// Whether part of a vector is read and written as fast as a whole one.
template <class T>
#if defined(__AVX512F__)
constexpr bool kHasMasks = sizeof(T) == sizeof(float);
#else
constexpr bool kHasMasks = false;
#endif

// The results of a tile. Without masks its last vector of channels is whole.
template <class T, class S>
struct TileOutput {
  EvenOutput<T, S> to;
  T low, high;  // of the clamp
};

// Writes the results of R positions by C vectors of channels from registers.
template <class T, class S, int R, int C, End E>
[[gnu::always_inline]] inline void write_results(const TileOutput<T, S>& output,
                                                 Vector<T> (&total)[R][C]) {
  constexpr int L = kLaneCount<T>;
  const EvenOutput<T, S>& to = output.to;
  Vector<T> scale[C], shift[C];
  HUSK_UNROLL
  for (int v = 0; v < C; ++v) {
    scale[v] = load(to.affine.scale + v * L);
    shift[v] = load(to.affine.shift + v * L);
  }
  HUSK_UNROLL
  for (int r = 0; r < R; ++r) {
    HUSK_UNROLL
    for (int v = 0; v < C; ++v) total[r][v] = total[r][v] * scale[v] + shift[v];
  }
  const auto is_cut = [&](int v) { return kHasMasks<T> && v == C - 1 && to.lanes != L; };
  if (to.residual) {
    const S* residual = to.residual;
    HUSK_UNROLL
    for (int r = 0; r < R; ++r, residual += to.residual_step) {
      HUSK_UNROLL
      for (int v = 0; v < C; ++v)
        total[r][v] += is_cut(v) ? load_some<T>(residual + v * L, to.lanes)
                                 : Vector<T>(load(residual + v * L));
    }
  }
  const Vector<T> low = all_lanes(output.low), high = all_lanes(output.high);
  S* out = to.out;
  HUSK_UNROLL
  for (int r = 0; r < R; ++r, out += to.out_step) {
    HUSK_UNROLL
    for (int v = 0; v < C; ++v) {
      const Vector<T> x = total[r][v];
      const Vector<T> result = E == End::kClamp ? at_most<T>(high, at_least<T>(low, x))
                                                : activate<T, Activation::Hardswish>(x);
      if (is_cut(v))
        store_some<T>(out + v * L, result, to.lanes);
      else
        store(out + v * L, result);
    }
  }
}

// Adds the products of R positions with C vectors of weights to the sums, which have a pitch of
// kBlock. With `fresh` the sums begin with 0. After each kSumDepth products the sums in registers
// are added to those in memory: the error of one long sum would be larger. The last ones may end as
// results. It is no part of a larger function, in which its pointers would not be in registers.
template <class T, class S, int R, int C, bool Even, End E>
[[gnu::noinline]] void multiply(const TileInput<S>& input, const T* weights, bool fresh, T* sums,
                                const TileOutput<T, S>* output) {
  constexpr int L = kLaneCount<T>;
  const auto [runs, run_count, step, distance] = input;
  if (fresh && run_count == 0) {
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < C; ++v) store(sums + r * kBlock<T> + v * L, Vector<T>{});
  }
  Vector<T> total[R][C] = {};
  int64_t room = kSumDepth;
  for (const Run<S>* run = runs; run != runs + run_count; ++run) {
    const T *right = weights + run->row * C * L, *run_end = right + run->length * C * L;
    Elements<S, R, Even> elements(*run, distance);
    for (int64_t at = 0; right != run_end;) {
      const int64_t length = smaller((run_end - right) / (C * L), room);
      room -= length;
      for (const T* end = right + length * C * L; right != end; right += C * L, at += step) {
        Vector<T> columns[C];
        HUSK_UNROLL
        for (int v = 0; v < C; ++v) columns[v] = load(right + v * L);
        HUSK_UNROLL
        for (int r = 0; r < R; ++r) {
          const Vector<T> left = T(load_one(elements.of(r) + (Even ? 0 : at))) - Vector<T>{};
          HUSK_UNROLL
          for (int v = 0; v < C; ++v) total[r][v] += left * columns[v];
        }
        if (Even) elements.advance(step);
      }
      const bool is_last = right == run_end && run + 1 == runs + run_count;
      if (room > 0 && !is_last) continue;
      room = kSumDepth;
      if constexpr (E != End::kStore) {
        if (is_last) break;
      }
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
  if constexpr (E != End::kStore) {
    if (!fresh) {
      HUSK_UNROLL
      for (int r = 0; r < R; ++r) {
        HUSK_UNROLL
        for (int v = 0; v < C; ++v) total[r][v] += load(sums + r * kBlock<T> + v * L);
      }
    }
    write_results<T, S, R, C, E>(*output, total);
  }
}

// A tile, and what is to be done with it.
template <class T, class S>
struct TileWork {
  int64_t rows;
  const TileInput<S>& input;
  bool fresh;
  T* sums;
  End end;
  const TileOutput<T, S>* output;  // null for kStore
};

// Calls `multiply` for a tile of R positions. Returns whether it has written the results.
template <class T, class S, int R, int C, bool Even = false>
bool multiply_tile(const TileWork<T, S>& work, const T* weights) {
  // Other dtypes and activations would make the library larger and are rarer.
  if constexpr (sizeof(T) == sizeof(float) && sizeof(S) == sizeof(float)) {
    if (work.rows == R && work.end == End::kClamp) {
      multiply<T, S, R, C, Even, End::kClamp>(work.input, weights, work.fresh, work.sums,
                                              work.output);
      return true;
    }
    if (work.rows == R && work.end == End::kHardswish) {
      multiply<T, S, R, C, Even, End::kHardswish>(work.input, weights, work.fresh, work.sums,
                                                  work.output);
      return true;
    }
  }
  multiply<T, S, R, C, Even, End::kStore>(work.input, weights, work.fresh, work.sums, nullptr);
  return false;
}

// Calls the smallest tile that holds the positions.
template <class T, class S, int C>
bool multiply_rows(const TileWork<T, S>& work, const T* weights) {
  if constexpr (kTileRows<C> == 12) {
    if (work.rows > 6 && work.input.distance)
      return multiply_tile<T, S, 12, C, true>(work, weights);
    if (work.rows > 6) return multiply_tile<T, S, 12, C>(work, weights);
  }
  if (work.rows > 4) return multiply_tile<T, S, 6, C>(work, weights);
  if (work.rows > 2) return multiply_tile<T, S, 4, C>(work, weights);
  if (work.rows > 1) return multiply_tile<T, S, 2, C>(work, weights);
  return multiply_tile<T, S, 1, C>(work, weights);
}

template <class T, class S>
struct GeneralPart : InScratch {
  // Rows for whole vectors of addresses.
  static constexpr int kEdgeRows = 16;
  static constexpr T kInfinity = static_cast<T>(__builtin_inf());

  const Convolution& c;
  const Plan& plan;
  Cancellation& cancellation;
  const End end;      // of tiles whose results can be written from registers
  const T low, high;  // of their clamp
  const bool reads_points;
  AffineValues<T, kBlocksTogether * kBlock<T>> affine;
  Chunk chunk;
  Run<S> inside_runs[kMaxTaps];  // of tiles whose positions read no edge
  const S* inside_from[kMaxRows];
  Run<S> edge_runs[kMaxTaps];  // of the others
  alignas(64) const S* edge_from[kMaxTaps][kEdgeRows];
  Row part_rows[kPositions];
  int64_t packed = -1;     // the number of the block of channels and the phase of `chunk_weights`
  const T* all_weights;    // of packed weights; null if there are none
  const T* chunk_weights;  // of the chunk: in `all_weights` or in `weights`
  alignas(64) T weights[kDepth * kBlock<T>];
  alignas(64) T sums[kPositions * kBlock<T>];
  S gathered[kMaxRows * kDepth];

  GeneralPart(const Convolution& convolution, const Plan& division, Cancellation& calls_end)
      : c(convolution),
        plan(division),
        cancellation(calls_end),
        end(find_end(convolution)),
        low(convolution.activation == Activation::None ? -kInfinity : T(0)),
        high(convolution.activation == Activation::Relu6 ? T(6) : kInfinity),
        reads_points(find_points(convolution)),
        all_weights(packed_weights<T>(convolution, division)) {}

  // Finds the runs of all tiles whose positions read no edge. Offsets count from the first run, so
  // that every pointer lies inside of the input.
  void find_inside_runs() {
    for (int i = 0; i < chunk.run_count; ++i) {
      const auto& run = chunk.runs[i];
      inside_runs[i] = {inside_from, static_cast<int64_t>(run.in - chunk.runs[0].in), run.row,
                        run.length};
    }
  }

  // The distance between the inputs of kMaxRows positions, 0 if it differs.
  static int64_t distance_of(const Row* rows) {
    const uint64_t distance = rows[1].in - rows[0].in;
    uint64_t difference = 0;
    for (int64_t r = 2; r < kMaxRows; ++r) difference |= rows[r].in - rows[r - 1].in - distance;
    return difference ? 0 : static_cast<int64_t>(distance);
  }

  // Finds what the positions of a tile read. Rows from `count` to kMaxRows repeat the last
  // position.
  TileInput<S> find_input(const S* input, const Row* rows, int64_t count) {
    bool inside = true;
    for (int64_t r = 0; r < count; ++r) inside &= rows[r].inside;
    if (inside) {
      if (chunk.run_count == 0) return {inside_runs, 0, 0, 0};
      const uint64_t first = chunk.runs[0].in;
      for (int64_t r = 0; r < kMaxRows; ++r)
        inside_from[r] = input + static_cast<int64_t>(rows[smaller(r, count - 1)].in + first);
      return {inside_runs, chunk.run_count, c.input_channel,
              count == kMaxRows ? distance_of(rows) : 0};
    }
    const int found = find_edges(input, rows, count);
    if (c.input_channel != 1) gather_edges(found, count);
    return {edge_runs, found, 1, 0};
  }

  // Finds what the positions of a tile read through each tap, zeros outside of the input, and makes
  // runs of the taps through which any position reads. Returns their number.
  int find_edges(const S* input, const Row* rows, int64_t count) {
    typedef int64_t Int64s __attribute__((vector_size(HUSK_VECTOR_BYTES)));
    typedef uint64_t UInt64s __attribute__((vector_size(HUSK_VECTOR_BYTES)));
    constexpr int kAtOnce = HUSK_VECTOR_BYTES / static_cast<int>(sizeof(int64_t));
    constexpr int kMost = kEdgeRows / kAtOnce;
    const int vectors = static_cast<int>(divide_up(count > 6 ? kMaxRows : 6, kAtOnce));
    alignas(64) uint64_t starts[kEdgeRows];
    alignas(64) int64_t at[kAxes][kEdgeRows];
    for (int r = 0; r < vectors * kAtOnce; ++r) {
      const Row& row = rows[smaller(r, count - 1)];
      starts[r] = reinterpret_cast<uintptr_t>(input) + row.in * sizeof(S);
      for (int d = 0; d < kAxes; ++d) at[d][r] = row.at[d];
    }
    const auto reads_along = [&](int d, const Tap& tap, int v) {
      Int64s coordinate;
      __builtin_memcpy(&coordinate, at[d] + v * kAtOnce, sizeof coordinate);
      coordinate += tap.delta[d];
      return (coordinate >= 0) & (coordinate < c.axis[d].in);
    };
    const uint64_t outside = reinterpret_cast<uintptr_t>(kZeros<S>.values);
    Int64s reads_line[kMost] = {};
    int found = 0;
    for (int t = 0; t < chunk.tap_count; ++t) {
      const Tap& tap = chunk.taps[t];
      const Tap& before = chunk.taps[t > 0 ? t - 1 : 0];
      if (t == 0 || tap.delta[0] != before.delta[0] || tap.delta[1] != before.delta[1])
        for (int v = 0; v < vectors; ++v)
          reads_line[v] = reads_along(0, tap, v) & reads_along(1, tap, v);
      Int64s any = {};
      for (int v = 0; v < vectors; ++v) {
        const Int64s reads = reads_line[v] & reads_along(kAxes - 1, tap, v);
        any |= reads;
        const auto mask = reinterpret_cast<UInt64s>(reads);
        UInt64s from;
        __builtin_memcpy(&from, starts + v * kAtOnce, sizeof from);
        from = ((from + tap.in * sizeof(S)) & mask) | (outside & ~mask);
        __builtin_memcpy(edge_from[found] + v * kAtOnce, &from, sizeof from);
      }
      edge_runs[found] = {edge_from[found], 0, t * chunk.channels, chunk.channels};
      int64_t reads_any = 0;
      for (int i = 0; i < kAtOnce; ++i) reads_any |= any[i];
      found += reads_any != 0;
    }
    return found;
  }

  // Gathers the input elements of runs whose channels are not adjacent.
  void gather_edges(int run_count, int64_t count) {
    for (int i = 0; i < run_count; ++i) {
      const S** from = edge_from[i];
      for (int64_t r = 0; r < count; ++r) {
        if (from[r] == kZeros<S>.values) continue;
        S* to = gathered + r * kDepth + edge_runs[i].row;
        for (int64_t j = 0; j < chunk.channels; ++j) to[j] = from[r][j * c.input_channel];
        from[r] = to;
      }
      for (int64_t r = count; r < kMaxRows; ++r) from[r] = from[count - 1];
    }
  }

  // Multiplies a tile with one block of channels. Returns whether it has written the results.
  static bool multiply_block(int64_t vectors, const TileWork<T, S>& work, const T* block) {
    if constexpr (kVectors == 4) {
      if (vectors == 4) return multiply_rows<T, S, 4>(work, block);
      if (vectors == 3) return multiply_rows<T, S, 3>(work, block);
    }
    if (vectors == 2) return multiply_rows<T, S, 2>(work, block);
    return multiply_rows<T, S, 1>(work, block);
  }

  // Whether each position reads one element, and none reads an edge.
  static bool find_points(const Convolution& c) {
    bool inside = !c.transposed && c.taps == 1 && c.input_channel == 1;
    for (const ConvolutionAxis& a : c.axis) inside &= a.padding == 0;
    return inside;
  }

  // How a tile ends if its results can be written from registers.
  static End find_end(const Convolution& c) {
    if (!has_adjacent_outputs(c)) return End::kStore;
    if (c.activation == Activation::Hardswish) return End::kHardswish;
    return c.activation <= Activation::Relu6 ? End::kClamp : End::kStore;
  }

  // The number of blocks of the part that begins at output channel `offset` of a group.
  int64_t blocks_from(int64_t offset) const {
    return smaller(plan.blocks, divide_up(c.out_channels - offset, plan.block));
  }

  // The number of positions at the begin of `rows` that all read an edge, or all do not.
  static int64_t count_alike(const Row* rows, int64_t count) {
    int64_t alike = 1;
    while (alike < count && rows[alike].inside == rows[0].inside) ++alike;
    return alike;
  }

  // The positions of a tile: what they read, where their results lie, and the rows if these are not
  // evenly far apart.
  struct Tile {
    int64_t count;
    TileInput<S> input;
    EvenRows even;  // of all positions, or of the first ones
    const Row* rows;
  };

  // Multiplies a tile with the blocks that begin at output channel `offset` of a group.
  void run_tile(const Tile& tile, int64_t group, int64_t offset, T* tile_sums, bool fresh,
                bool last) {
    const int64_t depth = chunk.tap_count * chunk.channels;
    const bool is_even = tile.even.count == tile.count;
    for (int64_t block = 0; block < blocks_from(offset); ++block) {
      const int64_t first = offset + block * plan.block;
      const int64_t channels = smaller(plan.block, c.out_channels - first);
      const int64_t channel = group * c.out_channels + first;
      const Affine<T> values = affine.from(block * plan.block);
      if (last && is_even) fetch_outputs<S>(c, tile.even, channel, channels);
      const TileOutput<T, S> output = {EvenOutput<T, S>(c, values, tile.even, channel, channels),
                                       low, high};
      const bool in_registers = last && is_even && (kHasMasks<T> || channels % kLaneCount<T> == 0);
      const TileWork<T, S> work = {
          tile.count, tile.input, fresh, tile_sums, in_registers ? end : End::kStore, &output};
      const bool is_written = multiply_block(divide_up(channels, kLaneCount<T>), work,
                                             chunk_weights + block * plan.block * depth);
      if (!last || is_written) continue;
      if (is_even)
        finish<T, S>(c, values, tile.even, tile_sums, channel, channels);
      else
        finish<T, S>(c, values, tile.rows, tile.count, tile_sums, channel, channels);
    }
  }

  // The most positions of a tile.
  int64_t tile_rows() const {
    return plan.blocks == 1 && plan.block <= kBlock<T> / 2 ? kMaxRows : kMaxRows / 2;
  }
  const S* chunk_input(int64_t group) const {
    return static_cast<const S*>(c.input) +
           (group * c.in_channels + chunk.first_channel) * c.input_channel;
  }

  // Computes `count` positions of the blocks that begin at output channel `offset` of a group.
  void run_chunk(int64_t group, int64_t offset, int64_t count, bool fresh, bool last) {
    const S* input = chunk_input(group);
    for (int64_t p = 0, tile; p < count; p += tile) {
      const Row* rows = part_rows + p;
      tile = smaller(tile_rows(), count - p);
      EvenRows even(rows, tile);
      // Tiles end with a line, and where positions read an edge and others do not: the elements of
      // a tile that reads an edge are gathered if channels are not adjacent, so such tiles are kept
      // small. Sums that are kept lie behind one another, and the kernels write more rows than such
      // a tile has.
      if (fresh && last) {
        tile = even.count;
        if (c.input_channel != 1) tile = count_alike(rows, tile);
        even.count = tile;
      }
      // If there is one chunk, the sums of a tile need not be kept.
      T* tile_sums = fresh && last ? sums : sums + p * kBlock<T>;
      run_tile({tile, find_input(input, rows, tile), even, rows}, group, offset, tile_sums, fresh,
               last);
    }
  }

  // The same if each position reads one element. Positions of a line are equally far apart, so that
  // they need no table. The first one is position `first` of the convolution.
  void run_points(int64_t group, int64_t offset, int64_t first, int64_t count, bool fresh,
                  bool last) {
    const ConvolutionAxis& x = c.axis[kAxes - 1];
    for (int64_t p = 0, length; p < count; p += length) {
      int64_t index = first + p;
      length = smaller(count - p, x.out - index % x.out);
      const S* from = chunk_input(group);
      int64_t out = 0, residual = 0;
      for (int d = kAxes - 1; d >= 0; --d) {
        const ConvolutionAxis& a = c.axis[d];
        const int64_t at = index % a.out;
        index /= a.out;
        from += (at * a.stride - a.padding) * a.in_stride;
        out += at * a.out_stride;
        residual += at * a.residual_stride;
      }
      from += index * c.input_image;
      out += index * c.out_image;
      residual += index * c.residual_image;
      const int64_t step = x.stride * x.in_stride;
      for (int64_t i = 0, tile; i < length; i += tile) {
        tile = smaller(tile_rows(), length - i);
        for (int64_t r = 0; r < kMaxRows; ++r)
          inside_from[r] = from + (i + smaller(r, tile - 1)) * step;
        const EvenRows even(tile, out + i * x.out_stride, residual + i * x.residual_stride,
                            x.out_stride, x.residual_stride);
        T* tile_sums = fresh && last ? sums : sums + (p + i) * kBlock<T>;
        // The only tap is the only run, which begins at the pointers.
        const TileInput<S> input = {inside_runs, 1, 1, tile == kMaxRows ? step : 0};
        run_tile({tile, input, even, nullptr}, group, offset, tile_sums, fresh, last);
      }
    }
  }

  // Finds or packs the weights of a chunk, which begins after `depth_before` rows of its block.
  void find_weights(const Part& part, int64_t offset, int64_t depth_before) {
    const int64_t all_depth = c.taps * c.in_channels;
    if (all_weights) {
      const int64_t channels = smaller(plan.block, c.out_channels - offset);
      chunk_weights = all_weights + part.group * all_depth * whole_vectors<T>(c.out_channels) +
                      offset * all_depth + depth_before * whole_vectors<T>(channels);
      return;
    }
    chunk_weights = weights;
    const S* from = static_cast<const S*>(c.weight) + part.group * c.weight_group;
    const int64_t depth = chunk.tap_count * chunk.channels;
    for (int64_t block = 0; block < blocks_from(offset); ++block) {
      const int64_t first = offset + block * plan.block;
      const int64_t channels = smaller(plan.block, c.out_channels - first);
      pack_weights(c, chunk, from + first * c.weight_out, channels,
                   weights + block * plan.block * depth, whole_vectors<T>(channels));
    }
  }

  void run(const Part& part) {
    const Phase phase = find_phase(c, part.phase);
    const int64_t first = part.position_block * plan.position_block;
    const int64_t count = smaller(plan.position_block, phase.positions - first);
    const int64_t offset = part.channel_block * plan.block * plan.blocks;
    if (count <= 0) return;
    const Chunks chunks(c);
    const bool is_single = chunks.taps == c.taps && chunks.channels == c.in_channels;
    const int64_t key = (part.group * plan.channel_blocks + part.channel_block) * plan.phases +
                        part.phase;
    const int64_t channels = smaller(plan.block * plan.blocks, c.out_channels - offset);
    if (packed != key) affine.template read<S>(c, part.group * c.out_channels + offset, channels);
    // The kernels may write more rows than the last tile of a line has, which is the begin of the
    // next line. So sums that are kept are those of one line.
    const bool is_simple = reads_points && (is_single || c.axis[kAxes - 1].out == phase.positions);
    if (!is_simple) {
      Positions positions(c, phase, first);
      positions.next(part_rows, count);
    }
    bool fresh = true;
    for (int64_t k = 0; k < c.taps; k += chunks.taps) {
      const int64_t taps_end = smaller(c.taps, k + chunks.taps);
      for (int64_t i = 0; i < c.in_channels; i += chunks.channels) {
        if (cancellation.ends(count * divide_up(channels, kLaneCount<T>) * chunks.channels *
                              chunks.taps / 4))
          return;
        if (!is_single || packed != key) {
          chunk.first_channel = i;
          chunk.channels = smaller(chunks.channels, c.in_channels - i);
          chunk.find_taps(c, phase, k, taps_end);
          chunk.find_runs(c);
          find_inside_runs();
          find_weights(part, offset, k * c.in_channels + (taps_end - k) * i);
          packed = is_single ? key : -1;
        }
        const bool last = taps_end == c.taps && i + chunks.channels >= c.in_channels;
        if (is_simple)
          run_points(part.group, offset, first, count, fresh, last);
        else
          run_chunk(part.group, offset, count, fresh, last);
        fresh = false;
      }
    }
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
  AffineValues<T, kBlock<T>> affine;
  affine.template read<S>(c, offset, channels);
  alignas(64) const T sums[kBlock<T>] = {};
  Positions positions(c, phase, first);
  for (int64_t p = 0; p < count; ++p) {
    if (cancellation.ends(channels)) return;
    Row row;
    positions.next(&row, 1);
    finish<T, S>(c, affine.from(0), EvenRows(1, row.out, row.residual, 0, 0), sums, offset,
                 channels);
  }
}

}  // namespace
}  // namespace husk::host
