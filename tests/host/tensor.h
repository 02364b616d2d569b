// Strided tensors of float dtypes whose elements are read and written as doubles, for comparison
// with reference results.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <husk/op.h>

namespace husk::host_test {

inline size_t element_bytes(int32_t dtype) {
  return dtype == HUSK_F64 ? 8 : dtype == HUSK_F32 ? 4 : 2;
}

// The value of a binary16, computed from its fields.
inline double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value = 0;
  if (exponent == 31) {
    value = fraction ? std::numeric_limits<double>::quiet_NaN()
                     : std::numeric_limits<double>::infinity();
  } else {
    value = exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
  }
  return bits & 0x8000 ? -value : value;
}

inline double bfloat16_value(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// Rounds to a number of `digits` binary digits, to nearest, ties to even. No result has a bit below
// 2^min_exponent; results above `max_value` become infinity.
inline double round_to_format(double value, int digits, int min_exponent, double max_value) {
  if (!std::isfinite(value) || value == 0) return value;
  int exponent;
  std::frexp(value, &exponent);
  const int unit = std::max(exponent - digits, min_exponent);
  const double result = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  return std::fabs(result) > max_value
             ? std::copysign(std::numeric_limits<double>::infinity(), value)
             : result;
}
inline double round_to_half(double value) { return round_to_format(value, 11, -24, 65504.0); }
inline double round_to_bfloat16(double value) {
  return round_to_format(value, 8, -133, 0x1.fep127);
}

class Tensor {
 public:
  // A contiguous tensor, unless `order` names the dimensions from the slowest to the fastest. `gap`
  // unused elements lie between neighbours of the fastest dimension, and `lead` unused elements
  // before element 0.
  Tensor(int32_t type, std::vector<int64_t> shape, std::vector<int> order = {}, int64_t gap = 0,
         int64_t lead = 0)
      : dtype(type), sizes(std::move(shape)), strides(sizes.size()), offset(lead) {
    if (order.empty()) {
      order.resize(sizes.size());
      std::iota(order.begin(), order.end(), 0);
    }
    int64_t stride = 1 + gap;
    for (size_t i = order.size(); i-- > 0;) {
      strides[order[i]] = stride;
      stride *= std::max<int64_t>(sizes[order[i]], 1);
    }
    bytes.assign((lead + stride + gap) * element_bytes(dtype), 0x5a);
  }

  husk_op_arg arg(int32_t access = HUSK_ACCESS_READ) {
    husk_op_arg a{};
    a.kind = HUSK_ARG_TENSOR;
    a.access = access;
    a.dtype = dtype;
    a.rank = static_cast<int32_t>(sizes.size());
    a.data = bytes.data() + offset * element_bytes(dtype);
    a.sizes = sizes.data();
    a.strides = strides.data();
    return a;
  }

  // The index of an element in `bytes`, counted in elements.
  int64_t element_at(std::initializer_list<int64_t> at) const {
    int64_t element = offset;
    size_t d = 0;
    for (int64_t i : at) element += i * strides[d++];
    return element;
  }
  double get(std::initializer_list<int64_t> at) const { return get(element_at(at)); }
  void set(std::initializer_list<int64_t> at, double value) { set(element_at(at), value); }

  double get(int64_t element) const {
    const unsigned char* from = bytes.data() + element * element_bytes(dtype);
    if (dtype == HUSK_F64) return read<double>(from);
    if (dtype == HUSK_F32) return read<float>(from);
    return dtype == HUSK_F16 ? half_value(read<uint16_t>(from))
                             : bfloat16_value(read<uint16_t>(from));
  }
  // The value must be exact in f16 and bf16, and not subnormal there.
  void set(int64_t element, double value) {
    unsigned char* to = bytes.data() + element * element_bytes(dtype);
    const float single = static_cast<float>(value);
    uint32_t bits;
    std::memcpy(&bits, &single, sizeof bits);
    if (dtype == HUSK_F64) return write(to, value);
    if (dtype == HUSK_F32) return write(to, single);
    if (dtype == HUSK_BF16) return write(to, static_cast<uint16_t>(bits >> 16));
    uint32_t half = 0;
    if (std::isnan(value))
      half = 0x7e00;
    else if (std::isinf(value))
      half = 0x7c00;
    else if (value != 0)
      half = ((bits >> 13) & 0x3ffff) - (112u << 10);
    write(to, static_cast<uint16_t>((bits >> 16 & 0x8000) | half));
  }

  // Fills all of the memory with multiples of 1/8 between -2 and 2, which every dtype can
  // represent.
  void randomize(std::mt19937& random) {
    std::uniform_int_distribution<int> pick(-16, 16);
    for (int64_t i = 0; i < static_cast<int64_t>(bytes.size() / element_bytes(dtype)); ++i)
      set(i, pick(random) / 8.0);
  }

  int32_t dtype;
  std::vector<int64_t> sizes, strides;
  int64_t offset;
  std::vector<unsigned char> bytes;

 private:
  template <class T>
  static T read(const unsigned char* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  template <class T>
  static void write(unsigned char* to, T value) {
    std::memcpy(to, &value, sizeof value);
  }
};

// A tensor of one dimension, whose elements are adjacent. `size` outlives it.
inline husk_op_arg vector_arg(int32_t dtype, const int64_t& size, void* data) {
  static constexpr int64_t kStep = 1;
  husk_op_arg a{};
  a.kind = HUSK_ARG_TENSOR;
  a.dtype = dtype;
  a.rank = 1;
  a.sizes = &size;
  a.strides = &kStep;
  a.data = data;
  return a;
}

inline husk_op_arg int_arg(int64_t value) {
  husk_op_arg a{};
  a.kind = HUSK_ARG_INT;
  a.i = value;
  return a;
}
inline husk_op_arg float_arg(double value) {
  husk_op_arg a{};
  a.kind = HUSK_ARG_FLOAT;
  a.f = value;
  return a;
}

}  // namespace husk::host_test
