// Sizes and strides in bytes. Every product is checked.
#pragma once

#include "base/limits.h"
#include "model/rows.h"

namespace husk {

// Writes the bytes of a tensor without gaps. Returns false if the element type does not exist, the
// rank is larger than limits::kMaxRank, a size is negative or the product leaves 63 bits.
bool dense_bytes(uint8_t dtype, const int64_t* sizes, uint32_t rank, uint64_t* out);

// Bytes of a constant, state or other row with `dtype` and `dims` that verify() accepted.
template <class T>
uint64_t verified_bytes(const T* row) {
  uint64_t bytes = 0;
  const Rows<int64_t> dims(row->dims());
  (void)dense_bytes(row->dtype(), dims.data(), dims.size, &bytes);
  return bytes;
}

// Writes the bytes from element 0 to the end of the last element, which is 0 for an empty tensor.
// Returns false if a size or stride is negative, or the extent leaves 63 bits.
bool extent_bytes(const int64_t* sizes, const int64_t* strides, uint32_t rank, size_t element,
                  uint64_t* out);

// Writes the number of elements, where a size of 0 counts as 1. Returns false if it passes 2^62.
bool count_elements(const int64_t* sizes, uint32_t rank, int64_t* out);

// Writes the strides of a tensor without gaps, in elements. Returns false if one leaves 63 bits.
bool contiguous_strides(const int64_t* sizes, uint32_t rank, int64_t* out);

}  // namespace husk
