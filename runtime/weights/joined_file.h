// An artifact and the file of its weights, mapped as if they were one file.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace husk::weights {

struct JoinedFile {
  const void* data = nullptr;
  uint64_t size = 0;
  char name[64] = {};  // of the file of weights
};

// Returns true if the file at `path` is an artifact whose weights lie beside it. A file that cannot
// be read is none.
bool lie_beside(const char* path);

// Maps an artifact and its weights, which are in `folder`, or beside the artifact if `folder` is
// NULL: beside `path`, or beside the file that `path` links to. Checks the size of the weights and
// the hash of their header. If `may_lack_weights`, zeros stand for weights that are missing.
Status join(const char* path, const char* folder, bool may_lack_weights, JoinedFile* out,
            husk_error* error);

// Unmaps the bytes of a JoinedFile; `size` is JoinedFile::size.
void unmap(const void* data, uint64_t size);

}  // namespace husk::weights
