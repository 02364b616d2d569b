// How the passes report a problem: by throwing. The library's border (compile.cpp) turns it into an Error.
#pragma once

#include <fmt/format.h>

#include "ir/tree.h"

namespace husk::compiler {

struct Failure {
  Place place;
  std::string text;
};

template <class... Args>
[[noreturn]] void fail(Place place, fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{place, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace husk::compiler
