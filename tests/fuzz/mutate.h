// Artifacts with changed metadata and a corrected header, so that the verifier reaches the changed
// rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace husk::fuzz {

// A copy of bytes, aligned to 4096, whose header has the correct sizes and content hash. Empty if
// the bytes are too short for a header.
struct Artifact {
  Artifact(const uint8_t* data, size_t size);
  ~Artifact();
  Artifact(const Artifact&) = delete;
  Artifact& operator=(const Artifact&) = delete;
  uint8_t* data = nullptr;
  size_t size = 0;
};

}  // namespace husk::fuzz
