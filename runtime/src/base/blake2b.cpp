#include "base/blake2b.h"

#include <cstring>

namespace husk {
namespace {

constexpr uint64_t kInit[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                               0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                               0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};

// The order in which a round takes the words of a block, one hexadecimal digit each, lowest first.
constexpr uint64_t kSigma[10] = {0xfedcba9876543210, 0x357b20c16df984ae, 0x491763eadf250c8b,
                                 0x8f04a562ebcd1397, 0xd386cb1efa427509, 0x91ef57d438b0a6c2,
                                 0xb8293670a4def15c, 0xa2684f05931ce7bd, 0x5a417d2c803b9ef6,
                                 0x0dc3e9bf5167482a};

inline uint64_t rotate(uint64_t x, int n) { return (x >> n) | (x << (64 - n)); }

inline void mix(uint64_t& a, uint64_t& b, uint64_t& c, uint64_t& d, uint64_t x, uint64_t y) {
  a += b + x;
  d = rotate(d ^ a, 32);
  c += d;
  b = rotate(b ^ c, 24);
  a += b + y;
  d = rotate(d ^ a, 16);
  c += d;
  b = rotate(b ^ c, 63);
}

}  // namespace

Blake2b::Blake2b() {
  memcpy(state_, kInit, sizeof(state_));
  state_[0] ^= 0x01010000 ^ 32;  // parameter block: digest of 32 bytes, fanout 1, depth 1
}

void Blake2b::compress(const uint8_t* block, bool last) {
  uint64_t m[16], v[16];
  memcpy(m, block, sizeof(m));
  memcpy(v, state_, sizeof(state_));
  memcpy(v + 8, kInit, sizeof(kInit));
  v[12] ^= total_;  // the high word of the counter is always 0: inputs have less than 2^64 bytes
  if (last) v[14] = ~v[14];
  for (int round = 0; round < 12; ++round) {
    uint64_t s = kSigma[round % 10];
    for (int i = 0; i < 8; ++i, s >>= 8) {
      // The four columns come first, then the diagonals: the columns with row n rotated by n.
      const int turn = i / 4;
      mix(v[i % 4], v[4 + (i + turn) % 4], v[8 + (i + 2 * turn) % 4], v[12 + (i + 3 * turn) % 4],
          m[s & 15], m[s >> 4 & 15]);
    }
  }
  for (int i = 0; i < 8; ++i) state_[i] ^= v[i] ^ v[i + 8];
}

void Blake2b::update(const void* data, size_t size) {
  const uint8_t* bytes = static_cast<const uint8_t*>(data);
  while (size > 0) {
    if (filled_ == sizeof(buffer_)) {  // a full block waits: the last one is for finish()
      total_ += sizeof(buffer_);
      compress(buffer_, false);
      filled_ = 0;
    }
    size_t take = sizeof(buffer_) - filled_;
    if (take > size) take = size;
    memcpy(buffer_ + filled_, bytes, take);
    filled_ += take;
    bytes += take;
    size -= take;
  }
}

void Blake2b::finish(uint8_t out[32]) {
  total_ += filled_;
  memset(buffer_ + filled_, 0, sizeof(buffer_) - filled_);
  compress(buffer_, true);
  memcpy(out, state_, 32);
}

}  // namespace husk
