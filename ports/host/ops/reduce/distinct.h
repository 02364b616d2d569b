// The distinct keys of many elements, without a copy of the elements: each pass over them finds the
// next few thousand keys.
#pragma once

#include <algorithm>

#include "core/scratch.h"
#include "core/sort_key.h"

namespace husk::host {
namespace {

// Keys that were met lately, by a hash of them: most keys of few distinct ones need no search.
class RecentKeys {
 public:
  // Puts a key into each slot that does not belong there.
  void forget() {
    static_assert((~uint64_t{0} * kFactor) >> (64 - kSlotBits) != 0);
    met[0] = ~uint64_t{0};
    for (uint64_t slot = 1; slot < kSlots; ++slot) met[slot] = 0;
  }
  // Returns false if the key was met lately.
  bool meets(uint64_t key) {
    uint64_t& there = met[slot_of(key)];
    if (there == key) return false;
    there = key;
    return true;
  }
  // The index of a key among ascending ones. All calls between two of forget() are for these.
  int64_t index_of(uint64_t key, const uint64_t* keys, int64_t count) {
    const uint64_t slot = slot_of(key);
    if (met[slot] != key) {
      met[slot] = key;
      places[slot] = std::lower_bound(keys, keys + count, key) - keys;
    }
    return places[slot];
  }

 private:
  static constexpr int kSlotBits = 12;
  static constexpr uint64_t kSlots = uint64_t{1} << kSlotBits, kFactor = 0x9e3779b97f4a7c15;
  uint64_t met[kSlots];
  int64_t places[kSlots];

  static uint64_t slot_of(uint64_t key) { return key * kFactor >> (64 - kSlotBits); }
};

// The next distinct keys after `last` in ascending order, at most kBatchSize of them. NaN is left
// out, because it equals nothing.
struct Batch {
  uint64_t keys[2 * kBatchSize];
  int64_t count;
  RecentKeys recent;

  // Fills the batch. each_key(f) calls f(key) for every key.
  template <class Each>
  void find(const Each& each_key, bool first, uint64_t last, uint64_t nan, bool floats) {
    count = 0;
    recent.forget();
    uint64_t cut = ~uint64_t{0};
    each_key([&](uint64_t key) {
      if ((!first && key <= last) || key > cut || (floats && key == nan)) return;
      if (!recent.meets(key)) return;
      keys[count++] = key;
      if (count == 2 * kBatchSize) cut = shrink();
    });
    (void)shrink();
    recent.forget();
  }
  // The index of a key that is in the batch.
  int64_t index_of(uint64_t key) { return recent.index_of(key, keys, count); }

 private:
  // Sorts the keys and drops duplicates and surplus keys. Returns the largest key that may still be
  // added.
  uint64_t shrink() {
    std::sort(keys, keys + count);
    count = std::unique(keys, keys + count) - keys;
    if (count < kBatchSize) return ~uint64_t{0};
    count = kBatchSize;
    return keys[count - 1];
  }
};
static_assert(sizeof(Batch) <= kBatchScratch, "core/scratch.h");

}  // namespace
}  // namespace husk::host
