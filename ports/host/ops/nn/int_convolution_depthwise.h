// The kernel of depthwise convolutions of codes of 8 bits. The codes that four rows of the input
// have at one place make a word for each channel, and an instruction multiplies them with the four
// weights of a column of the kernel. The words of a column of the input are made once for all
// positions of a line that read it. If the kernel has one row more than a multiple of four, the
// words of that row have four codes that lie beside each other.
#pragma once

#include "nn/int_convolution_results.h"

namespace husk::host {
namespace {

// Positions whose sums are in registers.
constexpr int kDepthwiseTile = HUSK_VECTOR_BYTES == 64 ? 4 : HUSK_VECTOR_BYTES == 32 ? 2 : 1;
// The most bytes of the words of a piece of a line, so that they stay in the first-level cache.
constexpr int64_t kColumnBytes = 24 << 10;
static_assert(kColumnBytes <= kIntPositions * kIntSlicePitch &&
                  kMaxDepthwiseTaps * 4 * HUSK_VECTOR_BYTES <= kIntPositions * kIntSlicePitch,
              "words of one position fit into the buffer of rows");

// Columns of words of a line: position i reads columns i * step + kx * gap. If positions share no
// columns, or leave some out, each has columns of its own.
struct DepthwiseColumns {
  bool are_shared;
  int64_t step, gap;

  explicit DepthwiseColumns(const IntConvolution& c)
      : are_shared(c.dilation[1] == 1 && c.stride[1] <= c.kernel[1]),
        step(are_shared ? c.stride[1] : c.kernel[1]),
        gap(1) {}
  int64_t count(const IntConvolution& c, int64_t positions) const {
    return (positions - 1) * step + c.kernel[1];
  }
  // The element that a column reads, for a line whose first tap reads element `at`.
  int64_t element(const IntConvolution& c, int64_t at, int64_t column) const {
    if (are_shared) return at + column;
    return at + column / step * c.stride[1] + column % step * c.dilation[1];
  }
  // Positions whose columns fit into the memory for them.
  int64_t most_positions(const IntConvolution& c, int64_t column_bytes) const {
    const int64_t columns = kColumnBytes / column_bytes;
    return columns <= c.kernel[1] ? 1 : (columns - c.kernel[1]) / step + 1;
  }
};

// As many channels as `Bytes` has, from `column` of the part on. Vectors of their sums are in the
// order of interleave().
template <class Bytes>
class DepthwiseChannels {
 public:
  static constexpr int64_t kChannels = sizeof(Bytes);
  static constexpr int kVectors = static_cast<int>(4 * kChannels / HUSK_VECTOR_BYTES);

  // `filled` channels exist. `panels` has the panels of the part.
  DepthwiseChannels(const IntPart& p, const SimpleResults& results, int64_t column, int64_t filled,
                    const uint32_t* panels)
      : p_(p),
        results_(results),
        columns_(p.c),
        column_(column),
        filled_(filled),
        groups_(depthwise_groups(p.c)),
        pitch_((groups_ + has_row_of_its_own(p.c)) * 4 * kChannels),
        words_(p.buffers.a),
        weights_(p.buffers.weights) {
    in_order(p.buffers.begins + column, begins_);
    in_order(p.buffers.scales + column, scales_);
    in_order(p.buffers.bias + column, bias_);
    const int64_t rows = int_panel_words(p.c) / kIntPanel,
                  last = panel_begin(p.c, p.panel + p.panels - 1) - p.column;
    for (int64_t part = 0; part < kChannels / 16; ++part)
      for (int64_t v = 0; v < 4; ++v) {
        // The last panel may overlap the one before it.
        const int64_t channel = column + 16 * part + 4 * v,
                      panel = channel >= last ? p.panels - 1 : channel / kIntPanel;
        const uint32_t* from = panels + panel * rows * kIntPanel + channel -
                               (channel >= last ? last : panel * kIntPanel);
        uint32_t* to = p.buffers.weights + v * (kChannels / 4) + 4 * part;
        for (int64_t row = 0; row < rows; ++row)
          __builtin_memcpy(to + row * kChannels, from + row * kIntPanel, 16);
      }
  }

  // Computes `count` positions of a line, from row `row` of the part on.
  void run(int64_t row, const Place& place, int64_t count) {
    const int64_t most = columns_.most_positions(p_.c, pitch_);
    for (int64_t first = 0; first < count; first += most) {
      const int64_t some = smaller(most, count - first);
      write_columns(place, place.at[1] + first * p_.c.stride[1], columns_.count(p_.c, some));
      // The last tile may overlap the one before it.
      const bool has_tile = some >= kDepthwiseTile;
      for (int64_t i = 0; has_tile && i < some; i += kDepthwiseTile) {
        const int64_t at = smaller(i, some - kDepthwiseTile);
        multiply<kDepthwiseTile>(row + first + at, at);
      }
      for (int64_t i = 0; !has_tile && i < some; ++i) multiply<1>(row + first + i, i);
      if (!is_direct())
        finish(p_, results_, row + first, some, column_, filled_, sums_at(row + first),
               kIntPartColumns);
    }
  }

 private:
  // Copies the numbers of the channels, four at a time, in the order of interleave().
  template <class T>
  static void in_order(const T* from, T* to) {
    for (int64_t part = 0; part < kChannels / 16; ++part)
      for (int64_t v = 0; v < 4; ++v)
        __builtin_memcpy(to + v * (kChannels / 4) + 4 * part, from + 16 * part + 4 * v, 16);
  }

  // Whether codes are made of sums in registers.
  bool is_direct() const {
    return p_.is_simple && p_.has_codes() && !p_.c.residual && filled_ == kChannels;
  }
  int32_t* sums_at(int64_t row) const { return p_.buffers.sums + row * kIntPartColumns + column_; }

  void write_columns(const Place& place, int64_t at, int64_t columns) const {
    const IntConvolution& c = p_.c;
    const int64_t step = c.input_strides.channel, x_step = c.input_strides.axis[1];
    const bool is_adjacent = step == 1 && filled_ == kChannels;
    const Bytes zeros = static_cast<uint8_t>(p_.zero ^ p_.flip) + Bytes{};
    const auto* image = static_cast<const uint8_t*>(c.input) + place.image * c.input_strides.image +
                        (p_.column + column_) * step;
    for (int64_t group = 0; group * 4 * kChannels < pitch_; ++group) {
      // Rows beside the image read the code of 0.
      const bool is_below = group < groups_;
      const uint8_t *from[4], *from_x[4];
      int64_t x_steps[4], steps[4];
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t ky = is_below ? 4 * group + i : c.kernel[0] - 1,
                      y = place.at[0] + ky * c.dilation[0];
        const bool is_inside = ky < c.kernel[0] && y >= 0 && y < c.in[0];
        from[i] = is_inside ? image + y * c.input_strides.axis[0] : p_.buffers.zeros;
        x_steps[i] = is_inside ? x_step : 0;
        steps[i] = is_inside ? step : 0;
      }
      const int64_t beside = is_below ? 0 : c.dilation[1];
      uint8_t* to = words_ + group * 4 * kChannels;
      for (int64_t column = 0; column < columns;) {
        const int64_t x = columns_.element(c, at, column), last_x = x + 3 * beside;
        if (is_adjacent && x >= 0 && last_x < c.in[1]) {
          // Columns whose elements lie in the image and follow each other.
          const int64_t count = columns_.are_shared ? smaller(columns - column, c.in[1] - last_x)
                                                    : 1;
          for (int i = 0; i < 4; ++i) from_x[i] = from[i] + (x + i * beside) * x_steps[i];
          copy_columns(from_x, x_steps, count, p_.flip, to, pitch_);
          column += count;
          to += count * pitch_;
          continue;
        }
        if (last_x < 0 || x >= c.in[1]) {
          HUSK_UNROLL
          for (int i = 0; i < 4; ++i) __builtin_memcpy(to + i * sizeof zeros, &zeros, sizeof zeros);
        } else {
          Bytes rows[4];
          for (int i = 0; i < 4; ++i) {
            const int64_t own_x = x + i * beside;
            const bool is_inside = own_x >= 0 && own_x < c.in[1];
            rows[i] = zeros;
            if (!is_inside) continue;
            const uint8_t* own = from[i] + own_x * x_steps[i];
            rows[i] = is_adjacent ? loaded(own, p_.flip) : gathered(own, steps[i]);
          }
          store_words(rows, to);
        }
        ++column;
        to += pitch_;
      }
    }
  }

  // Writes the words of `count` columns that follow each other. Not inlined, so that all pointers
  // are in registers.
  __attribute__((noinline)) static void copy_columns(const uint8_t* const (&from)[4],
                                                     const int64_t (&x_steps)[4], int64_t count,
                                                     uint8_t flip, uint8_t* to, int64_t pitch) {
    const uint8_t* at[4] = {from[0], from[1], from[2], from[3]};
    const int64_t steps[4] = {x_steps[0], x_steps[1], x_steps[2], x_steps[3]};
    for (int64_t column = 0; column < count; ++column, to += pitch) {
      Bytes rows[4];
      HUSK_UNROLL
      for (int i = 0; i < 4; ++i) {
        rows[i] = loaded(at[i], flip);
        at[i] += steps[i];
      }
      store_words(rows, to);
    }
  }

  static Bytes loaded(const uint8_t* from, uint8_t flip) {
    Bytes row;
    __builtin_memcpy(&row, from, sizeof row);
    return row ^ flip;
  }

  // Words are stored one by one, since a copy of the array would go through memory.
  static void store_words(const Bytes (&rows)[4], uint8_t* to) {
    Bytes words[4];
    interleave(rows, words);
    HUSK_UNROLL
    for (int i = 0; i < 4; ++i) __builtin_memcpy(to + i * sizeof(Bytes), &words[i], sizeof(Bytes));
  }

  Bytes gathered(const uint8_t* from, int64_t step) const {
    Bytes row = {};
    for (int64_t i = 0; i < filled_; ++i) row[i] = from[i * step];
    return row ^ p_.flip;
  }

  // Computes X positions, from row `row` of the part and position `position` of the columns on.
  // Always inlined, since calls took up to a fifth of the time of a layer.
  template <int X>
  __attribute__((always_inline)) void multiply(int64_t row, int64_t position) const {
    constexpr int V = kVectors;
    const uint8_t* at[X];
    IntVector total[X][V];
    HUSK_UNROLL
    for (int x = 0; x < X; ++x) {
      at[x] = words_ + (position + x) * columns_.step * pitch_;
      HUSK_UNROLL
      for (int v = 0; v < V; ++v) total[x][v] = load_ints(begins_ + v * kLanes);
    }
    const uint32_t* weights = weights_;
    for (int64_t group = 0; group * 4 * kChannels < pitch_; ++group)
      for (int64_t kx = 0; kx < p_.c.kernel[1]; kx += group < groups_ ? 1 : 4) {
        const int64_t from = kx * pitch_ + group * 4 * kChannels;
        IntVector right[V];
        HUSK_UNROLL
        for (int v = 0; v < V; ++v) right[v] = load_ints(weights + v * kLanes);
        HUSK_UNROLL
        for (int x = 0; x < X; ++x) {
          HUSK_UNROLL
          for (int v = 0; v < V; ++v)
            add_dots(total[x][v], load_ints(at[x] + from + v * HUSK_VECTOR_BYTES), right[v]);
        }
        weights += kChannels;
      }
    if (is_direct()) return store_results<X>(row, total);
    HUSK_UNROLL
    for (int x = 0; x < X; ++x) {
      alignas(64) int32_t sums[kChannels];
      __builtin_memcpy(sums, total[x], sizeof sums);
      for (int64_t part = 0; part < kChannels / 16; ++part)
        for (int64_t v = 0; v < 4; ++v)
          __builtin_memcpy(sums_at(row + x) + 16 * part + 4 * v,
                           sums + v * (kChannels / 4) + 4 * part, 16);
    }
  }

  // Writes the codes of X positions. Their vectors are taken four at a time.
  template <int X>
  void store_results(int64_t row, const IntVector (&total)[X][kVectors]) const {
    constexpr int V = kVectors;
    auto* const out = static_cast<uint8_t*>(p_.c.out) + p_.channel() + column_;
    HUSK_UNROLL
    for (int first = 0; first < X * V; first += 4) {
      Vector<float> numbers[4];
      uint8_t* to[4];
      HUSK_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int at = first + i < X * V ? first + i : X * V - 1, v = at % V;
        numbers[i] = scaled(total[at / V][v], load(scales_ + v * kLanes), load(bias_ + v * kLanes));
        to[i] = out + p_.buffers.out[row + at / V] + v * kLanes;
      }
      if constexpr (kChannels == HUSK_VECTOR_BYTES / 2 && kChannels > 16) {
#if defined(__AVX512F__)
        const ByteVector codes = pair_in_order(results_.codes(numbers));
        const Bytes one = half(codes, 0), other = half(codes, 1);
        __builtin_memcpy(to[0], &one, sizeof one);
        if constexpr (X > 1) __builtin_memcpy(to[2], &other, sizeof other);
#endif
      } else if constexpr (V < 4) {
        results_.store(numbers, to);
      } else {
        const ByteVector codes = results_.codes(numbers);
        __builtin_memcpy(to[0], &codes, sizeof codes);
      }
    }
  }

  const IntPart& p_;
  const SimpleResults& results_;
  DepthwiseColumns columns_;
  int64_t column_, filled_;
  int64_t groups_;  // of rows that lie below each other
  int64_t pitch_;   // bytes of a column
  uint8_t* words_;
  const uint32_t* weights_;
  alignas(64) int32_t begins_[kChannels];
  alignas(64) float scales_[kChannels], bias_[kChannels];
};

template <class Bytes>
inline bool run_depthwise_channels(const IntPart& p, const SimpleResults& results, int64_t column,
                                   int64_t filled, const uint32_t* panels,
                                   Cancellation& cancellation) {
  DepthwiseChannels<Bytes> channels(p, results, column, filled, panels);
  bool ends = false;
  for_each_line(p, [&](int64_t row, const Place& place, int64_t count) {
    ends = ends || cancellation.ends(count * taps_of(p.c) * int64_t{sizeof(Bytes)} / 64 + 16);
    if (!ends) channels.run(row, place, count);
  });
  return !ends;
}

inline void run_depthwise(const IntPart& p, const SimpleResults& results,
                          Cancellation& cancellation) {
  const IntConvolution& c = p.c;
  const int64_t pitch = int_panel_words(c);
  const uint32_t* b = p.buffers.b;
  if (c.packed) {
    b = static_cast<const uint32_t*>(c.packed) + p.panel * pitch;
  } else {
    for (int64_t panel = 0; panel < p.panels; ++panel)
      write_int_panel(c, 0, p.panel + panel, 0, pitch / kIntPanel, p.buffers.b + panel * pitch);
  }
  __builtin_memset(p.buffers.zeros, p.zero, sizeof p.buffers.zeros);
  for (int64_t column = 0; column < p.columns;) {
    const int64_t left = p.columns - column;
    // The last channels may overlap those before them. Weights are copied four at a time.
    const auto takes = [&](int64_t channels) {
      return left >= channels ||
             (left > channels / 2 && p.columns >= channels && p.columns % 4 == 0);
    };
    int64_t channels = HUSK_VECTOR_BYTES;
    while (channels > kIntPanel && !takes(channels)) channels /= 2;
    const int64_t first = larger(smaller(column, p.columns - channels), int64_t{0});
    const auto run = [&](auto bytes) {
      constexpr int64_t kMost = sizeof bytes;
      const int64_t filled = kMost > kIntPanel ? kMost : smaller(kMost, p.columns);
      return run_depthwise_channels<decltype(bytes)>(p, results, first, filled, b, cancellation);
    };
    bool runs = false;
    if (channels == HUSK_VECTOR_BYTES) runs = run(ByteVector{});
#if HUSK_VECTOR_BYTES == 64
    else if (channels == 32)
      runs = run(ByteVector32{});
#endif
    else
      runs = run(ByteVector16{});
    if (!runs) return;
    column = first + channels;
  }
}

}  // namespace
}  // namespace husk::host
