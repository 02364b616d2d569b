// The kernel of convolutions and linear layers of codes of 8 bits. A part is a product of matrices:
// a row has the elements that a position reads, tap by tap, and a column the weights of a channel.
// Rows lie in the input itself if a position reads adjacent elements that need no change; else they
// are copied to scratch memory. Elements beside the image are the code of 0, so that one correction
// of a column, its sum of weights times that code, holds for all rows. Depthwise convolutions have
// a method of their own (int_convolution_depthwise.h).
#pragma once

#include "nn/int_convolution_depthwise.h"

namespace husk::host {
namespace {

// ---- rows ----

// The last store overlaps the one before it rather than write after the run.
template <class Bytes>
inline void copy_run(const uint8_t* from, int64_t count, uint8_t flip, uint8_t* to) {
  constexpr int64_t kSize = sizeof(Bytes);
  const auto copy = [&](int64_t i) {
    Bytes codes;
    __builtin_memcpy(&codes, from + i, kSize);
    codes ^= flip;
    __builtin_memcpy(to + i, &codes, kSize);
  };
  for (int64_t i = 0; i + kSize <= count; i += kSize) copy(i);
  copy(count - kSize);
}

inline void copy_codes(const uint8_t* from, int64_t step, int64_t count, uint8_t flip,
                       uint8_t* to) {
  if (step == 1 && count >= HUSK_VECTOR_BYTES) return copy_run<ByteVector>(from, count, flip, to);
  if (step == 1 && count >= 16) return copy_run<ByteVector16>(from, count, flip, to);
  if (step == 1 && count >= 8) {
    const uint64_t flips = flip * uint64_t{0x0101010101010101};
    const auto copy = [&](int64_t i) {
      uint64_t word;
      __builtin_memcpy(&word, from + i, sizeof word);
      word ^= flips;
      __builtin_memcpy(to + i, &word, sizeof word);
    };
    for (int64_t i = 0; i + 8 <= count; i += 8) copy(i);
    return copy(count - 8);
  }
  for (int64_t i = 0; i < count; ++i) to[i] = from[i * step] ^ flip;
}

// Copies elements from `begin` to `end` of a row, and fills a word of 32 bits with 0.
inline void copy_row(const IntPart& p, const Place& place, int64_t begin, int64_t end,
                     uint8_t* to) {
  const IntConvolution& c = p.c;
  const int64_t channels = c.in_channels, step = c.input_strides.channel,
                line = c.kernel[1] * channels;
  const Inside across(c, 1, place.at[1]);
  // Products that lead out of the image are left out, since they may not fit an int64_t.
  const int64_t pitch = across.last - across.first > 1 ? c.dilation[1] * c.input_strides.axis[1]
                                                       : channels;
  const auto* image = static_cast<const uint8_t*>(c.input) + place.image * c.input_strides.image +
                      p.group * channels * step;
  if (across.first < across.last)
    image += (place.at[1] + across.first * c.dilation[1]) * c.input_strides.axis[1];
  const uint8_t zero = p.zero ^ p.flip;
  uint8_t* const base = to - begin;
  const auto clear = [&](int64_t from, int64_t until) {
    for (int64_t i = larger(from, begin); i < smaller(until, end); ++i) base[i] = zero;
  };
  for (int64_t ky = begin / line; ky * line < end; ++ky) {
    const int64_t y = place.at[0] + ky * c.dilation[0], at = ky * line;
    if (y < 0 || y >= c.in[0]) {
      clear(at, at + line);
      continue;
    }
    const uint8_t* from = image + y * c.input_strides.axis[0];
    const int64_t first = at + across.first * channels, last = at + across.last * channels;
    clear(at, first);
    if (step == 1 && pitch == channels) {
      const int64_t i = larger(first, begin), until = smaller(last, end);
      if (i < until) copy_codes(from + (i - first), 1, until - i, p.flip, base + i);
    } else {
      for (int64_t kx = across.first; kx < across.last; ++kx) {
        const int64_t tap = at + kx * channels, i = larger(tap, begin),
                      until = smaller(tap + channels, end);
        if (i < until)
          copy_codes(from + (kx - across.first) * pitch + (i - tap) * step, step, until - i, p.flip,
                     base + i);
      }
    }
    clear(last, at + line);
  }
  for (int64_t i = end; (i - begin) % 4 != 0; ++i) base[i] = 0;
}

// ---- products ----

// The elements of rows: `lines` pieces of `words` words each. Line l of row r is at
// first[l * kIntPositions + r].
struct RowLines {
  const uint8_t* const* first;
  int64_t lines, words;
};

// Adds R rows times P panels that lie `pitch` words apart to `begins`, whose rows lie
// `begins_pitch` apart, and writes the sums.
template <int R, int P>
void multiply_tile(const RowLines& a, const uint32_t* b, int64_t pitch, const int32_t* begins,
                   int64_t begins_pitch, int32_t* sums, int64_t sums_pitch) {
  constexpr int V = static_cast<int>(kIntPanel / kLanes);
  IntVector total[R][P * V];
  HUSK_UNROLL
  for (int r = 0; r < R; ++r) {
    HUSK_UNROLL
    for (int v = 0; v < P * V; ++v) total[r][v] = load_ints(begins + r * begins_pitch + v * kLanes);
  }
  const int64_t words = a.words;
  for (int64_t line = 0; line < a.lines; ++line, b += words * kIntPanel) {
    const uint8_t* rows[R];
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) rows[r] = a.first[line * kIntPositions + r];
    for (int64_t d = 0; d < words; ++d) {
      IntVector right[P * V];
      HUSK_UNROLL
      for (int p = 0; p < P; ++p) {
        HUSK_UNROLL
        for (int v = 0; v < V; ++v)
          right[p * V + v] = load_ints(b + p * pitch + d * kIntPanel + v * kLanes);
      }
      HUSK_UNROLL
      for (int r = 0; r < R; ++r) {
        const IntVector left = all_ints(rows[r] + d * 4);
        HUSK_UNROLL
        for (int v = 0; v < P * V; ++v) add_dots(total[r][v], left, right[v]);
      }
    }
  }
  HUSK_UNROLL
  for (int r = 0; r < R; ++r) {
    HUSK_UNROLL
    for (int v = 0; v < P * V; ++v)
      __builtin_memcpy(sums + r * sums_pitch + v * kLanes, &total[r][v], sizeof total[r][v]);
  }
}

template <int R>
void multiply_panels(int64_t panels, const RowLines& a, const uint32_t* b, int64_t pitch,
                     const int32_t* begins, int64_t begins_pitch, int32_t* sums,
                     int64_t sums_pitch) {
  if constexpr (kIntTilePanels == 4) {
    if (panels == 4)
      return multiply_tile<R, 4>(a, b, pitch, begins, begins_pitch, sums, sums_pitch);
    if (panels >= 2) {
      multiply_tile<R, 2>(a, b, pitch, begins, begins_pitch, sums, sums_pitch);
      if (panels == 2) return;
      b += 2 * pitch;
      begins += 2 * kIntPanel;
      sums += 2 * kIntPanel;
    }
  }
  multiply_tile<R, 1>(a, b, pitch, begins, begins_pitch, sums, sums_pitch);
}

// The lines of a kernel that lie in the image, and are adjacent elements each.
struct LineCopies {
  const uint8_t* first;
  int64_t lines, step, size;
  uint8_t flip;
  bool is_short;  // 16 bytes from a line's first element on may be read

  // Copies the lines from element `at` of the first one on, and fills a word with 0.
  void copy(int64_t at, uint8_t* to) const {
    const uint8_t* from = first + at;
    if (is_short) {
      // In registers: stores of codes may alias others.
      const int64_t count = lines, from_step = step, to_step = size;
      const ByteVector16 flips = flip + ByteVector16{};
      for (int64_t i = 0; i < count; ++i, from += from_step, to += to_step) {
        ByteVector16 some;
        __builtin_memcpy(&some, from, sizeof some);
        some ^= flips;
        __builtin_memcpy(to, &some, sizeof some);
      }
    } else {
      for (int64_t i = 0; i < lines; ++i, from += step, to += size)
        copy_codes(from, 1, size, flip, to);
    }
    for (int64_t i = lines * size; i % 4 != 0; ++i) *to++ = 0;
  }
};

// Whether lines of a kernel are read where they lie in the input: they have whole words, need no
// change, and are adjacent elements.
inline bool has_lines_in_place(const IntPart& p) {
  const IntConvolution& c = p.c;
  const int64_t line = c.kernel[1] * c.in_channels;
  return p.flip == 0 && c.kernel[0] > 1 && c.kernel[0] <= kIntMaxLines && line % 4 == 0 &&
         depth_of(c) <= kIntSlice && c.input_strides.channel == 1 &&
         (c.kernel[1] == 1 || (c.dilation[1] == 1 && c.input_strides.axis[1] == c.in_channels));
}

// Sets the rows of a part, which have all elements, to their lines. Those of positions that read
// elements beside the image are copied.
inline void set_lines(const IntPart& p, const uint8_t** rows) {
  const IntConvolution& c = p.c;
  const int64_t line = c.kernel[1] * c.in_channels, x_step = c.input_strides.axis[1];
  for_each_line(p, [&](int64_t row, const Place& place, int64_t count) {
    // Products that lead out of the image may not fit an int64_t.
    const bool is_inside = Inside(c, 0, place.at[0]).has_all(c, 0);
    const int64_t y = is_inside ? c.input_strides.axis[0] : 0, step = y * c.dilation[0];
    const auto* image = static_cast<const uint8_t*>(c.input) + place.image * c.input_strides.image +
                        p.group * c.in_channels + place.at[0] * y;
    Place at = place;
    for (int64_t i = row; i < row + count; ++i, at.at[1] += c.stride[1]) {
      if (is_inside && at.at[1] >= 0 && at.at[1] + c.kernel[1] <= c.in[1]) {
        const uint8_t* from = image + at.at[1] * x_step;
        for (int64_t l = 0; l < c.kernel[0]; ++l) rows[l * kIntPositions + i] = from + l * step;
        continue;
      }
      uint8_t* to = p.buffers.a + i * kIntSlicePitch;
      copy_row(p, at, 0, depth_of(c), to);
      for (int64_t l = 0; l < c.kernel[0]; ++l) rows[l * kIntPositions + i] = to + l * line;
    }
  });
}

// Sets the rows of a part: their elements from `d` to `end`, as one line each.
inline void set_rows(const IntPart& p, int64_t d, int64_t end, const uint8_t** rows) {
  const IntConvolution& c = p.c;
  const int64_t depth = depth_of(c), line = c.kernel[1] * c.in_channels;
  const bool has_one_tap = taps_of(c) == 1 && c.padding[0] == 0 && c.padding[1] == 0,
             is_in_place = has_one_tap && p.flip == 0 && depth % 4 == 0 &&
                           c.input_strides.channel == 1,
             has_lines = d == 0 && end == depth && c.input_strides.channel == 1 &&
                         (c.kernel[1] == 1 ||
                          (c.dilation[1] == 1 && c.input_strides.axis[1] == c.in_channels));
  for_each_line(p, [&](int64_t row, const Place& place, int64_t count) {
    const auto* image = static_cast<const uint8_t*>(c.input) + place.image * c.input_strides.image +
                        p.group * c.in_channels;
    if (is_in_place) {
      const uint8_t* from = image + place.at[0] * c.input_strides.axis[0] +
                            place.at[1] * c.input_strides.axis[1] + d;
      for (int64_t i = 0; i < count; ++i, from += c.stride[1] * c.input_strides.axis[1])
        rows[row + i] = from;
      return;
    }
    // Products that lead out of the image may not fit an int64_t.
    const bool is_inside = has_lines && Inside(c, 0, place.at[0]).has_all(c, 0);
    const int64_t y_step = is_inside ? c.input_strides.axis[0] : 0;
    // A short line is copied with what follows it, if it lies in the image, too.
    const bool is_short = line <= 16 && c.in[1] * c.in_channels >= 16 &&
                          y_step >= c.in[1] * c.in_channels &&
                          place.at[0] + (c.kernel[0] - 1) * c.dilation[0] + 1 < c.in[0];
    const LineCopies copies = {image + place.at[0] * y_step,
                               c.kernel[0],
                               c.kernel[0] == 1 ? 0 : c.dilation[0] * y_step,
                               line,
                               p.flip,
                               is_short};
    Place at = place;
    for (int64_t i = 0; i < count; ++i, at.at[1] += c.stride[1]) {
      uint8_t* to = p.buffers.a + (row + i) * kIntSlicePitch;
      rows[row + i] = to;
      if (is_inside && at.at[1] >= 0 && at.at[1] + c.kernel[1] <= c.in[1])
        copies.copy(at.at[1] * c.input_strides.axis[1], to);
      else
        copy_row(p, at, d, end, to);
    }
  });
}

inline void run_product(const IntPart& p, const SimpleResults& results,
                        Cancellation& cancellation) {
  const IntConvolution& c = p.c;
  IntConvolutionBuffers& buffers = p.buffers;
  const int64_t all_depth = depth_of(c), panel_words = int_panel_words(c);
  const int64_t lines = has_lines_in_place(p) ? c.kernel[0] : 1;
  for (int64_t d = 0; d < all_depth; d += kIntSlice) {
    const int64_t depth = smaller(kIntSlice, all_depth - d), words = (depth + 3) / 4;
    const bool is_last = d + depth == all_depth;
    if (cancellation.ends(p.count * p.columns * depth / 128)) return;
    const uint8_t* rows[kIntMaxLines * kIntPositions];
    if (lines > 1)
      set_lines(p, rows);
    else
      set_rows(p, d, d + depth, rows);
    for (int64_t column = 0; column < p.columns; column += kIntTilePanels * kIntPanel) {
      const int64_t left = p.columns - column, first_panel = p.panel + column / kIntPanel;
      const int64_t panels = smaller(kIntTilePanels, (left + kIntPanel - 1) / kIntPanel);
      const uint32_t* b = buffers.b;
      int64_t pitch = kIntSlice / 4 * kIntPanel;
      if (c.packed) {
        pitch = panel_words;
        b = static_cast<const uint32_t*>(c.packed) +
            (p.group * int_panels(c) + first_panel) * pitch + d / 4 * kIntPanel;
      } else {
        for (int64_t panel = 0; panel < panels; ++panel)
          write_int_panel(c, p.group, first_panel + panel, d / 4, d / 4 + words,
                          buffers.b + panel * pitch);
      }
      // Sums that are complete at once lie side by side, so that they stay in the first-level
      // cache.
      const bool is_complete = depth == all_depth;
      const int64_t columns = smaller(left, panels * kIntPanel),
                    sums_pitch = is_complete ? panels * kIntPanel : kIntPartColumns;
      int32_t* const sums = buffers.sums + (is_complete ? 0 : column);
      for (int64_t r = 0; r < p.count;) {
        // The last tile may overlap the one before it, unless it would add to its sums again.
        const int64_t left_rows = is_complete ? p.count : p.count - r;
        const bool fits_long = panels == 1 && left_rows >= kIntLongTileRows,
                   fits = left_rows >= kIntTileRows;
        const int64_t count = fits_long ? kIntLongTileRows
                              : fits    ? kIntTileRows
                                        : 1,
                      first = smaller(r, p.count - count);
        int32_t* const to = sums + first * sums_pitch;
        const int32_t* begins = d == 0 ? buffers.begins + column : to;
        const int64_t begins_pitch = d == 0 ? 0 : sums_pitch;
        const RowLines a = {rows + first, lines, words / lines};
        if (fits_long)
          multiply_tile<kIntLongTileRows, 1>(a, b, pitch, begins, begins_pitch, to, sums_pitch);
        else if (fits)
          multiply_panels<kIntTileRows>(panels, a, b, pitch, begins, begins_pitch, to, sums_pitch);
        else
          multiply_panels<1>(panels, a, b, pitch, begins, begins_pitch, to, sums_pitch);
        r = first + count;
      }
      if (is_last) finish(p, results, 0, p.count, column, columns, sums, sums_pitch);
    }
  }
}

// ---- parts ----

// Writes the numbers of columns times a factor, and zeros up to the end of a panel.
inline void scale_numbers(const float* from, int64_t first, int64_t stride, int64_t count,
                          float factor, float* to) {
  if (from && stride == 1)
    for (int64_t j = 0; j < count; ++j) to[j] = factor * from[first + j];
  else
    for (int64_t j = 0; j < count; ++j) to[j] = from ? factor * from[(first + j) * stride] : 0;
  for (int64_t j = count; j % kIntPanel != 0; ++j) to[j] = 0;
}

[[maybe_unused]] void run_int_convolution(const IntConvolution& c, int64_t part,
                                          Cancellation& cancellation, void* scratch) {
  auto& buffers = *static_cast<IntConvolutionBuffers*>(scratch);
  const IntConvolutionParts parts(c);
  const int64_t block = part % parts.position_blocks, rest = part / parts.position_blocks;
  // Blocks that are as large as each other, but for one unit.
  const int64_t each = parts.units(c) / parts.position_blocks,
                more = parts.units(c) % parts.position_blocks;
  const int64_t first = (block * each + smaller(block, more)) * parts.unit,
                count = (each + (block < more)) * parts.unit;
  const int64_t panel = rest % parts.column_blocks * (kIntPartColumns / kIntPanel),
                column = panel_begin(c, panel), group = rest / parts.column_blocks;
  const bool is_unsigned = c.input_dtype == HUSK_U8;
  IntPart p = {c,
               buffers,
               group,
               first,
               count,
               panel,
               smaller(kIntPartColumns / kIntPanel, int_panels(c) - panel),
               column,
               smaller(kIntPartColumns, int_columns(c) - column),
               is_unsigned == (kIntShift != 0) ? uint8_t{0} : uint8_t{128},
               static_cast<uint8_t>(c.input_zero),
               true,
               false,
               -__builtin_inff(),
               __builtin_inff(),
               c.residual_scale};
  const bool has_codes = p.has_codes();
  p.is_plain = c.activation == Activation::None || c.activation == Activation::Relu ||
               c.activation == Activation::Relu6;
  const bool adds_codes = c.residual && c.residual_dtype != HUSK_F32;
  p.is_simple = (p.is_plain || c.activation == Activation::Hardswish ||
                 c.activation == Activation::Silu) &&
                c.out_strides.channel == 1 &&
                (!c.residual || (adds_codes == has_codes && c.residual_strides.channel == 1));
  // Behind a plain activation, the scale of the output divides the factors once, not each result.
  const float factor = p.is_plain && has_codes ? c.out_inverse : 1;
  p.residual_scale *= factor;
  if (has_codes) {
    p.least = static_cast<float>(c.out_least - c.out_zero);
    p.most = static_cast<float>(c.out_most - c.out_zero);
  }
  // Ends of codes that an activation leaves none of are one code.
  const auto raise = [&](float& end, float least) { end = end < least ? least : end; };
  const auto lower = [&](float& end, float most) { end = end > most ? most : end; };
  if (p.is_plain && c.activation != Activation::None) raise(p.least, p.most < 0 ? p.most : 0);
  if (c.activation == Activation::Relu6) lower(p.most, 6 * factor > p.least ? 6 * factor : p.least);
  int32_t zero = c.input_zero;
  if (p.flip != 0) zero += is_unsigned ? -128 : 128;
  const auto* sums = static_cast<const int32_t*>(c.packed);
  if (sums) sums += int_groups(c) * int_panels(c) * int_panel_words(c);
  const int64_t channel = p.channel(), columns = p.columns;
  if (sums)
    for (int64_t j = 0; j < columns; ++j) buffers.begins[j] = -zero * sums[channel + j];
  else
    for (int64_t j = 0; j < columns; ++j)
      buffers.begins[j] = -zero * sum_of_weights(c, channel + j);
  scale_numbers(c.scales, channel, c.scales_stride, columns, factor * c.input_scale,
                buffers.scales);
  scale_numbers(c.bias, channel, c.bias_stride, columns, factor, buffers.bias);
  for (int64_t j = columns; j % kIntPanel != 0; ++j) buffers.begins[j] = 0;
  for_each_line(p, [&](int64_t row, const Place& place, int64_t line) {
    const int64_t out = place.element(c.out_strides),
                  residual = c.residual ? place.element(c.residual_strides) : 0;
    for (int64_t i = 0; i < line; ++i) {
      buffers.out[row + i] = out + i * c.out_strides.axis[1];
      buffers.residual[row + i] = residual + i * c.residual_strides.axis[1];
    }
  });
  const SimpleResults results(p);
  if (is_depthwise(c)) return run_depthwise(p, results, cancellation);
  run_product(p, results, cancellation);
}

}  // namespace
}  // namespace husk::host
