// The rules that the command lines of all tools share: --version, --help with the exit codes, and
// one line on stderr and exit code 2 for any mistake.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "out_of_memory.h"

#include <CLI/CLI.hpp>

namespace husk::tools {

constexpr int kUsageError = 2;

// Accepts one of `words`. The error lists them.
inline CLI::Validator one_of(std::vector<std::string> words) {
  const std::string list = fmt::format("{}", fmt::join(words, ", "));
  return CLI::Validator(
      [words, list](const std::string& value) {
        const bool known = std::find(words.begin(), words.end(), value) != words.end();
        return known ? std::string() : fmt::format("'{}' is unknown: write one of {}", value, list);
      },
      list);
}

// Prints a mistake of the command line on stderr; returns the exit code.
inline int usage_error(const CLI::App& app, const std::string& text) {
  fmt::print(stderr, "{}: {}; see --help\n", app.get_name(), text);
  return kUsageError;
}

// Parses the command line. Returns an exit code if the tool has nothing more to do: 0 after --help
// or --version, kUsageError after a mistake.
inline std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  app.set_version_flag("--version", app.get_name() + " " HUSK_VERSION,
                       "Print the version and exit");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error.what());
  }
  return std::nullopt;
}

// Runs a tool and returns its exit code. Whatever stops it, a lack of memory or an output that
// cannot be written for instance, is one line on stderr and exit code `failure`.
template <class F>
int guarded(const char* tool, int failure, F run) {
  out_of_memory_throws = true;
  try {
    const int code = run();
    if (std::fflush(stdout) == 0) return code;
    std::fprintf(stderr, "%s: cannot write the output: %s\n", tool, std::strerror(errno));
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: out of memory\n", tool);  // fmt::print may allocate
  } catch (const std::length_error&) {
    std::fprintf(stderr, "%s: out of memory\n", tool);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", tool, error.what());
  }
  return failure;
}

}  // namespace husk::tools
