#include "mutate.h"

#include <cstdlib>
#include <cstring>

#include "base/blake2b.h"
#include "model/container.h"

namespace husk::fuzz {

Artifact::Artifact(const uint8_t* bytes, size_t n) {
  if (n < 64) return;
  size = n;
  data = static_cast<uint8_t*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096));
  std::memcpy(data, bytes, size);
  std::memcpy(data, kMagic, 8);
  std::memcpy(data + 8, &kMajor, 2);
  std::memcpy(data + 10, &kMinor, 2);
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

Artifact::~Artifact() { std::free(data); }

}  // namespace husk::fuzz
