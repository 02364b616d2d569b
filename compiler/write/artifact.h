// Writes rows and blobs as the bytes of a file, according to FORMAT.md. Equal rows and blobs give
// equal bytes.
#pragma once

#include <vector>

#include "passes/lower.h"
#include "write/blobs.h"

namespace husk::compiler {

// The metadata: a FlatBuffer.
std::vector<uint8_t> make_metadata(const Program& program, const ProgramRows& rows,
                                   const Sources& sources);

// The size of the whole file.
uint64_t file_bytes(const std::vector<uint8_t>& metadata, const Blobs& blobs);

// Writes header, metadata and blobs in order. `features` are the header's feature bits.
void write_artifact(const std::vector<uint8_t>& metadata, const Blobs& blobs, const Sink& sink,
                    uint64_t features = 0);

}  // namespace husk::compiler
