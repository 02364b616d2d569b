// The extent of a strided tensor as an expression.
#pragma once

#include <vector>

#include "passes/registers.h"

namespace husk::compiler {

// Returns the register that holds the number of elements from a tensor's first to its last, both
// included; 0 if a size is 0. `sizes` and `strides` are int registers, which are not negative.
uint32_t strided_extent(Registers& registers, const std::vector<uint32_t>& sizes,
                        const std::vector<uint32_t>& strides);

}  // namespace husk::compiler
