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

// Adds the products of R positions with C vectors of weights to the sums, which have a pitch of
// kBlock. With `fresh` the sums begin with 0. After each kSumDepth products the sums in registers
// are added to those in memory: the error of one long sum would be larger.
template <class T, class S, int R, int C, bool Even = false>
[[gnu::noinline]] void multiply(const TileInput<S>& input, const T* weights, bool fresh, T* sums) {
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
void multiply_rows(int64_t rows, const TileInput<S>& input, const T* weights, bool fresh, T* sums) {
  if constexpr (kTileRows<C> == 12) {
    if (rows > 6 && input.distance) return multiply<T, S, 12, C, true>(input, weights, fresh, sums);
    if (rows > 6) return multiply<T, S, 12, C>(input, weights, fresh, sums);
  }
  if (rows > 4) return multiply<T, S, 6, C>(input, weights, fresh, sums);
  if (rows > 2) return multiply<T, S, 4, C>(input, weights, fresh, sums);
  if (rows > 1) return multiply<T, S, 2, C>(input, weights, fresh, sums);
  multiply<T, S, 1, C>(input, weights, fresh, sums);
}

template <class T, class S>
struct GeneralPart {
  const Convolution& c;
  const Plan& plan;
  Cancellation& cancellation;
  AffineValues<T, kBlocksTogether * kBlock<T>> affine;
  Chunk chunk;
  Run<S> inside_runs[kMaxTaps];  // of tiles whose positions read no edge
  const S* inside_from[kMaxRows];
  Run<S> edge_runs[kMaxTaps];  // of the others
  const S* edge_from[kMaxTaps][kMaxRows];
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
    const bool is_gathered = c.input_channel != 1;
    int found = 0;
    for (int t = 0; t < chunk.tap_count; ++t) {
      const S** from = edge_from[found];
      const int64_t row = t * chunk.channels;
      bool any = false;
      for (int64_t r = 0; r < count; ++r) {
        const bool reads = reads_inside(c, rows[r], chunk.taps[t]);
        any |= reads;
        from[r] = reads ? input + static_cast<int64_t>(rows[r].in + chunk.taps[t].in)
                        : kZeros<S>.values;
        if (!reads || !is_gathered) continue;
        S* to = gathered + r * kDepth + row;
        for (int64_t i = 0; i < chunk.channels; ++i) to[i] = from[r][i * c.input_channel];
        from[r] = to;
      }
      for (int64_t r = count; r < kMaxRows; ++r) from[r] = from[count - 1];
      edge_runs[found] = {from, 0, row, chunk.channels};
      found += any;
    }
    return {edge_runs, found, 1, 0};
  }

  // Adds the products of a tile with one block of channels to its sums.
  void add_products(int64_t vectors, int64_t rows, const TileInput<S>& input, const T* block,
                    bool fresh, T* to) {
    if constexpr (kVectors == 4) {
      if (vectors == 4) return multiply_rows<T, S, 4>(rows, input, block, fresh, to);
      if (vectors == 3) return multiply_rows<T, S, 3>(rows, input, block, fresh, to);
    }
    if (vectors == 2) return multiply_rows<T, S, 2>(rows, input, block, fresh, to);
    multiply_rows<T, S, 1>(rows, input, block, fresh, to);
  }

  // The number of positions at the begin of `rows` that all read an edge, or all do not.
  static int64_t count_alike(const Row* rows, int64_t count) {
    int64_t alike = 1;
    while (alike < count && rows[alike].inside == rows[0].inside) ++alike;
    return alike;
  }

  // Computes `count` positions of the blocks that begin at output channel `offset` of a group.
  void run_chunk(int64_t group, int64_t offset, int64_t count, bool fresh, bool last) {
    const S* input = static_cast<const S*>(c.input) +
                     (group * c.in_channels + chunk.first_channel) * c.input_channel;
    const int64_t depth = chunk.tap_count * chunk.channels;
    const bool is_thin = plan.blocks == 1 && plan.block <= kBlock<T> / 2;
    const int64_t tile_rows = is_thin ? kMaxRows : kMaxRows / 2;
    for (int64_t p = 0, tile; p < count; p += tile) {
      const Row* rows = part_rows + p;
      tile = smaller(tile_rows, count - p);
      // The elements of a tile that reads an edge are gathered if channels are not adjacent, so
      // such tiles are kept small. Sums that are kept lie behind one another, and the kernels write
      // more rows than such a tile has.
      if (c.input_channel != 1 && fresh && last) tile = count_alike(rows, tile);
      const TileInput<S> tile_input = find_input(input, rows, tile);
      const EvenRows even(rows, tile);
      // If there is one chunk, the sums of a tile need not be kept.
      T* tile_sums = fresh && last ? sums : sums + p * kBlock<T>;
      for (int64_t block = 0; block < plan.blocks; ++block) {
        const int64_t first = offset + block * plan.block;
        const int64_t channels = smaller(plan.block, c.out_channels - first);
        const int64_t channel = group * c.out_channels + first;
        if (last) fetch_outputs<S>(c, rows, tile, channel, channels);
        add_products(divide_up(channels, kLaneCount<T>), tile, tile_input,
                     chunk_weights + block * plan.block * depth, fresh, tile_sums);
        if (last && even.count == tile)
          finish<T, S>(c, affine.from(block * plan.block), even, tile_sums, channel, channels);
        else if (last)
          finish<T, S>(c, affine.from(block * plan.block), rows, tile, tile_sums, channel,
                       channels);
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
    for (int64_t block = 0; block < plan.blocks; ++block) {
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
    const int64_t offset = part.channel_block * plan.block;
    if (count <= 0) return;
    const Chunks chunks(c);
    const bool is_single = chunks.taps == c.taps && chunks.channels == c.in_channels;
    const int64_t key = (part.group * plan.channel_blocks + part.channel_block) * plan.phases +
                        part.phase;
    const int64_t channels = smaller(plan.block * plan.blocks, c.out_channels - offset);
    if (packed != key) affine.template read<S>(c, part.group * c.out_channels + offset, channels);
    Positions positions(c, phase, first);
    positions.next(part_rows, count);
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
        run_chunk(part.group, offset, count, fresh,
                  taps_end == c.taps && i + chunks.channels >= c.in_channels);
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
