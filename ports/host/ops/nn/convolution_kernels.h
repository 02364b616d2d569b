// The kernels of a convolution. Vectors lie along the output channels, whose weights are packed,
// and each element of the input is multiplied with whole vectors of weights. Inputs and outputs
// whose channels are adjacent (channels last) are fastest, and any strides are possible.
//
// - General: a part computes a block of output positions for a block of output channels. The depth,
//   which is the pairs of a tap and an input channel, is divided into chunks whose packed weights
//   stay in the second-level cache. The sums of a tile, some positions by some vectors of channels,
//   stay in registers during a chunk.
// - Depthwise: each group has one input channel and one output channel, and vectors lie along the
//   groups.
// - Dots: a kernel with one tap and few output positions. Vectors lie along the input channels, and
//   the weights are read in place, because packing would take longer than multiplying. Weights that
//   are packed already are multiplied by the general method.
// - Winograd: a kernel of 3 x 3 taps. Tiles of 2 x 2 outputs are computed with 16 products for each
//   pair of channels instead of 36 (convolution_winograd.h).
// - Pair: a convolution and the depthwise one that reads its results, which never leave the
//   second-level cache (convolution_pair.h).
//
// A transposed convolution with a stride is divided into phases: the output positions with equal
// remainders of the strides read the input through the same taps.
#pragma once

#include "nn/convolution_depthwise.h"
#include "nn/convolution_general.h"
#include "nn/convolution_pair.h"
#include "nn/convolution_winograd.h"

namespace husk::host {
namespace {

// ---- dots ----

constexpr int64_t kDotDepth = 4096;  // the most products that are summed in a row

// Adds the dot products of a position with N output channels to the sums.
template <class T, class S, int N>
void add_dots(const S* input, const S* weight, int64_t weight_out, int64_t depth, T* sums) {
  constexpr int L = kLaneCount<T>;
  Vector<T> total[N] = {};
  int64_t i = 0;
  for (; i + L <= depth; i += L) {
    const Vector<T> left = load(input + i);
    HUSK_UNROLL
    for (int n = 0; n < N; ++n) total[n] += left * load(weight + n * weight_out + i);
  }
  for (int n = 0; n < N; ++n) {
    T rest = 0;
    for (int64_t j = i; j < depth; ++j)
      rest += T(load_one(input + j)) * T(load_one(weight + n * weight_out + j));
    sums[n] += sum<T>(total[n]) + rest;
  }
}

template <class T, class S>
void run_dots(const Convolution& c, const Plan& plan, const Part& part,
              Cancellation& cancellation) {
  const int64_t offset = part.channel_block * plan.block;
  const int64_t channels = smaller(plan.block, c.out_channels - offset);
  const int64_t channel = part.group * c.out_channels + offset;
  const S* input = static_cast<const S*>(c.input) + part.group * c.in_channels;
  const S* weight = static_cast<const S*>(c.weight) + part.group * c.weight_group +
                    offset * c.weight_out;
  AffineValues<T, kBlock<T>> affine;
  affine.template read<S>(c, channel, channels);
  const Phase phase = find_phase(c, 0);
  Tap tap;
  find_tap(c, phase, 0, tap);
  const int64_t first = part.position_block * plan.position_block;
  const int64_t count = smaller(plan.position_block, plan.positions - first);
  Positions positions(c, phase, first);
  for (int64_t p = 0; p < count; ++p) {
    Row row;
    positions.next(&row, 1);
    alignas(64) T sums[kBlock<T>] = {};
    for (int64_t d = 0; row.inside && d < c.in_channels; d += kDotDepth) {
      const int64_t depth = smaller(kDotDepth, c.in_channels - d);
      if (cancellation.ends(depth * channels / 8)) return;
      const S *from = input + static_cast<int64_t>(row.in + tap.in) + d, *right = weight + d;
      int64_t o = 0;
      for (; o + 4 <= channels; o += 4)
        add_dots<T, S, 4>(from, right + o * c.weight_out, c.weight_out, depth, sums + o);
      for (; o < channels; ++o)
        add_dots<T, S, 1>(from, right + o * c.weight_out, c.weight_out, depth, sums + o);
    }
    finish<T, S>(c, affine.from(0), EvenRows(1, row.out, row.residual, 0, 0), sums, channel,
                 channels);
  }
}

// ---- choice of the method ----

// Computes parts by a method.
template <class Method>
[[gnu::noinline]] void run_method(const Convolution& c, const Plan& plan,
                                  const ConvolutionParts& parts) {
  Method& method = make<Method>(parts.scratch, c, plan, parts.cancellation);
  for (int64_t index; parts.next(parts.source, index);) method.run(Part(plan, index));
}

template <class T, class S>
void run_typed(const Convolution& c, const ConvolutionParts& parts) {
  const Plan plan = make_plan<T>(c);
  int64_t index;
  if (c.in_channels * c.taps == 0) {
    while (parts.next(parts.source, index))
      finish_zeros<T, S>(c, plan, Part(plan, index), parts.cancellation);
    return;
  }
  switch (plan.method) {
    case Method::kDots:
      while (parts.next(parts.source, index))
        run_dots<T, S>(c, plan, Part(plan, index), parts.cancellation);
      return;
    case Method::kDepthwise: return run_method<DepthwisePart<T, S>>(c, plan, parts);
    case Method::kWinograd:
      if constexpr (sizeof(T) == sizeof(float)) run_method<WinogradPart<T, S>>(c, plan, parts);
      return;
    case Method::kGeneral: return run_method<GeneralPart<T, S>>(c, plan, parts);
  }
}

// Calls f with a number of the type of sums and one of the type of elements.
template <class F>
void visit_types(int32_t dtype, const F& f) {
  switch (dtype) {
    case HUSK_F16: return f(float(), Half());
    case HUSK_BF16: return f(float(), BFloat16());
    case HUSK_F32: return f(float(), float());
    default: return f(double(), double());
  }
}

void run(const Convolution& c, const ConvolutionParts& parts) {
  visit_types(c.dtype, [&](auto sum, auto element) {
    run_typed<decltype(sum), decltype(element)>(c, parts);
  });
}

// Packs the weights by a plan. Returns their number, and only counts them if `to` is null.
template <class T>
int64_t pack_method(const Convolution& c, const Plan& plan, T* to) {
  switch (plan.method) {
    case Method::kDots: return 0;  // not chosen for weights that are packed
    case Method::kDepthwise: return pack_depthwise<T, T>(c, plan, to);
    case Method::kWinograd:
      if constexpr (sizeof(T) == sizeof(float)) return pack_winograd<T, T>(c, plan, to);
      return 0;
    case Method::kGeneral: return pack_general<T, T>(c, plan, to);
  }
  return 0;
}

template <class T>
int64_t pack_typed(const Convolution& c, void* to, int64_t* method) {
  if (c.groups * c.out_channels * c.in_channels * c.taps == 0) return 0;
  const Plan plan = make_plan<T>(c);
  *method = static_cast<int64_t>(plan.method);
  PackedHeader* header = static_cast<PackedHeader*>(to);
  const int64_t weights = pack_method<T>(c, plan, nullptr);
  // Channels are filled up to whole vectors, which for many small groups are mostly zeros.
  constexpr int64_t kFewWeights = 4096;
  const int64_t most = 3 * c.groups * c.out_channels * c.in_channels * c.taps + kFewWeights;
  if (weights == 0 || weights > most) return 0;
  if (c.packed && !packed_weights<T>(c, plan)) return kWrongCopy;
  if (header) {
    *header = PackedHeader(c, plan);
    pack_method<T>(c, plan, reinterpret_cast<T*>(header + 1));
  }
  return int64_t{sizeof(PackedHeader)} + weights * int64_t{sizeof(T)};
}

// Weights of f16 and bf16 would be packed as f32 and take twice the memory.
int64_t pack(const Convolution& c, void* to, int64_t* method) {
  switch (c.dtype) {
    case HUSK_F32: return pack_typed<float>(c, to, method);
    case HUSK_F64: return pack_typed<double>(c, to, method);
    default: return 0;
  }
}

ConvolutionPartCount count_parts(const Convolution& c) {
  const Plan plan = c.dtype == HUSK_F64 ? make_plan<double>(c) : make_plan<float>(c);
  return {plan.parts, plan.position_blocks};
}

void run_pair(const ConvolutionPair& pair, const ConvolutionParts& parts) {
  visit_types(pair.first.dtype, [&](auto sum, auto element) {
    run_typed_pair<decltype(sum), decltype(element)>(pair, parts);
  });
}

int64_t pack_pair(const Convolution& c, bool is_depthwise, void* to) {
  switch (c.dtype) {
    case HUSK_F32: return pack_typed_pair<float>(c, is_depthwise, to);
    case HUSK_F64: return pack_typed_pair<double>(c, is_depthwise, to);
    default: return 0;
  }
}

ConvolutionPartCount count_pair_parts(const ConvolutionPair& pair) {
  const PairPlan plan = pair.first.dtype == HUSK_F64 ? make_pair_plan<double>(pair)
                                                     : make_pair_plan<float>(pair);
  return {plan.parts, plan.parts / plan.first.channel_blocks};
}

}  // namespace
}  // namespace husk::host
