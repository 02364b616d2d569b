// Prints a tree in the text form of HIR.md: one statement on each line, indented by two spaces for
// each level. Parsing the text gives an equal tree.
#pragma once

#include <string>

#include "ir/tree.h"

namespace husk::compiler {

std::string print(const Program& program);
std::string print(const Expr& expr);
std::string quote(const std::string& text);  // the string in quotes, with escapes
// The shortest text that parses to the same double.
std::string print_float(double value);

}  // namespace husk::compiler
