// A register as a formula in the sizes of the inputs, for people: "x.0 * 4096", "cdiv(n + 1, 2)".
#pragma once

#include <string>

#include "rows.h"

namespace husk::compiler {

// x.0 is dimension 0 of input x, x'0 its stride, n an int input; what steps brought is "result(0) of segment 2". What
// nests too deep is left as its register, "%17".
std::string formula(const Code& code, uint32_t id);

}  // namespace husk::compiler
