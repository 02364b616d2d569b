// From rows to the bytes of a file, as FORMAT.md says. The same rows and blobs give the same bytes.
#pragma once

#include <vector>

#include "passes/lower.h"
#include "write/blobs.h"

namespace husk::compiler {

// The FlatBuffer.
std::vector<uint8_t> make_metadata(const Program& program, const ProgramRows& rows, const Sources& sources);

// Bytes of the whole file.
uint64_t file_bytes(const std::vector<uint8_t>& metadata, const Blobs& blobs);

// Header, metadata, blobs, in order.
void write_artifact(const std::vector<uint8_t>& metadata, const Blobs& blobs, const Sink& sink);

}  // namespace husk::compiler
