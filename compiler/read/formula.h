// Prints a register as a formula in the sizes of the inputs: "x.0 * 4096", "cdiv(n + 1, 2)".
#pragma once

#include <string>

#include "model/rows.h"

namespace husk::compiler {

// x.0 is the size of input x along dimension 0, x'0 its stride, n an int input, "result(0) of
// segment 2" a result of a segment. Expressions that are nested too deep are printed as a
// register, %17.
std::string formula(const Code& code, uint32_t id);

}  // namespace husk::compiler
