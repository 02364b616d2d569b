// Finds out if tensors share elements. Address ranges are not enough for that, because the columns
// of one matrix lie between each other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace husk {

// The elements of a tensor in memory. Sizes and strides count elements and are not negative, and
// the extent lies in 63 bits (extent_bytes).
struct Elements {
  uintptr_t address;
  const int64_t *sizes, *strides;
  uint32_t rank;  // at most limits::kMaxRank
  size_t width;   // bytes of an element
};

// The units of work that searches for overlaps may take together; some 200 ms.
constexpr uint64_t kMaxSearches = uint64_t{1} << 24;

// Returns whether a byte belongs to an element of both tensors. Strides that are so entangled that
// the search takes too long count as an overlap. The search takes at most `*work` units, and
// subtracts what it takes.
bool overlap(const Elements& a, const Elements& b, uint64_t* work);

// Returns whether both have the same address, sizes and strides.
bool same_elements(const Elements& a, const Elements& b);

// Returns whether no two elements lie at one place because the dimensions nest: ordered by stride,
// each stride passes the extent of the dimensions before it.
bool has_nested_dimensions(const Elements& tensor);

}  // namespace husk
