// Selects the k smallest of many keys. The heap of k pairs lies in the rows of the op's results, so
// no other memory is needed.
#pragma once

#include <cstdint>

#include "core/loop.h"

namespace husk::host {
namespace {

struct Pair {
  uint64_t key;
  int64_t index;
  bool operator<(const Pair& other) const {
    return key != other.key ? key < other.key : index < other.index;
  }
};

// A heap of the best pairs so far, with the worst of them at 0, in the row of index results. Each
// element holds a 32-bit key above a 32-bit index.
struct PackedHeap {
  uint64_t* indices;
  int64_t stride;
  Pair get(int64_t i) const {
    return {indices[i * stride] >> 32, static_cast<int64_t>(indices[i * stride] & 0xffffffff)};
  }
  void set(int64_t i, const Pair& p) const {
    indices[i * stride] = p.key << 32 | static_cast<uint64_t>(p.index);
  }
};

// The same heap for 64-bit keys: keys lie in the row of value results, indices in the row of index
// results.
struct WideHeap {
  uint64_t* indices;
  int64_t stride;
  uint64_t* keys;
  int64_t keys_stride;
  Pair get(int64_t i) const {
    return {keys[i * keys_stride], static_cast<int64_t>(indices[i * stride])};
  }
  void set(int64_t i, const Pair& p) const {
    keys[i * keys_stride] = p.key;
    indices[i * stride] = static_cast<uint64_t>(p.index);
  }
};

// Stores `pair` in a heap of `count` elements whose element `hole` is free: moves larger children
// up until the pair has its place.
template <class Heap>
void sift(const Heap& heap, int64_t hole, int64_t count, const Pair& pair) {
  for (;;) {
    int64_t child = 2 * hole + 1;
    if (child >= count) break;
    Pair larger = heap.get(child);
    if (child + 1 < count) {
      const Pair right = heap.get(child + 1);
      if (larger < right) {
        larger = right;
        ++child;
      }
    }
    if (!(pair < larger)) break;
    heap.set(hole, larger);
    hole = child;
  }
  heap.set(hole, pair);
}

// Leaves the k smallest of `count` keys in the heap's memory in ascending order. Calls key_at(i)
// once for each i, in order. If the call is to end, the heap's memory is undefined.
template <class Key, class Heap>
void first_k(Cancellation& cancellation, int64_t count, const Key& key_at, const Heap& heap,
             int64_t k) {
  each_index(cancellation, k, [&](int64_t i) { heap.set(i, {key_at(i), i}); });
  each_index(cancellation, k / 2, [&](int64_t done) {
    const int64_t i = k / 2 - 1 - done;
    sift(heap, i, k, heap.get(i));
  });
  uint64_t worst = heap.get(0).key;
  each_index(cancellation, count - k, [&](int64_t after) {
    const int64_t i = k + after;
    const uint64_t key = key_at(i);
    if (key >= worst) return;  // of equal keys the first ones are kept
    sift(heap, 0, k, {key, i});
    worst = heap.get(0).key;
  });
  each_index(cancellation, k - 1, [&](int64_t done) {
    const int64_t end = k - 1 - done;
    const Pair last = heap.get(end);
    heap.set(end, heap.get(0));
    sift(heap, 0, end, last);
  });
}

}  // namespace
}  // namespace husk::host
