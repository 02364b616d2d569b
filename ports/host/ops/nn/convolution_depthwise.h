// The depthwise method of a convolution (see convolution_kernels.h).
#pragma once

#include "nn/convolution_parts.h"

namespace husk::host {
namespace {

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

}  // namespace
}  // namespace husk::host
