// BLAKE2b (RFC 7693) with a digest of 32 bytes and no key: the hash of metadata and blobs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace husk {

struct Blake2b {
  Blake2b();
  void update(const void* data, size_t size);
  void finish(uint8_t out[32]);

 private:
  void compress(const uint8_t* block, bool last);

  uint64_t state_[8];
  uint64_t total_ = 0;
  uint8_t buffer_[128];
  size_t filled_ = 0;
};

}  // namespace husk
