// The convolution of codes of 8 bits that the kernels compute (husk::convolution_int8), and the
// layout of its packed weights, which is the same for all instruction sets.
#pragma once

#include <husk/types.h>

#include "core/activation.h"
#include "core/cancellation.h"
#include "core/extremes.h"
#include "core/scratch.h"

namespace husk::host {

// Strides of a tensor of images, in elements.
struct ImageStrides {
  int64_t image, channel, axis[2];
};

// out = quantized(activation(scales * (sum of (input - input_zero) weight) + bias + residual)).
// Sums are exact in i32; the rest is computed in f32. A channel is one of the output's.
struct IntConvolution {
  const void *input, *residual;
  void* out;
  const int8_t* weight;
  const void* packed;  // null, or what pack_int_convolution has written
  husk_dtype input_dtype, residual_dtype, out_dtype;
  ImageStrides input_strides, residual_strides, out_strides;
  int64_t in[2], positions[2], kernel[2], stride[2], padding[2], dilation[2];
  int64_t weight_out, weight_in, weight_axis[2];  // strides
  int64_t batch, groups;
  int64_t in_channels, out_channels;  // in a group
  const float *scales, *bias;         // of the weights; bias may be null
  int64_t scales_stride, bias_stride;
  float input_scale, residual_scale, out_inverse;  // out_inverse is 1 / the scale of out
  int32_t input_zero, residual_zero, out_zero, out_least, out_most;
  Activation activation;
};

// Kernels that are compiled for several sets of features use what is in the unnamed namespace.
namespace {

constexpr int64_t kIntPanel = 16;           // columns
constexpr int64_t kMaxDepthwiseTaps = 128;  // more are computed as groups of one channel

inline int64_t taps_of(const IntConvolution& c) { return c.kernel[0] * c.kernel[1]; }
inline int64_t depth_of(const IntConvolution& c) { return taps_of(c) * c.in_channels; }
inline int64_t positions_of(const IntConvolution& c) {
  return c.batch * c.positions[0] * c.positions[1];
}

// A depthwise convolution has a method of its own: its channels are the columns.
inline bool is_depthwise(const IntConvolution& c) {
  return c.groups > 1 && c.in_channels == 1 && c.out_channels == 1 &&
         taps_of(c) <= kMaxDepthwiseTaps;
}

// Groups and columns, as the methods count them.
inline int64_t int_groups(const IntConvolution& c) { return is_depthwise(c) ? 1 : c.groups; }
inline int64_t int_columns(const IntConvolution& c) {
  return is_depthwise(c) ? c.groups : c.out_channels;
}
inline int64_t int_panels(const IntConvolution& c) {
  return (int_columns(c) + kIntPanel - 1) / kIntPanel;
}
// The words of a panel. A word of 32 bits has four weights. They follow each other along the depth:
// taps, and in them channels. Those of a depthwise convolution lie below each other in a group of
// two to four rows of the kernel. A row that is left over has words of its own, whose weights lie
// beside each other. Weights outside of the kernel are 0.
inline int64_t depthwise_groups(const IntConvolution& c) { return (c.kernel[0] + 2) / 4; }
inline bool has_row_of_its_own(const IntConvolution& c) { return c.kernel[0] % 4 == 1; }
inline int64_t int_panel_words(const IntConvolution& c) {
  if (!is_depthwise(c)) return (depth_of(c) + 3) / 4 * kIntPanel;
  const int64_t row = has_row_of_its_own(c) ? (c.kernel[1] + 3) / 4 : 0;
  return (depthwise_groups(c) * c.kernel[1] + row) * kIntPanel;
}

// The first column of a panel. The last panel of a depthwise convolution overlaps the one before it
// rather than end after the last channel.
inline int64_t panel_begin(const IntConvolution& c, int64_t panel) {
  const int64_t begin = panel * kIntPanel, last = int_columns(c) - kIntPanel;
  return is_depthwise(c) && begin > last && last >= 0 ? last : begin;
}

inline int8_t int_weight(const IntConvolution& c, int64_t channel, int64_t tap, int64_t input) {
  return c.weight[channel * c.weight_out + input * c.weight_in +
                  tap / c.kernel[1] * c.weight_axis[0] + tap % c.kernel[1] * c.weight_axis[1]];
}

// The tap of weight e of a word of a depthwise convolution, or -1 outside of the kernel.
inline int64_t depthwise_tap(const IntConvolution& c, int64_t word, int64_t e) {
  const int64_t below = depthwise_groups(c) * c.kernel[1];
  const int64_t ky = word < below ? word / c.kernel[1] * 4 + e : c.kernel[0] - 1,
                kx = word < below ? word % c.kernel[1] : (word - below) * 4 + e;
  return ky < c.kernel[0] && kx < c.kernel[1] ? ky * c.kernel[1] + kx : -1;
}

// Writes rows `first` to `last` of a panel, each of which has kIntPanel words.
inline void write_int_panel(const IntConvolution& c, int64_t group, int64_t panel, int64_t first,
                            int64_t last, uint32_t* to) {
  const int64_t begin = panel_begin(c, panel), filled = smaller(kIntPanel, int_columns(c) - begin);
  const bool depthwise = is_depthwise(c);
  for (int64_t row = first; row < last; ++row, to += kIntPanel)
    for (int64_t column = 0; column < kIntPanel; ++column) {
      uint32_t word = 0;
      const int64_t channel = group * c.out_channels + begin + column;
      for (int64_t e = 0; column < filled && e < 4; ++e) {
        const int64_t d = row * 4 + e;
        const int64_t tap = depthwise ? depthwise_tap(c, row, e) : d / c.in_channels;
        if (tap < 0 || tap >= taps_of(c)) continue;
        const auto code = static_cast<uint8_t>(int_weight(c, channel, tap, d % c.in_channels));
        word |= uint32_t{code} << 8 * e;
      }
      to[column] = word;
    }
}

// The sum of the weights of a channel.
inline int32_t sum_of_weights(const IntConvolution& c, int64_t channel) {
  int32_t sum = 0;
  for (int64_t tap = 0; tap < taps_of(c); ++tap)
    for (int64_t i = 0; i < c.in_channels; ++i) sum += int_weight(c, channel, tap, i);
  return sum;
}

// The parts of a convolution: positions, blocks of columns, groups. A part that is one of few has
// half of the positions, so that two threads have work. A depthwise convolution has whole lines of
// positions in a part if two of them fit, since each piece of a line has columns of words that its
// positions do not share.
constexpr int64_t kIntPositions = 96, kIntPartColumns = 256;
struct IntConvolutionParts {
  int64_t unit;  // positions that are in one part
  int64_t position_blocks, column_blocks, groups;

  explicit IntConvolutionParts(const IntConvolution& c)
      : unit(is_depthwise(c) && c.positions[1] <= kIntPositions / 2 ? c.positions[1] : 1),
        position_blocks((units(c) - 1) / (kIntPositions / unit) + 1),
        column_blocks((int_columns(c) - 1) / kIntPartColumns + 1),
        groups(int_groups(c)) {
    if (position_blocks == 1 && positions_of(c) >= 12 && units(c) > 1) position_blocks = 2;
  }
  int64_t units(const IntConvolution& c) const { return positions_of(c) / unit; }
  int64_t count() const { return position_blocks * column_blocks * groups; }
};

}  // namespace

// Computes a part in kConvolutionScratch bytes. The CPU must support the set of features.
using IntConvolutionRun = void (*)(const IntConvolution& convolution, int64_t part,
                                   Cancellation& cancellation, void* scratch);

void int_convolution_baseline(const IntConvolution&, int64_t part, Cancellation&, void* scratch);
void int_convolution_avx2(const IntConvolution&, int64_t part, Cancellation&, void* scratch);
void int_convolution_avx512(const IntConvolution&, int64_t part, Cancellation&, void* scratch);
void int_convolution_avx_vnni(const IntConvolution&, int64_t part, Cancellation&, void* scratch);
void int_convolution_avx512_vnni(const IntConvolution&, int64_t part, Cancellation&, void* scratch);
void int_convolution_dotprod(const IntConvolution&, int64_t part, Cancellation&, void* scratch);

}  // namespace husk::host
