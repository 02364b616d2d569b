// Winograd's method for a convolution with 3 x 3 taps, F(2 x 2, 3 x 3) in "Fast Algorithms for
// Convolutional Neural Networks" (Lavin and Gray, 2015). A tile of 2 x 2 outputs reads 4 x 4
// inputs. With the matrices
//
//          1  0 -1  0          1    0    0
//          0  1  1  0         1/2  1/2  1/2           1  1  1  0
//     B' = 0 -1  1  0     G = 1/2 -1/2  1/2     A' =  0  1 -1 -1
//          0  1  0 -1          0    0    1
//
// inputs are transformed to B' d B, weights to G g G', and the element-wise products, summed over
// the input channels, to A' m A. The sums at each of the 16 places are a matrix product of tiles
// and output channels.
//
// A part is some tiles by some output channels. Nothing is kept between parts: weights that are not
// packed are transformed again for each part, which takes about a tenth of the time of the
// products.
//
// An infinite input makes all outputs of its tiles NaN or infinite, since it is subtracted from
// itself.
#pragma once

#include "nn/convolution_general.h"

namespace husk::host {
namespace {

constexpr int kPlaces = 16;                 // of a tile
constexpr int64_t kTilesAtOnce = kMaxRows;  // tiles that lie together in memory
static_assert(kWinogradTiles % kTilesAtOnce == 0, "");

// 1/2 (a + b + c), 1/2 (a - b + c): the inner rows of G.
template <class V>
inline void apply_g(V a, V b, V c, V& plus, V& minus) {
  const V outer = a * 0.5f + c * 0.5f, inner = b * 0.5f;
  plus = outer + inner;
  minus = outer - inner;
}

// The most input channels of a chunk.
template <class T>
int64_t winograd_channels_at_once(const Convolution& c) {
  constexpr int64_t L = kLaneCount<T>;
  const int64_t chunks = divide_up(c.in_channels, kWinogradDepth);
  return divide_up(divide_up(c.in_channels, chunks), L) * L;
}

// Transforms the weights of a chunk for the output channels of one block, which begin at `from`.
// Rows have a pitch of `pitch` elements, places of `places`.
template <class T, class S>
void transform_weights(const Convolution& c, const Chunk& chunk, const S* from, int64_t channels,
                       int64_t pitch, int64_t places, T* first_place) {
  constexpr int L = kLaneCount<T>;
  alignas(64) T packed[9 * kWinogradDepth * L];
  const int64_t depth = chunk.channels;
  for (int64_t o = 0; o < channels; o += L) {
    pack_weights(c, chunk, from + o * c.weight_out, smaller(L, channels - o), packed, L);
    for (int64_t i = 0; i < depth; ++i) {
      const T* taps = packed + i * L;
      Vector<T> rows[4][3];
      HUSK_UNROLL
      for (int x = 0; x < 3; ++x) {
        rows[0][x] = load(taps + x * depth * L);
        rows[3][x] = load(taps + (6 + x) * depth * L);
        apply_g(rows[0][x], load(taps + (3 + x) * depth * L), rows[3][x], rows[1][x], rows[2][x]);
      }
      T* to = first_place + i * pitch + o;
      HUSK_UNROLL
      for (int y = 0; y < 4; ++y, to += 4 * places) {
        Vector<T> plus, minus;
        apply_g(rows[y][0], rows[y][1], rows[y][2], plus, minus);
        store(to, rows[y][0]);
        store(to + places, plus);
        store(to + 2 * places, minus);
        store(to + 3 * places, rows[y][2]);
      }
    }
  }
}

template <class T, class S>
struct WinogradPart : InScratch {
  static constexpr int L = kLaneCount<T>;
  static constexpr int64_t kGroups = kWinogradTiles / kTilesAtOnce;
  static constexpr int64_t kBlocks = kWinogradBlock / kBlock<T>;

  struct Tile {
    uint64_t in;            // offset of the first of the 4 x 4 inputs
    int64_t out, residual;  // offsets of the first of the 2 x 2 outputs
    int64_t row, column;    // of the first input
    int64_t rows, columns;  // outputs inside of the output
  };

  const Convolution& c;
  const Plan& plan;
  Cancellation& cancellation;
  const Phase phase;
  Chunk chunk;
  Tile tiles[kWinogradTiles];
  AffineValues<T, kBlocks * kBlock<T>> affine;
  const T* all_weights;  // transformed and packed; null if they are not
  // The transformed weights of the chunk by block, in `all_weights` or in `weights`, and the
  // distance between two of the places.
  const T* chunk_weights[kBlocks];
  int64_t place_pitch[kBlocks];
  alignas(64) T weights[kBlocks][kPlaces * kWinogradDepth * kBlock<T>];
  alignas(64) T inputs[kGroups][kPlaces][kTilesAtOnce * kWinogradDepth];
  alignas(64) T sums[kBlocks][kGroups][kPlaces][kTilesAtOnce * kBlock<T>];

  WinogradPart(const Convolution& convolution, const Plan& division, Cancellation& calls_end)
      : c(convolution),
        plan(division),
        cancellation(calls_end),
        phase(find_phase(convolution, 0)),
        all_weights(packed_weights<T>(convolution, division)) {
    chunk.find_taps(c, phase, 0, c.taps);
  }

  void find_tiles(int64_t first, int64_t count) {
    const ConvolutionAxis &depth = c.axis[0], &y = c.axis[1], &x = c.axis[2];
    const int64_t across = divide_up(x.out, 2), down = divide_up(y.out, 2);
    for (int64_t t = 0; t < count; ++t) {
      const int64_t index = first + t, column = index % across * 2, row = index / across % down * 2,
                    layer = index / across / down, z = layer % depth.out, image = layer / depth.out;
      Tile& tile = tiles[t];
      tile.row = row - y.padding;
      tile.column = column - x.padding;
      tile.rows = smaller(2, y.out - row);
      tile.columns = smaller(2, x.out - column);
      tile.in = static_cast<uint64_t>(image * c.input_image + z * depth.in_stride) +
                static_cast<uint64_t>(tile.row) * static_cast<uint64_t>(y.in_stride) +
                static_cast<uint64_t>(tile.column) * static_cast<uint64_t>(x.in_stride);
      tile.out = image * c.out_image + z * depth.out_stride + row * y.out_stride +
                 column * x.out_stride;
      tile.residual = image * c.residual_image + z * depth.residual_stride +
                      row * y.residual_stride + column * x.residual_stride;
    }
  }

  // Transforms the inputs of the chunk for one tile.
  void transform_input(const S* input, const Tile& tile, T* to) {
    const ConvolutionAxis &y = c.axis[1], &x = c.axis[2];
    const S* from[4][4];
    const bool inside = tile.row >= 0 && tile.row + 4 <= y.in && tile.column >= 0 &&
                        tile.column + 4 <= x.in;
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t j = 0; j < 4; ++j) {
        const bool reads = inside || (tile.row + i >= 0 && tile.row + i < y.in &&
                                      tile.column + j >= 0 && tile.column + j < x.in);
        from[i][j] = reads ? input + static_cast<int64_t>(
                                         tile.in +
                                         static_cast<uint64_t>(i * y.in_stride + j * x.in_stride))
                           : kZeros<S>.values;
      }
    }
    int64_t i = 0;
    for (; i + L <= chunk.channels; i += L)
      transform_lanes(to + i, [&](int row, int column) { return load(from[row][column] + i); });
    if (i < chunk.channels)
      transform_lanes(to + i, [&](int row, int column) {
        return load_some<T>(from[row][column] + i, chunk.channels - i);
      });
  }

  template <class Load>
  [[gnu::always_inline]] static void transform_lanes(T* to, Load load_lanes) {
    constexpr int64_t pitch = kTilesAtOnce * kWinogradDepth;
    Vector<T> rows[4][4];
    HUSK_UNROLL
    for (int x = 0; x < 4; ++x) {
      const Vector<T> a = load_lanes(0, x), b = load_lanes(1, x), c = load_lanes(2, x),
                      d = load_lanes(3, x);
      rows[0][x] = a - c;
      rows[1][x] = b + c;
      rows[2][x] = c - b;
      rows[3][x] = b - d;
    }
    HUSK_UNROLL
    for (int y = 0; y < 4; ++y, to += 4 * pitch) {
      store(to, rows[y][0] - rows[y][2]);
      store(to + pitch, rows[y][1] + rows[y][2]);
      store(to + 2 * pitch, rows[y][2] - rows[y][1]);
      store(to + 3 * pitch, rows[y][1] - rows[y][3]);
    }
  }

  // Adds the products of the chunk to the sums of one block of output channels.
  template <int C>
  void add_products(int64_t block, int64_t count, bool fresh) {
    for (int place = 0; place < kPlaces; ++place) {
      for (int64_t first = 0; first < count; first += kTilesAtOnce) {
        const int64_t group = first / kTilesAtOnce,
                      tiles_here = smaller(kTilesAtOnce, count - first);
        for (int64_t r = 0; r < tiles_here; r += kTileRows<C>) {
          const T* from[kTileRows<C>];
          for (int64_t i = 0; i < kTileRows<C>; ++i)
            from[i] = inputs[group][place] + (r + i) * kWinogradDepth;
          const Run<T> run = {from, 0, 0, chunk.channels};
          const TileInput<T> input = {&run, 1, 1, kWinogradDepth};
          multiply_rows<T, T, C>({smaller(kTileRows<C>, tiles_here - r), input, fresh,
                                  sums[block][group][place] + r * kBlock<T>, End::kStore, nullptr},
                                 chunk_weights[block] + place * place_pitch[block]);
        }
      }
    }
  }

  void add_products(int64_t vectors, int64_t block, int64_t count, bool fresh) {
    if constexpr (kVectors == 4) {
      if (vectors == 4) return add_products<4>(block, count, fresh);
      if (vectors == 3) return add_products<3>(block, count, fresh);
    }
    if (vectors == 2) return add_products<2>(block, count, fresh);
    add_products<1>(block, count, fresh);
  }

  // Writes the outputs of a tile for one block of output channels.
  void finish_tile(const Tile& tile, const T* from, int64_t block, int64_t channel,
                   int64_t channels) {
    constexpr int64_t pitch = kTilesAtOnce * kBlock<T>;
    alignas(64) T outputs[4 * kBlock<T>];
    Row rows[4] = {};
    T* to[2][2];
    int64_t count = 0;
    for (int64_t y = 0; y < 2; ++y) {
      for (int64_t x = 0; x < 2; ++x) {
        // Outputs outside are written to a row that is not used, or is overwritten by the next one.
        to[y][x] = outputs + count * kBlock<T>;
        rows[count].out = tile.out + y * c.axis[1].out_stride + x * c.axis[2].out_stride;
        rows[count].residual = tile.residual + y * c.axis[1].residual_stride +
                               x * c.axis[2].residual_stride;
        count += y < tile.rows && x < tile.columns;
      }
    }
    for (int64_t o = 0; o < channels; o += L) {
      Vector<T> halves[2][4];
      HUSK_UNROLL
      for (int x = 0; x < 4; ++x) {
        const T* column = from + x * pitch + o;
        const Vector<T> b = load(column + 4 * pitch), c2 = load(column + 8 * pitch);
        halves[0][x] = load(column) + (b + c2);
        halves[1][x] = b - c2 - load(column + 12 * pitch);
      }
      HUSK_UNROLL
      for (int y = 0; y < 2; ++y) {
        store(to[y][0] + o, halves[y][0] + (halves[y][1] + halves[y][2]));
        store(to[y][1] + o, halves[y][1] - halves[y][2] - halves[y][3]);
      }
    }
    finish<T, S>(c, affine.from(block * kBlock<T>), rows, count, outputs, channel, channels);
  }

  void run(const Part& part) {
    const int64_t first = part.position_block * plan.position_block;
    const int64_t count = smaller(plan.position_block, plan.positions - first);
    const int64_t offset = part.channel_block * plan.block;
    const int64_t channels = smaller(plan.block, c.out_channels - offset);
    const int64_t channel = part.group * c.out_channels + offset;
    if (count <= 0) return;
    const int64_t blocks = divide_up(channels, kBlock<T>);
    const int64_t all_channels = whole_vectors<T>(c.out_channels);
    const S* from = static_cast<const S*>(c.weight) + part.group * c.weight_group +
                    offset * c.weight_out;
    const auto channels_of = [&](int64_t block) {
      return smaller(kBlock<T>, channels - block * kBlock<T>);
    };
    find_tiles(first, count);
    affine.template read<S>(c, channel, channels);
    const int64_t at_once = winograd_channels_at_once<T>(c);
    for (int64_t i = 0; i < c.in_channels; i += at_once) {
      chunk.first_channel = i;
      chunk.channels = smaller(at_once, c.in_channels - i);
      if (cancellation.ends((count + 8) * chunk.channels * channels / 4)) return;
      const S* input = static_cast<const S*>(c.input) + part.group * c.in_channels + i;
      for (int64_t t = 0; t < count; ++t)
        transform_input(input, tiles[t],
                        inputs[t / kTilesAtOnce][0] + t % kTilesAtOnce * kWinogradDepth);
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first_channel = offset + block * kBlock<T>,
                      pitch = whole_vectors<T>(channels_of(block));
        if (all_weights) {
          place_pitch[block] = chunk.channels * pitch;
          chunk_weights[block] = all_weights +
                                 kPlaces *
                                     (c.in_channels * (part.group * all_channels + first_channel) +
                                      i * pitch);
        } else {
          place_pitch[block] = kWinogradDepth * kBlock<T>;
          chunk_weights[block] = weights[block];
          transform_weights<T, S>(c, chunk, from + block * kBlock<T> * c.weight_out,
                                  channels_of(block), pitch, place_pitch[block], weights[block]);
        }
        add_products(pitch / L, block, count, i == 0);
      }
    }
    if (cancellation.ends(count * channels)) return;
    for (int64_t t = 0; t < count; ++t) {
      for (int64_t block = 0; block < blocks; ++block) {
        finish_tile(tiles[t], sums[block][t / kTilesAtOnce][0] + t % kTilesAtOnce * kBlock<T>,
                    block, channel + block * kBlock<T>, channels_of(block));
      }
    }
  }
};

// The transformed weights of all channels. Each group has its blocks of kBlock output channels, a
// block its chunks of input channels, one after another, and a chunk its places. Returns the number
// of weights.
template <class T, class S>
[[gnu::noinline]] int64_t pack_winograd(const Convolution& c, const Plan& plan, T* to) {
  if (!to) return c.groups * kPlaces * c.in_channels * whole_vectors<T>(c.out_channels);
  const int64_t at_once = winograd_channels_at_once<T>(c);
  Chunk chunk;
  chunk.find_taps(c, find_phase(c, 0), 0, c.taps);
  const T* begin = to;
  for (int64_t group = 0; group < c.groups; ++group) {
    const S* from = static_cast<const S*>(c.weight) + group * c.weight_group;
    for (int64_t first = 0; first < c.out_channels; first += plan.block) {
      const int64_t end = smaller(first + plan.block, c.out_channels);
      for (int64_t o = first; o < end; o += kBlock<T>) {
        const int64_t channels = smaller(kBlock<T>, end - o), pitch = whole_vectors<T>(channels);
        for (int64_t i = 0; i < c.in_channels; i += chunk.channels) {
          chunk.first_channel = i;
          chunk.channels = smaller(at_once, c.in_channels - i);
          if (c.packing->ends(kPlaces * chunk.channels * pitch)) return to - begin;
          transform_weights<T, S>(c, chunk, from + o * c.weight_out, channels, pitch,
                                  chunk.channels * pitch, to);
          to += kPlaces * chunk.channels * pitch;
        }
      }
    }
  }
  return to - begin;
}

}  // namespace
}  // namespace husk::host
