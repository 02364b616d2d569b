// A contiguous tensor in host memory, whose elements can be read as numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <husk/types.h>

namespace husk::run {

struct Tensor {
  husk_dtype dtype = HUSK_DTYPE_NONE;
  std::vector<int64_t> sizes;
  std::vector<unsigned char> bytes;  // row-major

  int64_t count() const;  // elements
  // The number of real numbers; a complex element has two.
  int64_t number_count() const;
  double number(int64_t index) const;
  // Exact for every int dtype except the upper half of u64; truncates floats.
  int64_t integer(int64_t index) const;
  void set_number(int64_t index, double value);  // rounds to the dtype
};

// A tensor of zeros. Throws exit_usage if a size is negative or the bytes exceed 63 bits.
Tensor tensor_make(husk_dtype dtype, std::vector<int64_t> sizes);

// The dtype called "f32" and so on; HUSK_DTYPE_NONE if there is none.
husk_dtype dtype_from_name(std::string_view name);

// "f32[2, 3]"
std::string type_text(husk_dtype dtype, const std::vector<int64_t>& sizes);

// Copies a strided tensor, whose element 0 is the first in `bytes`, to a contiguous one.
Tensor tensor_gather(husk_dtype dtype, const std::vector<int64_t>& sizes,
                     const std::vector<int64_t>& strides, const std::vector<unsigned char>& bytes);

}  // namespace husk::run
