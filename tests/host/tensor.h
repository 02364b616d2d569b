// Strided tensors of any float dtype, read and written as doubles, for references.
#ifndef HUSK_TESTS_HOST_TENSOR_H
#define HUSK_TESTS_HOST_TENSOR_H

#include <husk/op.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace husk::host_test {

inline size_t element_bytes(int32_t dtype) { return dtype == HUSK_F64 ? 8 : dtype == HUSK_F32 ? 4 : 2; }

// The value of a binary16, from its fields.
inline double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value = 0;
  if (exponent == 31) {
    value = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else {
    value = exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
  }
  return bits & 0x8000 ? -value : value;
}

inline double brain_value(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// The nearest number with `digits` binary digits and no exponent below `least`, ties to even; infinity above `most`.
inline double rounded(double value, int digits, int least, double most) {
  if (!std::isfinite(value) || value == 0) return value;
  int exponent;
  std::frexp(value, &exponent);
  const int unit = std::max(exponent - digits, least);
  const double result = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  return std::fabs(result) > most ? std::copysign(std::numeric_limits<double>::infinity(), value) : result;
}
inline double rounded_half(double value) { return rounded(value, 11, -24, 65504.0); }
inline double rounded_brain(double value) { return rounded(value, 8, -133, 0x1.fep127); }

class Tensor {
 public:
  // Contiguous unless `order` names the dimensions from the slowest to the fastest; `gap` elements more lie between
  // neighbours of the fastest dimension, `lead` before element 0.
  Tensor(int32_t type, std::vector<int64_t> shape, std::vector<int> order = {}, int64_t gap = 0, int64_t lead = 0)
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

  int64_t place(std::initializer_list<int64_t> at) const {
    int64_t element = offset;
    size_t d = 0;
    for (int64_t i : at) element += i * strides[d++];
    return element;
  }
  double get(std::initializer_list<int64_t> at) const { return get(place(at)); }
  void set(std::initializer_list<int64_t> at, double value) { set(place(at), value); }

  double get(int64_t element) const {
    const unsigned char* from = bytes.data() + element * element_bytes(dtype);
    if (dtype == HUSK_F64) return read<double>(from);
    if (dtype == HUSK_F32) return read<float>(from);
    return dtype == HUSK_F16 ? half_value(read<uint16_t>(from)) : brain_value(read<uint16_t>(from));
  }
  // The value must be one of the dtype's for f16 and bf16, and no subnormal.
  void set(int64_t element, double value) {
    unsigned char* to = bytes.data() + element * element_bytes(dtype);
    const float single = static_cast<float>(value);
    uint32_t bits;
    std::memcpy(&bits, &single, sizeof bits);
    if (dtype == HUSK_F64) return write(to, value);
    if (dtype == HUSK_F32) return write(to, single);
    if (dtype == HUSK_BF16) return write(to, static_cast<uint16_t>(bits >> 16));
    uint32_t half = 0;
    if (std::isnan(value)) half = 0x7e00;
    else if (std::isinf(value)) half = 0x7c00;
    else if (value != 0) half = ((bits >> 13) & 0x3ffff) - (112u << 10);
    write(to, static_cast<uint16_t>((bits >> 16 & 0x8000) | half));
  }

  // Multiples of 1/8 between -2 and 2, which every dtype has, everywhere.
  void randomize(std::mt19937& random) {
    std::uniform_int_distribution<int> pick(-16, 16);
    for (int64_t i = 0; i < static_cast<int64_t>(bytes.size() / element_bytes(dtype)); i++) set(i, pick(random) / 8.0);
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
  static void write(unsigned char* to, T value) { std::memcpy(to, &value, sizeof value); }
};

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

#endif
