// Adds packed copies of constants to an artifact (FORMAT.md, "Packed copies").
#pragma once

#include <array>
#include <filesystem>
#include <span>
#include <vector>

#include "write/output_file.h"

namespace husk::compiler {

struct PackedContent {
  std::array<uint8_t, 32> key;
  std::span<const uint8_t> bytes;
};

// Writes the artifact `input`, which must be verified, with copies that it does not have yet, to
// `out`. Throws a CompileError if a file cannot be read or written.
void write_packed(const std::filesystem::path& input, const std::vector<PackedContent>& copies,
                  OutputFile& out);

}  // namespace husk::compiler
