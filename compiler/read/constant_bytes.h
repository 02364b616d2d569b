// The bytes of the constants that steps read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/rows.h"

namespace husk::compiler {

// A step as a trace names it: "launch", "extern" and so on, with the name of its kernel or op.
struct StepName {
  uint32_t step;
  std::string kind, name;
};

// For each of `steps`, the bytes of the constants that it reads: the whole of each of them, also if
// the step needs only some rows. They are those of the first variant of the function `function`
// that has all these steps. Empty if there is none.
std::vector<uint64_t> constant_bytes(const fb::Program& program, const std::string& function,
                                     const std::vector<StepName>& steps);

}  // namespace husk::compiler
