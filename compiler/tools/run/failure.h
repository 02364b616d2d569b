// How the parts of husk-run report a problem: by throwing, with the exit code that it leads to.
#pragma once

#include <fmt/format.h>
#include <husk/types.h>

#include <string>

namespace husk::run {

// husk-run's exit codes, as --help lists them.
enum Exit : int { exit_ok = 0, exit_different = 1, exit_usage = 2, exit_load = 3, exit_run = 4 };

struct Failure {
  Exit code;
  std::string text;
};

template <class... Args>
[[noreturn]] void fail(Exit code, fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{code, fmt::format(format, std::forward<Args>(args)...)};
}

// A status of the library as a failure, in the library's own words.
inline void check(husk_status status, const husk_error& error, Exit code) {
  if (status != HUSK_OK) throw Failure{code, error.text};
}

}  // namespace husk::run
