// The functions that products and convolutions apply to each element of their results.
#pragma once

#include <cstdint>

namespace husk::host {

enum class Activation : int32_t {
  None,
  Relu,
  Relu6,        // min(max(x, 0), 6)
  Hardsigmoid,  // relu6(x + 3) / 6
  Hardswish,    // x * hardsigmoid(x)
  Sigmoid,
  Silu,  // x * sigmoid(x)
  Tanh,
  Gelu,
  GeluTanh  // gelu with tanh in place of erf
};

}  // namespace husk::host
