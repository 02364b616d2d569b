// The convolution that the kernels compute: out = activation(scale * (input conv weight) + shift +
// residual).
#pragma once

#include <husk/types.h>

#include "core/activation.h"
#include "core/cancellation.h"
#include "core/scratch.h"
#include "nn/axes.h"

namespace husk::host {

// The geometry along one axis. Strides are those of the tensors, in elements.
struct ConvolutionAxis {
  int64_t in, out, kernel;
  int64_t stride, padding, dilation;
  int64_t in_stride, kernel_stride, out_stride, residual_stride;
};

// All tensors have the same dtype: f16, bf16, f32 or f64. Sums are in f32, for f64 in f64, and are
// rounded to the dtype once. `scale`, `shift` and `residual` may be null. Each element of out is
// written after the same element of residual is read, so that they may be the same tensor. The
// caller checks that out has elements.
struct Convolution {
  int32_t dtype;
  Activation activation;
  bool transposed;
  const void *input, *weight, *scale, *shift, *residual;
  const void* packed;     // null, or what `pack` has made of the weights
  bool packs;             // `packed` is there, or is what `pack` is about to make
  Cancellation* packing;  // hears of the work of `pack`, whose copy is undefined after it has ended
  void* out;
  ConvolutionAxis axis[kAxes];
  int64_t batch, groups;
  int64_t in_channels, out_channels;  // in a group
  int64_t taps;                       // the number of elements of the kernel
  int64_t input_image, input_channel;
  int64_t weight_in, weight_out;  // strides of the weights along a group's channels
  int64_t weight_group;           // stride from one group's weights to the next group's
  int64_t scale_stride, shift_stride;
  int64_t out_image, out_channel;
  int64_t residual_image, residual_channel;
};

// A convolution of one group, and a depthwise one that reads its results, which are not kept. Both
// have two spatial axes, have one or more taps, are not transposed, and add no residual. The caller
// sets second.axis[].in to the sizes of the first one's results; it has no input of its own.
struct ConvolutionPair {
  Convolution first, second;
  int64_t threads;  // that compute its parts
};

// The parts that a thread computes, in kConvolutionScratch bytes of its own. `next` writes the
// number of the next part, or returns false.
struct ConvolutionParts {
  Cancellation& cancellation;
  void* scratch;
  void* source;
  bool (*next)(void* source, int64_t& part);
};

// The number of parts, and of the positions that they are divided into (PartRanges of
// core/parallel.h).
struct ConvolutionPartCount {
  int64_t parts, positions;
};

// The result of ConvolutionKernels::pack, in place of a number of bytes, if a copy is for other
// weights.
constexpr int64_t kWrongCopy = -1;

// A convolution is divided into parts. Their number depends on the sizes and on the instruction set
// only, and that of a pair on the threads too. `run` computes the parts that a thread takes. The
// CPU must support the instruction set.
struct ConvolutionKernels {
  const char* layout;  // husk_packing.name of copies: another layout needs another name
  ConvolutionPartCount (*count_parts)(const Convolution& convolution);
  // Lays out the weights as `run` reads them. Returns the bytes of the copy, and writes it if `to`
  // is not null. Returns 0 if the weights are read in place, or are packed in each run. The copy is
  // for the method that suits these sizes, a number below 4: with other sizes `run` may leave the
  // copy unused. If the convolution has a copy, of any content, returns kWrongCopy if it does not
  // begin as the copy would.
  int64_t (*pack)(const Convolution& convolution, void* to, int64_t* method);
  void (*run)(const Convolution& convolution, const ConvolutionParts& parts);

  // The same for a pair. There are no parts if its depthwise kernel reads too many elements at a
  // time. `pack_pair` lays out the weights of either one for any sizes of the input.
  ConvolutionPartCount (*count_pair_parts)(const ConvolutionPair& pair);
  int64_t (*pack_pair)(const Convolution& convolution, bool is_depthwise, void* to);
  void (*run_pair)(const ConvolutionPair& pair, const ConvolutionParts& parts);
};

extern const ConvolutionKernels convolution_baseline;
extern const ConvolutionKernels convolution_avx2;
extern const ConvolutionKernels convolution_avx512;

}  // namespace husk::host
