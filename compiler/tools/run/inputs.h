// What the user says of a function's inputs, as values.
#pragma once

#include <husk/husk.h>

#include <string>
#include <variant>
#include <vector>

#include "run/files.h"

namespace husk::run {

// monostate stands for an input of kind none.
using Value = std::variant<std::monostate, Tensor, int64_t, double>;

// A value from `SPEC` as --help explains it. `seed` and `position` seed random numbers, so that runs repeat and inputs
// differ.
Value value_from_spec(const std::string& spec, size_t position, uint64_t seed = 0);

// The inputs of a function: from `file` by name, then by position; what is not there from `specs`, in order. Fails
// (exit_usage) if one has no value, or if a value is left.
std::vector<Value> inputs_collect(const husk_program* program, uint32_t function, const TensorMap& file,
                                  const std::vector<std::string>& specs, uint64_t seed = 0);

// "x: f32[1..1024, 10]"
std::string input_text(const husk_value_info& info);

}  // namespace husk::run
