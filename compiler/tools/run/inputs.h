// The values of a function's inputs, from files and from the command line.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include <husk/husk.h>

#include "run/files.h"

namespace husk::run {

// monostate stands for an input of kind none.
using Value = std::variant<std::monostate, Tensor, int64_t, double>;

// The value of a SPEC, which --help explains. Random numbers depend on `seed` and `position`, so
// that runs can be repeated and inputs differ.
Value value_from_spec(const std::string& spec, size_t position, uint64_t seed = 0);

// The inputs of a function. An input is looked up in `file` by name, then by position; the others
// take `specs` in order. Throws exit_usage if an input has no value or a spec is left over.
std::vector<Value> inputs_collect(const husk_program* program, uint32_t function,
                                  const TensorMap& file, const std::vector<std::string>& specs,
                                  uint64_t seed = 0);

// "x: f32[1..1024, 10]"
std::string input_text(const husk_value_info& info);

}  // namespace husk::run
