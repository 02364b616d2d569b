// The bytes that a strided tensor spans, as an expression.
#pragma once

#include <vector>

#include "passes/registers.h"

namespace husk::compiler {

// Elements from the first to the last one of a tensor, both included; 0 if a size is 0. Sizes and strides are int
// registers, not negative.
uint32_t hull(Registers& registers, const std::vector<uint32_t>& sizes, const std::vector<uint32_t>& strides);

}  // namespace husk::compiler
