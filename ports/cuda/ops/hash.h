// A hash of keys that are compared as bytes.
#pragma once

#include <cstdint>
#include <cstring>

namespace husk::cuda {

// FNV-1a over words.
template <class Key>
uint64_t hash_of(const Key& key) {
  uint64_t hash = 0xCBF29CE484222325;
  uint64_t word;
  static_assert(sizeof key % sizeof word == 0);
  for (size_t i = 0; i < sizeof key; i += sizeof word) {
    memcpy(&word, reinterpret_cast<const char*>(&key) + i, sizeof word);
    hash = (hash ^ word) * 0x100000001B3;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace husk::cuda
