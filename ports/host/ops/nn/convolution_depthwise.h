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
  for (int64_t b = 0; b < plan.channel_blocks && !c.packing->ends(block); ++b)
    pack_depthwise_block<T, S>(c, plan, taps, b * plan.block,
                               smaller(plan.block, c.groups - b * plan.block), to + b * block);
  return plan.channel_blocks * block;
}

// Reads says which elements positions read through the taps of a line along the last axis. The
// elements for the taps from `first_tap` on are `step` apart.
template <class S>
struct Reads {
  const S* from;     // what the first position reads through the first of these taps
  int64_t distance;  // from a position to the next one
  int64_t first_tap, taps, step;
};

// Positions are computed in tiles of six or twelve along the last axis. All taps of a tile read
// elements of the input, and its positions are equally far apart, so that their addresses need no
// table. The positions near the ends of a line are computed one by one, through the taps that read
// elements.
template <class T, class S>
struct DepthwisePart : InScratch {
  // The taps that differ along the last axis only.
  struct TapLine {
    int64_t in;  // the offset of what the first of them reads, without that along the last axis
    const T* weights;
  };

  const Convolution& c;
  const Plan& plan;
  Cancellation& cancellation;
  const ConvolutionAxis& along;  // the last axis
  AffineValues<T, kBlocksAtOnce * kBlock<T>> affine;
  TapLine lines[kDepth];  // the taps that read elements
  int line_count = 0;
  int64_t inside_begin, inside_end;   // the positions of a line whose taps all read elements
  int64_t packed = -1;                // the number of the block of channels of `block_weights`
  const T* all_weights;               // of packed weights; null if there are none
  const T* block_weights;             // of the block: in `all_weights` or in `weights`
  int64_t channel = 0, channels = 0;  // of the block
  int64_t width = 0;                  // channels of a tile
  int64_t tile_rows = 6;              // positions of a tile: 12 if it has few channels
  alignas(64) T weights[kDepth * kBlock<T>];
  alignas(64) T sums[kMaxRows * kBlock<T>];

  DepthwisePart(const Convolution& convolution, const Plan& division, Cancellation& calls_end)
      : c(convolution),
        plan(division),
        cancellation(calls_end),
        along(convolution.axis[kAxes - 1]),
        all_weights(packed_weights<T>(convolution, division)) {
    find_inside();
  }

  // Finds the positions of a line whose taps all read elements.
  void find_inside() {
    const int64_t span = (along.kernel - 1) * along.dilation;
    const int64_t room = along.in + along.padding - span;  // for the first tap of an inner position
    inside_begin = along.padding > 0 ? smaller(along.out, divide_up(along.padding, along.stride))
                                     : 0;
    inside_end = room > 0 ? smaller(along.out, divide_up(room, along.stride)) : 0;
  }

  // Sums C vectors of channels of R positions. The last vector has `lanes` channels. A position's
  // sums have a pitch of kBlock.
  template <int R, int C, bool Whole>
  [[gnu::noinline]] void multiply(const Reads<S>& reads, int64_t offset, int64_t lanes, T* to) {
    constexpr int L = kLaneCount<T>, kOfPointer = R % 3 == 0 ? 3 : 1, kPointers = R / kOfPointer;
    const int64_t distance = reads.distance, step = reads.step, pitch = plan.block;
    Vector<T> total[R][C] = {};
    for (const TapLine* line = lines; line != lines + line_count; ++line) {
      const S* from[kPointers];
      HUSK_UNROLL
      for (int i = 0; i < kPointers; ++i)
        from[i] = reads.from + line->in + offset + i * kOfPointer * distance;
      const T* right = line->weights + reads.first_tap * pitch + offset;
      for (int64_t t = 0; t < reads.taps; ++t, right += pitch) {
        Vector<T> columns[C];
        HUSK_UNROLL
        for (int v = 0; v < C; ++v) columns[v] = load(right + v * L);
        HUSK_UNROLL
        for (int r = 0; r < R; ++r) {
          const S* left = from[r / kOfPointer] + r % kOfPointer * distance;
          HUSK_UNROLL
          for (int v = 0; v < C; ++v) {
            total[r][v] += columns[v] * (Whole || v < C - 1 ? Vector<T>(load(left + v * L))
                                                            : load_some<T>(left + v * L, lanes));
          }
        }
        HUSK_UNROLL
        for (int i = 0; i < kPointers; ++i) from[i] += step;
      }
    }
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) {
      HUSK_UNROLL
      for (int v = 0; v < C; ++v) store(to + r * kBlock<T> + v * L, total[r][v]);
    }
  }
  template <int R, int C>
  void multiply(const Reads<S>& reads, int64_t offset, int64_t lanes) {
    lanes == kLaneCount<T> ? multiply<R, C, true>(reads, offset, lanes, sums)
                           : multiply<R, C, false>(reads, offset, lanes, sums);
  }
  template <int C>
  void multiply_rows(const Reads<S>& reads, int64_t offset, int64_t lanes) {
    if constexpr (kTileRows<C> == 12)
      if (tile_rows == 12) return multiply<12, C>(reads, offset, lanes);
    multiply<6, C>(reads, offset, lanes);
  }
  void multiply_channels(const Reads<S>& reads, int64_t offset, int64_t count) {
    const int64_t vectors = divide_up(count, kLaneCount<T>);
    const int64_t lanes = count - (vectors - 1) * kLaneCount<T>;
    if constexpr (kVectors == 4) {
      if (vectors == 4) return multiply_rows<4>(reads, offset, lanes);
      if (vectors == 3) return multiply_rows<3>(reads, offset, lanes);
    }
    if (vectors == 2) return multiply_rows<2>(reads, offset, lanes);
    multiply_rows<1>(reads, offset, lanes);
  }

  // Computes the tile that begins with position `first` of a line, and writes the results of
  // `rows`, which begin with position `x`.
  void run_tile(const S* from, int64_t first, int64_t x, const EvenRows& rows) {
    const Reads<S> reads = {from + (first * along.stride - along.padding) * along.in_stride,
                            along.stride * along.in_stride, 0, along.kernel,
                            along.dilation * along.in_stride};
    for (int64_t o = 0; o < channels; o += width) {
      const int64_t some = smaller(width, channels - o);
      multiply_channels(reads, o, some);
      finish<T, S>(c, affine.from(o), rows, sums + (x - first) * kBlock<T>, channel + o, some);
    }
  }

  // Computes position `x` of a line. Eight vectors are summed at once, because a few sums would
  // wait for each other.
  void run_single(const S* from, int64_t x, const EvenRows& row) {
    constexpr int64_t L = kLaneCount<T>;
    const int64_t at = x * along.stride - along.padding, room = along.in - at;
    const int64_t begin = at < 0 ? divide_up(-at, along.dilation) : 0;
    const int64_t end = room > 0 ? smaller(along.kernel, divide_up(room, along.dilation)) : 0;
    Reads<S> reads = {from, 0, begin, 0, along.dilation * along.in_stride};
    if (begin < end) {
      reads.taps = end - begin;
      reads.from += (at + begin * along.dilation) * along.in_stride;
    }
    for (int64_t o = 0; o < channels;) {
      const int64_t vectors = divide_up(channels - o, L);
      const bool whole = channels - o >= 8 * L;
      if (whole) {
        multiply<1, 8, true>(reads, o, L, sums + o);
      } else if (vectors > 1) {
        multiply<1, 1, true>(reads, o, L, sums + o);
      } else {
        multiply<1, 1, false>(reads, o, channels - o, sums + o);
      }
      o += whole ? 8 * L : L;
    }
    finish<T, S>(c, affine.from(0), row, sums, channel, channels);
  }

  // Finds the taps that positions of a line read: `at` has its input coordinates along the other
  // axes for a tap offset of 0.
  void find_lines(const int64_t* at) {
    const ConvolutionAxis &z = c.axis[0], &y = c.axis[1];
    line_count = 0;
    for (int64_t i = 0; i < z.kernel; ++i) {
      const int64_t in_z = at[0] + i * z.dilation;
      if (in_z < 0 || in_z >= z.in) continue;
      for (int64_t j = 0; j < y.kernel; ++j) {
        const int64_t in_y = at[1] + j * y.dilation;
        if (in_y < 0 || in_y >= y.in) continue;
        lines[line_count++] = {in_z * z.in_stride + in_y * y.in_stride,
                               block_weights + (i * y.kernel + j) * along.kernel * plan.block};
      }
    }
  }

  // Computes the positions [begin, end) of a line. `from` is the first element of its image.
  void run_line(const S* from, int64_t out, int64_t residual, int64_t begin, int64_t end) {
    const auto rows = [&](int64_t x, int64_t count) {
      return EvenRows(count, out + x * along.out_stride, residual + x * along.residual_stride,
                      along.out_stride, along.residual_stride);
    };
    for (int64_t x = begin; x < end;) {
      if (cancellation.ends(tile_rows * c.taps * channels / 4)) return;
      if (x < inside_begin || x >= inside_end || inside_end - inside_begin < tile_rows) {
        run_single(from, x, rows(x, 1));
        ++x;
        continue;
      }
      // The last tile begins earlier, so that it reads no edge.
      const int64_t first = smaller(x, inside_end - tile_rows);
      const int64_t count = smaller(end, first + tile_rows) - x;
      run_tile(from, first, x, rows(x, count));
      x += count;
    }
  }

  // Finds the weights of a block of channels.
  void begin_block(int64_t block) {
    channel = block * plan.block;
    channels = smaller(plan.block, c.groups - channel);
    block_weights = weights;
    if (all_weights) {
      block_weights = all_weights + block * c.taps * plan.block;
    } else {
      const Phase phase = find_phase(c, 0);
      Tap taps[kDepth];
      for (int64_t t = 0; t < c.taps; ++t) find_tap(c, phase, t, taps[t]);
      pack_depthwise_block<T, S>(c, plan, taps, channel, channels, weights);
    }
    // The vectors of channels are divided evenly, because one vector alone is slow.
    const int64_t vectors = divide_up(channels, kLaneCount<T>);
    width = divide_up(vectors, divide_up(vectors, kVectors)) * kLaneCount<T>;
    const bool is_thin = width <= kVectors / 2 * kLaneCount<T>;
    tile_rows = is_thin && inside_end - inside_begin >= 12 ? 12 : 6;
    affine.template read<S>(c, channel, channels);
    packed = block;
  }

  void run(const Part& part) {
    if (packed != part.channel_block) begin_block(part.channel_block);
    const int64_t first = part.position_block * plan.position_block;
    int64_t count = smaller(plan.position_block, plan.positions - first);
    int64_t x = first % along.out, line = first / along.out;
    for (int64_t length; count > 0; count -= length, x = 0, ++line) {
      length = smaller(count, along.out - x);
      const ConvolutionAxis &z = c.axis[0], &y = c.axis[1];
      const int64_t j = line % y.out, i = line / y.out % z.out, image = line / y.out / z.out;
      const int64_t at[] = {i * z.stride - z.padding, j * y.stride - y.padding};
      find_lines(at);
      run_line(static_cast<const S*>(c.input) + channel + image * c.input_image,
               image * c.out_image + i * z.out_stride + j * y.out_stride,
               image * c.residual_image + i * z.residual_stride + j * y.residual_stride, x,
               x + length);
    }
  }
};

}  // namespace
}  // namespace husk::host
