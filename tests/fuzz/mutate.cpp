#include "mutate.h"

#include <cstdlib>
#include <cstring>

#include "base/blake2b.h"

namespace husk::fuzz {

Artifact::Artifact(const uint8_t* bytes, size_t n) {
  if (n < 64) return;
  size = n;
  data = static_cast<uint8_t*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096));
  std::memcpy(data, bytes, size);
  std::memcpy(data, "HUSK\r\n\x1a\n\0\0\1\0", 12);
  uint32_t metadata;
  std::memcpy(&metadata, data + 12, 4);
  if (metadata > size - 64) {
    metadata = static_cast<uint32_t>(size - 64);
    std::memcpy(data + 12, &metadata, 4);
  }
  const uint64_t total = size;
  std::memcpy(data + 16, &total, 8);
  std::memset(data + 24, 0, 8);
  Blake2b hash;
  hash.update(data + 64, metadata);
  hash.finish(data + 32);
}

Runs& runs() {
  static Runs all;
  return all;
}

Artifact::~Artifact() { std::free(data); }

}  // namespace husk::fuzz
