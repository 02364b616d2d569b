// Ranges of memory.
#pragma once

#include "base/memory.h"
#include "model/rows.h"

namespace husk::runtime {

// Ranges with indices. To add n of them, with a search before each, takes n log^2 n steps, and
// allocates nothing.
class RangeSet {
 public:
  // Makes place for ranges with the indices 0 to n - 1.
  Status reserve(const husk_allocator& allocator, size_t n, husk_error* error);
  void clear() { size_ = 0; }
  // Adds [begin, end), which is not empty, with an index that the set does not have.
  void add(uint32_t index, uintptr_t begin, uintptr_t end);
  // Returns the index of a range that has a byte of [begin, end), or kNone if there is none.
  uint32_t find(uintptr_t begin, uintptr_t end) const;

 private:
  // The ranges are in groups like the digits of a binary counter: a group for each power of two
  // that is in `size_`, the largest first. A group is sorted by the begin of its ranges.
  size_t size_ = 0;
  Array<uint32_t> order_;  // the indices, by group
  // Three parts of as many numbers as `order_` has: by index, the begin of a range; by index, its
  // end; by place in `order_`, the largest end in the group up to this place.
  Array<uint64_t> numbers_;
};

}  // namespace husk::runtime
