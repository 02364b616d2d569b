// The distinct keys of many elements, without a copy of the elements: each pass over them finds the
// next few thousand keys.
#pragma once

#include <algorithm>

#include "core/scratch.h"
#include "core/sort_key.h"

namespace husk::host {
namespace {

// The next distinct keys after `last` in ascending order, at most kBatchSize of them. NaN is left
// out, because it equals nothing.
struct Batch {
  uint64_t keys[2 * kBatchSize];
  int64_t count;

  // Fills the batch. each_key(f) calls f(key) for every key.
  template <class Each>
  void find(const Each& each_key, bool first, uint64_t last, uint64_t nan, bool floats) {
    count = 0;
    uint64_t cut = ~uint64_t{0};
    each_key([&](uint64_t key) {
      if ((!first && key <= last) || key > cut || (floats && key == nan)) return;
      keys[count++] = key;
      if (count == 2 * kBatchSize) cut = shrink();
    });
    (void)shrink();
  }
  // The index of a key that is in the batch.
  int64_t index_of(uint64_t key) const { return std::lower_bound(keys, keys + count, key) - keys; }

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
