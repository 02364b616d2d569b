// The rules that the command lines of all tools share: --version, --help with the exit codes, and
// one line on stderr and exit code 2 for any mistake.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

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

}  // namespace husk::tools
