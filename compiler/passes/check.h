// Checks a tree: names, types, and every rule of FORMAT.md that a text can break. lower() checks
// the values of expressions.
#pragma once

#include "ir/tree.h"

namespace husk::compiler {

// Throws CompileError at the first mistake.
void check(const Program& program);

}  // namespace husk::compiler
