// Writes the artifacts of all ranks as one file (FORMAT.md, "All ranks in one file").
#pragma once

#include <span>

#include "read/artifact.h"
#include "write/blobs.h"

namespace husk::compiler {

// The sizes of such a file, in bytes.
struct RanksBytes {
  uint64_t file = 0;
  uint64_t shared = 0;  // what equal blobs of several ranks would take if each had its own
};

// Writes the file. `artifacts` are those of rank 0, 1 and so on. Throws a CompileError if they are
// not the artifacts of all ranks of one program. What `sink` has written ends at RanksBytes::file.
RanksBytes write_ranks(std::span<const std::unique_ptr<Artifact>> artifacts, const Sink& sink);

}  // namespace husk::compiler
