// The functions that products and convolutions apply to each element of their results.
#pragma once

#include <cstdint>

namespace husk::host {

enum class Activation : int32_t {
  None,
#define HUSK_ACTIVATION(Name, name) Name,
#include <activations.def>
};

}  // namespace husk::host
