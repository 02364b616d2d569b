// A contiguous tensor in host memory, and its elements as numbers.
#pragma once

#include <husk/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace husk::run {

struct Tensor {
  husk_dtype dtype = HUSK_DTYPE_NONE;
  std::vector<int64_t> sizes;
  std::vector<unsigned char> bytes;   // row-major

  int64_t count() const;   // elements
  // Complex dtypes count as two numbers an element.
  int64_t number_count() const;
  double number(int64_t index) const;
  int64_t integer(int64_t index) const;   // exact for every int dtype but the upper half of u64; floats are cut off
  void set_number(int64_t index, double value);   // rounds to the dtype
};

// A tensor of zeros. Fails (exit_usage) if a size is negative or the bytes are more than memory can hold.
Tensor tensor_make(husk_dtype dtype, std::vector<int64_t> sizes);

// "f32" and so on; HUSK_DTYPE_NONE for what is none.
husk_dtype dtype_from_name(std::string_view name);

// "f32[2, 3]"
std::string type_text(husk_dtype dtype, const std::vector<int64_t>& sizes);

// Elements `strides` apart in `bytes`, put in order. `bytes` begins at element 0.
Tensor tensor_gather(husk_dtype dtype, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                     const std::vector<unsigned char>& bytes);

}  // namespace husk::run
