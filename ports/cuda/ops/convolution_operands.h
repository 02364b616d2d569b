// The convolution that a call of "husk::cudnn_convolution" asks for, in the form that cuDNN takes.
#pragma once

#include <husk/op.h>

#include "ops/dnn.h"

namespace husk::cuda {

// The husk_op.contract of husk::cudnn_convolution.
constexpr char kConvolutionContract[] =
    "x w stride padding dilation transposed groups fast out:w workspace:w";

// The three tensors of a convolution that is not transposed. A transposed one computes the image
// from the result.
enum { kImage, kFilter, kResult, kTensors };

// Everything that decides which engine of cuDNN is best. Keys are compared as bytes, so the struct
// has no padding, and what a convolution does not have is 0.
struct ConvolutionKey {
  static constexpr int kMaxRank = 5;  // batch, channels and three dimensions of space

  int64_t sizes[kTensors][kMaxRank], strides[kTensors][kMaxRank];  // in elements
  int64_t stride[kMaxRank - 2], padding[kMaxRank - 2], dilation[kMaxRank - 2];
  uint64_t workspace;       // bytes of the workspace that the engine may use
  int32_t align[kTensors];  // bytes, a power of two, at most 16
  int32_t rank;             // of all tensors
  int32_t dtype;            // husk_dtype
  int32_t transposed;       // 1 if the image is computed
  int32_t fast;             // f32: 1 if products may be computed in tf32
  int32_t unused;
};

// The operands of one call.
struct ConvolutionOperands {
  ConvolutionKey key;
  void* tensors[kTensors];
  void* workspace;
  bool is_empty;   // there is nothing to multiply
  uint64_t zeros;  // then: bytes of the result to zero
};

// Reads the arguments of a call. HUSK_INVALID_ARGUMENT if they are not those of the op,
// HUSK_INVALID_INPUT if the sizes do not match, HUSK_UNSUPPORTED if cuDNN cannot take a tensor.
[[nodiscard]] husk_status read_convolution(const husk_op_arg* args, uint32_t count,
                                           ConvolutionOperands* out, husk_error* error);

// Names a convolution in error texts: "husk::cudnn_convolution f16 [8, 64, 56, 56] [64, 64, 3, 3]".
struct ConvolutionText {
  explicit ConvolutionText(const husk_op_arg* args);
  char text[140];
};

}  // namespace husk::cuda
