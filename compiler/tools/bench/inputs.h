// Inputs that husk-bench makes up.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "run/inputs.h"

namespace husk::bench_tool {

// The sizes of tensors, by the name of the input or its position ("0", "1", ...).
using Shapes = std::map<std::string, std::vector<int64_t>>;

// The shapes of a text such as "x=8x64,mask=8x8". Throws exit_usage.
Shapes shapes_parse(const std::string& text);

// The values of all inputs of a function. Those that `file` names have its values, the next ones
// those of `specs` (run::inputs_collect). The others are random. A tensor that `shapes` does not
// name has the smallest size of each dimension that the artifact and the number 1 allow, plus
// `more` where the size is not fixed. `more` may have been cut to the largest size. Throws
// exit_usage.
std::vector<run::Value> inputs_make(const husk_program* program, uint32_t function,
                                    const run::TensorMap& file, const Shapes& shapes,
                                    const std::vector<std::string>& specs, int64_t more,
                                    uint64_t seed);

// "x f32[8, 64], n 3"
std::string inputs_text(const husk_program* program, uint32_t function,
                        const std::vector<run::Value>& inputs);

// True if a size of some input is not fixed.
bool sizes_vary(const husk_program* program, uint32_t function);

}  // namespace husk::bench_tool
