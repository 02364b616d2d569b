// The exception that the parts of husk-run throw. It has the exit code of the tool.
#pragma once

#include <fmt/format.h>

#include <string>

#include <husk/types.h>

namespace husk::run {

// husk-run's exit codes, as --help lists them.
enum Exit : int { exit_ok = 0, exit_different = 1, exit_usage = 2, exit_load = 3, exit_run = 4 };

struct RunError {
  Exit code;
  std::string text;
};

template <class... Args>
[[noreturn]] void fail(Exit code, fmt::format_string<Args...> format, Args&&... args) {
  throw RunError{code, fmt::format(format, std::forward<Args>(args)...)};
}

// Throws the error of a failed call of the library.
inline void check(husk_status status, const husk_error& error, Exit code) {
  if (status != HUSK_OK) throw RunError{code, error.text};
}

}  // namespace husk::run
