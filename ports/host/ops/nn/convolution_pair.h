// A convolution and the depthwise one that reads it, computed together (see convolution_kernels.h).
// A thread keeps some rows of the first one's results in a strip of memory that stays in the
// second-level cache, and computes the rows of the second one from them.
#pragma once

#include "nn/convolution_depthwise.h"
#include "nn/convolution_general.h"

namespace husk::host {
namespace {

// The elements of a strip.
constexpr int64_t kStripBytes = 192 << 10;
template <class T>
constexpr int64_t kStrip = kStripBytes / static_cast<int64_t>(sizeof(T));
constexpr int64_t kMinLines = 4;  // the fewest lines of a part, if the output has as many

// The coordinates [begin, end) of an axis that are read through the taps of outputs.
struct Range {
  int64_t begin, end;

  // The range that the outputs [first, first + count) of `a` read.
  static Range of(const ConvolutionAxis& a, int64_t first, int64_t count) {
    const int64_t at = first * a.stride - a.padding;
    return {at, at + (count - 1) * a.stride + (a.kernel - 1) * a.dilation + 1};
  }
  // The part of it that lies inside of the axis.
  Range inside(const ConvolutionAxis& a) const {
    const int64_t from = larger(0, smaller(a.in, begin));
    return {from, larger(from, smaller(a.in, end))};
  }
  int64_t count() const { return end - begin; }
};

// A part computes some channels of a rectangle of the output: `lines` by `columns` positions, and
// `rows` lines at a time. An element is the same sum in any division.
struct PairPlan {
  Plan first, second;
  int64_t columns, column_parts;
  int64_t lines, line_parts;
  int64_t rows;
  int64_t parts;  // 0 if a strip has no room for what one line reads
};

// The channels of a part, of those that the depthwise convolution has. Packed weights depend on
// nothing else.
template <class T>
void plan_channels(int64_t channels, PairPlan& plan) {
  plan.first = plan.second = {};
  plan.first.method = Method::kGeneral;
  plan.second.method = Method::kDepthwise;
  plan.first.block = plan.second.block = divide_evenly(channels, kBlock<T>, kLaneCount<T>);
  plan.first.channel_blocks = plan.second.channel_blocks = divide_up(channels, plan.first.block);
  plan.first.blocks = plan.second.blocks = 1;
  plan.first.phases = plan.second.phases = 1;
}

template <class T>
PairPlan make_pair_plan(const ConvolutionPair& pair) {
  PairPlan plan;
  plan_channels<T>(pair.first.out_channels, plan);
  plan.parts = 0;
  const ConvolutionAxis &y = pair.second.axis[kAxes - 2], &x = pair.second.axis[kAxes - 1];
  const int64_t room = kStrip<T> / plan.first.block;  // positions
  const int64_t span_y = (y.kernel - 1) * y.dilation + 1, span_x = (x.kernel - 1) * x.dilation + 1;
  if (span_y > room || span_x > room / span_y) return plan;
  const int64_t most_columns = (room / span_y - span_x) / x.stride + 1;
  plan.column_parts = divide_up(x.out, smaller(x.out, most_columns));
  plan.columns = divide_up(x.out, plan.column_parts);
  const int64_t width = (plan.columns - 1) * x.stride + span_x;  // of the strip
  const int64_t others = pair.first.batch * plan.first.channel_blocks * plan.column_parts;
  // Lines are divided only to give each thread its share: where two parts meet, both compute the
  // rows that both read.
  const bool is_shared = others % pair.threads == 0 || others >= 3 * pair.threads;
  const int64_t wanted = is_shared ? 1 : divide_up(2 * pair.threads, others);
  plan.lines = smaller(y.out, larger(kMinLines, divide_up(y.out, wanted)));
  plan.line_parts = divide_up(y.out, plan.lines);
  plan.lines = divide_up(y.out, plan.line_parts);
  plan.rows = smaller(plan.lines, (room / width - span_y) / y.stride + 1);
  plan.parts = others * plan.line_parts;
  plan.first.position_block = kPositions;
  return plan;
}

template <class T, class S>
struct PairPart : InScratch {
  static constexpr int kY = kAxes - 2, kX = kAxes - 1;

  const ConvolutionPair& pair;
  const PairPlan& plan;
  Cancellation& cancellation;
  // The convolutions of a block of channels. The first one computes rows of its results into the
  // strip, where the second one reads them.
  Convolution first, second;
  Plan first_plan, second_plan;
  GeneralPart<T, S> general;
  DepthwisePart<T, S> depthwise;
  const T *first_weights, *second_weights;  // packed, of all channels; null if there are none
  int64_t block = -1;
  alignas(64) S strip[kStrip<T>];

  PairPart(const ConvolutionPair& convolutions, const PairPlan& division, Cancellation& calls_end)
      : pair(convolutions),
        plan(division),
        cancellation(calls_end),
        first(into_strip(convolutions.first)),
        second(convolutions.second),
        first_plan(division.first),
        second_plan(division.second),
        general(first, first_plan, calls_end),
        depthwise(second, second_plan, calls_end),
        first_weights(packed_weights<T>(convolutions.first, division.first)),
        second_weights(packed_weights<T>(convolutions.second, division.second)) {
    first.axis[kX].out_stride = division.first.block;
    second.input = strip;
    second.axis[kX].in_stride = division.first.block;
  }

  // The convolution of one image whose results have adjacent channels, as they have in the strip.
  static Convolution into_strip(Convolution c) {
    c.batch = 1;
    c.out_channel = 1;
    return c;
  }

  void begin_block(int64_t index) {
    const int64_t channel = index * plan.first.block;
    const int64_t channels = smaller(plan.first.block, pair.first.out_channels - channel);
    const auto skip = [](const void* from, int64_t elements) -> const void* {
      return from ? static_cast<const S*>(from) + elements : nullptr;
    };
    first.out_channels = channels;
    first.weight = skip(pair.first.weight, channel * first.weight_out);
    first.scale = skip(pair.first.scale, channel * first.scale_stride);
    first.shift = skip(pair.first.shift, channel * first.shift_stride);
    second.groups = channels;
    second.weight = skip(pair.second.weight, channel * second.weight_group);
    second.scale = skip(pair.second.scale, channel * second.scale_stride);
    second.shift = skip(pair.second.shift, channel * second.shift_stride);
    if (first_weights)
      general.all_weights = first_weights + channel * first.in_channels * first.taps;
    if (second_weights) depthwise.all_weights = second_weights + channel * second.taps;
    depthwise.packed = -1;
    block = index;
  }

  // Computes the rows [begin, end) of the first convolution's results, by `columns`, and writes
  // them to `to`. Rows of the strip are `pitch` apart.
  void run_first(int64_t begin, int64_t end, Range columns, S* to, int64_t pitch) {
    const ConvolutionAxis &whole_y = pair.first.axis[kY], &whole_x = pair.first.axis[kX];
    ConvolutionAxis &y = first.axis[kY], &x = first.axis[kX];
    first.out = to;
    y.padding = whole_y.padding - begin * whole_y.stride;
    y.out = end - begin;
    y.out_stride = pitch;
    x.padding = whole_x.padding - columns.begin * whole_x.stride;
    x.out = columns.count();
    general.packed = -1;  // the taps depend on the padding
    first_plan.positions = y.out * x.out;
    first_plan.position_blocks = divide_up(first_plan.positions, first_plan.position_block);
    for (int64_t p = 0; p < first_plan.position_blocks; ++p) general.run(Part(first_plan, p));
  }

  // Computes the lines [begin, begin + count) of the output by `columns` columns from
  // `first_column` on. The strip has `rows` of what the second convolution reads.
  void run_second(int64_t image, int64_t begin, int64_t count, int64_t first_column,
                  int64_t columns, Range rows, int64_t pitch) {
    const ConvolutionAxis& whole_y = pair.second.axis[kY];
    ConvolutionAxis &y = second.axis[kY], &x = second.axis[kX];
    y.in = rows.count();
    y.in_stride = pitch;
    y.padding = whole_y.padding - begin * whole_y.stride + rows.begin;
    y.out = count;
    x.in = pitch / plan.first.block;
    x.padding = 0;
    x.out = columns;
    second.out = static_cast<S*>(pair.second.out) + image * pair.second.out_image +
                 begin * y.out_stride + first_column * x.out_stride +
                 block * plan.first.block * second.out_channel;
    depthwise.find_inside();
    second_plan.positions = second_plan.position_block = count * columns;
    second_plan.position_blocks = 1;
    depthwise.run(Part(second_plan, 0));
  }

  // Writes zeros to the columns of the strip that lie outside of the first convolution's results,
  // so that the second one reads no edge there.
  void clear_edges(Range width, Range inside, int64_t pitch) {
    const size_t left = static_cast<size_t>((inside.begin - width.begin) * plan.first.block);
    const size_t right = static_cast<size_t>((width.end - inside.end) * plan.first.block);
    for (S* row = strip; row + pitch <= strip + kStrip<T>; row += pitch) {
      __builtin_memset(static_cast<void*>(row), 0, left * sizeof(S));
      __builtin_memset(static_cast<void*>(row + pitch - right), 0, right * sizeof(S));
    }
  }

  void run(int64_t index) {
    const int64_t line_part = index % plan.line_parts;
    index /= plan.line_parts;
    const int64_t column_part = index % plan.column_parts;
    index /= plan.column_parts;
    const int64_t image = index % pair.first.batch;
    index /= pair.first.batch;
    if (block != index) begin_block(index);
    const ConvolutionAxis &y = pair.second.axis[kY], &x = pair.second.axis[kX];
    const int64_t first_column = column_part * plan.columns;
    const int64_t columns = smaller(plan.columns, x.out - first_column);
    const int64_t end = smaller(y.out, (line_part + 1) * plan.lines);
    if (columns <= 0) return;
    const Range width = Range::of(x, first_column, columns);
    Range inside = width.inside(x);
    if (inside.count() == 0) inside = {width.begin, width.begin};
    const int64_t pitch = width.count() * plan.first.block;
    S* const inside_strip = strip + (inside.begin - width.begin) * plan.first.block;
    clear_edges(width, inside, pitch);
    first.input = static_cast<const S*>(pair.first.input) + image * pair.first.input_image;
    Range have = {0, 0};  // the rows in the strip
    for (int64_t line = line_part * plan.lines, count; line < end; line += count) {
      count = smaller(plan.rows, end - line);
      const Range rows = Range::of(y, line, count).inside(y);
      int64_t next = rows.begin;
      if (have.end > rows.begin) {
        // Rows that are read again move to the begin.
        if (rows.begin > have.begin)
          __builtin_memmove(static_cast<void*>(strip), strip + (rows.begin - have.begin) * pitch,
                            static_cast<size_t>((have.end - rows.begin) * pitch) * sizeof(S));
        next = have.end;
      }
      if (next < rows.end && inside.count() > 0)
        run_first(next, rows.end, inside, inside_strip + (next - rows.begin) * pitch, pitch);
      have = rows;
      if (cancellation.ends(0)) return;
      run_second(image, line, count, first_column, columns, rows, pitch);
    }
  }
};

template <class T, class S>
[[gnu::noinline]] void run_typed_pair(const ConvolutionPair& pair, const ConvolutionParts& parts) {
  const PairPlan plan = make_pair_plan<T>(pair);
  auto& part = make<PairPart<T, S>>(parts.scratch, pair, plan, parts.cancellation);
  for (int64_t index; parts.next(parts.source, index);) part.run(index);
}

// Lays out the weights of one of the two convolutions.
template <class T>
int64_t pack_typed_pair(const Convolution& c, bool is_depthwise, void* to) {
  PairPlan plan;
  plan_channels<T>(c.groups * c.out_channels, plan);
  if (c.packed && !packed_weights<T>(c, is_depthwise ? plan.second : plan.first)) return kWrongCopy;
  PackedHeader* header = static_cast<PackedHeader*>(to);
  T* weights = header ? reinterpret_cast<T*>(header + 1) : nullptr;
  if (header) *header = PackedHeader(c, is_depthwise ? plan.second : plan.first);
  const int64_t count = is_depthwise ? pack_depthwise<T, T>(c, plan.second, weights)
                                     : pack_general<T, T>(c, plan.first, weights);
  return int64_t{sizeof(PackedHeader)} + count * int64_t{sizeof(T)};
}

}  // namespace
}  // namespace husk::host
