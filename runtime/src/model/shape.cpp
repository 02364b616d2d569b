#include "model/shape.h"

#include <husk/husk.h>

namespace husk {

bool dense_bytes(uint8_t dtype, const int64_t* sizes, uint32_t rank, uint64_t* out) {
  int64_t bytes = static_cast<int64_t>(husk_dtype_size(static_cast<husk_dtype>(dtype)));
  if (bytes == 0 || dtype == HUSK_POINTER || rank > limits::kMaxRank) return false;
  for (uint32_t d = 0; d < rank; ++d)
    if (sizes[d] < 0 || __builtin_mul_overflow(bytes, sizes[d], &bytes)) return false;
  *out = static_cast<uint64_t>(bytes);
  return true;
}

bool extent_bytes(const int64_t* sizes, const int64_t* strides, uint32_t rank, size_t element,
                  uint64_t* out) {
  int64_t last = 0;  // index of the last element
  bool empty = false;
  for (uint32_t d = 0; d < rank; ++d) {
    int64_t reach;
    empty = empty || sizes[d] == 0;
    if (strides[d] < 0 || sizes[d] < 0) return false;
    if (sizes[d] == 0) continue;
    if (__builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) ||
        __builtin_add_overflow(last, reach, &last))
      return false;
  }
  int64_t bytes;
  if (__builtin_add_overflow(last, 1, &last) ||
      __builtin_mul_overflow(last, static_cast<int64_t>(element), &bytes))
    return false;
  *out = empty ? 0 : static_cast<uint64_t>(bytes);
  return true;
}

bool contiguous_strides(const int64_t* sizes, uint32_t rank, int64_t* out) {
  int64_t stride = 1;
  for (uint32_t d = rank; d-- > 0;) {
    out[d] = stride;
    if (__builtin_mul_overflow(stride, sizes[d] > 0 ? sizes[d] : 1, &stride)) return false;
  }
  return true;
}

bool count_elements(const int64_t* sizes, uint32_t rank, int64_t* out) {
  int64_t elements = 1;
  for (uint32_t d = 0; d < rank; ++d)
    if (sizes[d] > 0 && __builtin_mul_overflow(elements, sizes[d], &elements)) return false;
  *out = elements;
  return elements <= int64_t{1} << 62;
}

}  // namespace husk
