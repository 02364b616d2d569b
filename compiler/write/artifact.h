// Writes rows and blobs as the bytes of a file, according to FORMAT.md. Equal rows and blobs give
// equal bytes.
#pragma once

#include <vector>

#include "passes/lower.h"
#include "write/blobs.h"

namespace husk::compiler {

// The metadata: a FlatBuffer. Its blobs are empty until they are known.
std::vector<uint8_t> make_metadata(const Program& program, const ProgramRows& rows);
// The rows of the metadata's blobs, those of images first, then those of constants and those of
// packed copies. They have a fixed size and are changed in place.
std::vector<fb::Blob*> blob_rows(std::vector<uint8_t>& metadata);

// Where the blobs of an artifact with this metadata begin.
uint64_t blob_base(const std::vector<uint8_t>& metadata);

// Writes header and metadata. `features` are the header's feature bits, `bytes` the size of the
// file.
void write_head(const std::vector<uint8_t>& metadata, uint64_t bytes, uint64_t features,
                const Sink& sink);

}  // namespace husk::compiler
