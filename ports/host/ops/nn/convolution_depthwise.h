// The depthwise method of a convolution (see convolution_kernels.h).
#pragma once

#include "nn/convolution_parts.h"

namespace husk::host {
namespace {

// Packs the weights of a block of channels, in rows of a tap with a pitch of plan.block.
template <class T, class S>
void pack_depthwise_block(const Convolution& c, const Plan& plan, const Tap* taps, int64_t channel,
                          int64_t channels, T* weights) {
  const S* from = static_cast<const S*>(c.weight) + channel * c.weight_group;
  const int64_t all = whole_vectors<T>(channels);
  for (int64_t t = 0; t < c.taps; ++t) {
    T* to = weights + t * plan.block;
    const S* tap = from + taps[t].weight;
    for (int64_t o = 0; o < channels; ++o) to[o] = load_one(tap + o * c.weight_group);
    for (int64_t o = channels; o < all; ++o) to[o] = 0;
  }
}

// The packed weights of all channels, block after block. Returns the number of weights.
template <class T, class S>
int64_t pack_depthwise(const Convolution& c, const Plan& plan, T* to) {
  const int64_t block = c.taps * plan.block;
  if (!to) return plan.channel_blocks * block;
  const Phase phase = find_phase(c, 0);
  Tap taps[kDepth];
  for (int64_t t = 0; t < c.taps; ++t) find_tap(c, phase, t, taps[t]);
  for (int64_t b = 0; b < plan.channel_blocks; ++b)
    pack_depthwise_block<T, S>(c, plan, taps, b * plan.block,
                               smaller(plan.block, c.groups - b * plan.block), to + b * block);
  return plan.channel_blocks * block;
}

template <class T, class S>
struct DepthwisePart {
  static_assert(kBlocksAtOnce * kBlock<T> <= kDepth, "positions outside read as many zeros");
  const Convolution& c;
  const Plan& plan;
  Cancellation& cancellation;
  Phase phase;
  Affine<T> affine[kBlocksAtOnce];
  Tap taps[kDepth];
  alignas(64) uintptr_t edges[kDepth][16];  // what positions of a tile at an edge read, by tap
  int64_t packed = -1;     // the number of the block of channels of `block_weights`
  const T* all_weights;    // of packed weights; null if there are none
  const T* block_weights;  // of the block: in `all_weights` or in `weights`
  int64_t width = 0;       // channels of a tile
  int tile_rows = 0;       // positions of a tile: 12 if it has few channels, else 6
  alignas(64) T weights[kDepth * kBlock<T>];
  alignas(64) T sums[kMaxRows * kBlock<T>];

  DepthwisePart(const Convolution& convolution, const Plan& division, Cancellation& calls_end)
      : c(convolution),
        plan(division),
        cancellation(calls_end),
        phase(find_phase(convolution, 0)),
        all_weights(packed_weights<T>(convolution, division)) {
    for (int64_t t = 0; t < c.taps; ++t) find_tap(c, phase, t, taps[t]);
  }

  // Sums C vectors of channels. The last one has `lanes` channels. `from(t, r)` is what position r
  // reads through tap t.
  template <int R, int C, bool Whole, class From>
  [[gnu::always_inline]] void multiply(From from, const T* right, int64_t lanes) {
    constexpr int L = kLaneCount<T>;
    Vector<T> total[R][C] = {};
    for (int64_t t = 0; t < c.taps; ++t, right += plan.block) {
      Vector<T> columns[C];
      HUSK_UNROLL
      for (int v = 0; v < C; ++v) columns[v] = load(right + v * L);
      HUSK_UNROLL
      for (int r = 0; r < R; ++r) {
        const S* left = from(t, r);
        HUSK_UNROLL
        for (int v = 0; v < C; ++v) {
          total[r][v] += columns[v] * (Whole || v < C - 1 ? Vector<T>(load(left + v * L))
                                                          : load_some<T>(left + v * L, lanes));
        }
      }
    }
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) {
      HUSK_UNROLL
      for (int v = 0; v < C; ++v) store(sums + r * kBlock<T> + v * L, total[r][v]);
    }
  }
  template <int R, int C>
  void multiply(const S* const* inside, int64_t offset, int64_t lanes) {
    const T* right = block_weights + offset;
    const bool whole = lanes == kLaneCount<T>;
    if (inside) {
      const S* rows[R];
      HUSK_UNROLL
      for (int r = 0; r < R; ++r) rows[r] = inside[r] + offset;
      const auto from = [&](int64_t t, int r) {
        return rows[r] + static_cast<int64_t>(taps[t].in);
      };
      whole ? multiply<R, C, true>(from, right, lanes) : multiply<R, C, false>(from, right, lanes);
    } else {
      const auto from = [&](int64_t t, int r) {
        return reinterpret_cast<const S*>(edges[t][r]) + offset;
      };
      whole ? multiply<R, C, true>(from, right, lanes) : multiply<R, C, false>(from, right, lanes);
    }
  }
  template <int C>
  void multiply_rows(const S* const* inside, int64_t offset, int64_t lanes) {
    if constexpr (kTileRows<C> == 12)
      if (tile_rows == 12) return multiply<12, C>(inside, offset, lanes);
    multiply<6, C>(inside, offset, lanes);
  }
  // `inside` has what each position reads for a tap with offset 0; it is null if `edges` is used.
  void multiply_channels(const S* const* inside, int64_t offset, int64_t channels) {
    const int64_t vectors = divide_up(channels, kLaneCount<T>);
    const int64_t lanes = channels - (vectors - 1) * kLaneCount<T>;
    if constexpr (kVectors == 4) {
      if (vectors == 4) return multiply_rows<4>(inside, offset, lanes);
      if (vectors == 3) return multiply_rows<3>(inside, offset, lanes);
    }
    if (vectors == 2) return multiply_rows<2>(inside, offset, lanes);
    multiply_rows<1>(inside, offset, lanes);
  }

  // Finds what positions read through each tap, for eight positions at once.
  void find_edges(const S* input, const Row* rows, int64_t count) {
    typedef int64_t Int64x8 __attribute__((vector_size(64)));
    const ConvolutionAxis &z = c.axis[0], &y = c.axis[1], &x = c.axis[2];
    const uint64_t outside = reinterpret_cast<uintptr_t>(kZeros<S>.values);
    for (int first = 0; first < tile_rows; first += 8) {
      uint64_t starts[8];
      int64_t coordinates[kAxes][8];
      for (int r = 0; r < 8; ++r) {
        const Row& row = rows[smaller(first + r, count - 1)];
        starts[r] = reinterpret_cast<uintptr_t>(input) + row.in * sizeof(S);
        for (int d = 0; d < kAxes; ++d) coordinates[d][r] = row.at[d];
      }
      UInt64x8 from;
      Int64x8 at[kAxes];
      __builtin_memcpy(&from, starts, sizeof from);
      __builtin_memcpy(at, coordinates, sizeof at);
      int64_t t = 0;
      for (int64_t i = 0; i < z.kernel; ++i) {
        const Int64x8 at_z = at[0] + taps[t].delta[0];
        const Int64x8 plane = (at_z >= 0) & (at_z < z.in);
        for (int64_t j = 0; j < y.kernel; ++j) {
          const Int64x8 at_y = at[1] + taps[t].delta[1];
          const Int64x8 line = plane & (at_y >= 0) & (at_y < y.in);
          for (int64_t k = 0; k < x.kernel; ++k, ++t) {
            const Int64x8 at_x = at[2] + taps[t].delta[2];
            const auto reads = reinterpret_cast<UInt64x8>(line & (at_x >= 0) & (at_x < x.in));
            const UInt64x8 address = ((from + taps[t].in * sizeof(S)) & reads) | (outside & ~reads);
            __builtin_memcpy(edges[t] + first, &address, sizeof address);
          }
        }
      }
    }
  }

  void run(const Part& part) {
    const int64_t first = part.position_block * plan.position_block;
    const int64_t count = smaller(plan.position_block, plan.positions - first);
    const int64_t channel = part.channel_block * plan.block;
    const int64_t channels = smaller(plan.block, c.groups - channel);
    if (packed != part.channel_block) {
      block_weights = weights;
      if (all_weights)
        block_weights = all_weights + part.channel_block * c.taps * plan.block;
      else
        pack_depthwise_block<T, S>(c, plan, taps, channel, channels, weights);
      // The vectors of channels are divided evenly, because one vector alone is slow.
      const int64_t vectors = divide_up(channels, kLaneCount<T>);
      width = divide_up(vectors, divide_up(vectors, kVectors)) * kLaneCount<T>;
      tile_rows = width > kVectors / 2 * kLaneCount<T> ? 6 : 12;
      for (int64_t o = 0; o < channels; o += width)
        affine[o / width].template read<S>(c, channel + o, smaller(width, channels - o));
      packed = part.channel_block;
    }
    const S* input = static_cast<const S*>(c.input) + channel;
    Positions positions(c, phase, first);
    Row rows[kMaxRows];
    for (int64_t p = 0; p < count; p += tile_rows) {
      if (cancellation.ends(c.taps * channels / 4)) return;
      const int64_t tile = smaller(tile_rows, count - p);
      positions.next(rows, tile);
      bool inside = true;
      const S* from[kMaxRows];
      for (int64_t r = 0; r < tile_rows; ++r) {
        const Row& row = rows[smaller(r, tile - 1)];
        inside &= row.inside;
        from[r] = input + static_cast<int64_t>(row.in);
      }
      if (!inside) find_edges(input, rows, tile);
      fetch_outputs<S>(c, rows, tile, channel, channels);
      for (int64_t o = 0; o < channels; o += width) {
        const int64_t some = smaller(width, channels - o);
        multiply_channels(inside ? from : nullptr, o, some);
        finish<T, S>(c, affine[o / width], rows, tile, sums, channel + o, some);
      }
    }
  }
};

}  // namespace
}  // namespace husk::host
