// Parses the text form to a tree, according to the grammar of HIR.md. check() looks at the meaning.
#pragma once

#include <string_view>

#include "ir/tree.h"

namespace husk::compiler {

// Throws CompileError at the first violation of the grammar.
Program parse(std::string_view text);

}  // namespace husk::compiler
