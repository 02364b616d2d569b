// From text to tree: HIR.md's grammar and nothing more. What the words mean is the check's business.
#pragma once

#include <string_view>

#include "ir/tree.h"

namespace husk::compiler {

// Throws Failure at the first thing that is not in the grammar.
Program parse(std::string_view text);

}  // namespace husk::compiler
