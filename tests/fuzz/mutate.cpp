#include "mutate.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/blake2b.h"
#include "model/container.h"

namespace husk::fuzz {

namespace {

// Gives the artifact that begins at `begin` a header that fits it, with `features`, and returns the
// size of its metadata.
uint32_t correct(uint8_t* file, size_t size, uint64_t begin, uint64_t features) {
  uint8_t* data = file + begin;
  const uint64_t total = size - begin;
  std::memcpy(data, kMagic, 8);
  std::memcpy(data + 8, &kMajor, 2);
  std::memcpy(data + 10, &kMinor, 2);
  uint32_t metadata;
  std::memcpy(&metadata, data + 12, 4);
  if (metadata > total - 64) {
    metadata = static_cast<uint32_t>(total - 64);
    std::memcpy(data + 12, &metadata, 4);
  }
  std::memcpy(data + 16, &total, 8);
  std::memcpy(data + 24, &features, 8);
  Blake2b hash;
  hash.update(data + 64, metadata);
  hash.finish(data + 32);
  return metadata;
}

}  // namespace

Artifact::Artifact(const uint8_t* bytes, size_t n) {
  if (n < 64) return;
  size = n;
  data = static_cast<uint8_t*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096));
  std::memcpy(data, bytes, size);
  const uint64_t features = data[24] & kRanksFeature;
  const uint32_t rows = correct(data, size, 0, features);
  if (!features) return;
  for (uint32_t at = 64; at + sizeof(RankRow) <= 64 + rows; at += sizeof(RankRow)) {
    RankRow row;
    std::memcpy(&row, data + at, sizeof(row));
    if (row.offset < 64 + rows || row.offset > size - 64) continue;
    correct(data, size, row.offset, 0);
    std::memcpy(data + at + offsetof(RankRow, hash), data + row.offset + 32, sizeof(row.hash));
  }
  correct(data, size, 0, features);
}

Artifact::~Artifact() { std::free(data); }

}  // namespace husk::fuzz
