// The exception that the passes throw. compile.cpp, the border of the library, turns it into an
// Error.
#pragma once

#include <fmt/format.h>

#include "ir/tree.h"

namespace husk::compiler {

struct CompileError {
  Place place;  // line 0 if the error is not in the text
  std::string text;
};

// Throws a CompileError with a formatted text.
template <class... Args>
[[noreturn]] void fail(Place place, fmt::format_string<Args...> format, Args&&... args) {
  throw CompileError{place, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace husk::compiler
