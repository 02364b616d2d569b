// The content hash of an artifact that a test has changed.
#pragma once

#include <cstring>
#include <vector>

#include "base/blake2b.h"

namespace husk::test {

// Corrects the content hash in the header.
inline void write_hash(std::vector<uint8_t>& file) {
  uint32_t metadata;
  std::memcpy(&metadata, file.data() + 12, 4);
  Blake2b hash;
  hash.update(file.data() + 64, metadata);
  hash.finish(file.data() + 32);
}

}  // namespace husk::test
