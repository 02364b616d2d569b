// From tree to text, as HIR.md says: one statement a line, two spaces a level. Parsing it gives the same tree.
#pragma once

#include <string>

#include "ir/tree.h"

namespace husk::compiler {

std::string print(const Program& program);
std::string print(const Expr& expr);
std::string quote(const std::string& text);     // in quotes, with escapes
std::string print_float(double value);

}  // namespace husk::compiler
