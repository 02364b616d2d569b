#include "run/tensor.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <husk/detail/dtype.h>
#include <husk/detail/float_format.h>
#include <husk/husk.h>

#include "run/run_error.h"

namespace husk::run {

namespace {

// A float of at most 16 bits.
struct SmallFloat {
  int exponent_bits, fraction_bits, bias;
  bool infinite, unsigned_zero;

  explicit SmallFloat(const detail::FloatFormat& format)
      : exponent_bits(format.exponent),
        fraction_bits(format.fraction),
        bias(format.bias),
        infinite(format.infinities()),
        unsigned_zero(format.one_zero()) {}

  int bits() const { return 1 + exponent_bits + fraction_bits; }
  uint32_t nan() const {
    if (unsigned_zero) return 1u << (bits() - 1);
    const uint32_t ones = (1u << (bits() - 1)) - 1;
    return infinite ? ones & ~((1u << (fraction_bits - 1)) - 1) : ones;
  }

  double decode(uint32_t word) const {
    const uint32_t magnitude = word & ((1u << (bits() - 1)) - 1);
    const uint32_t fraction = magnitude & ((1u << fraction_bits) - 1);
    const int exponent = static_cast<int>(magnitude >> fraction_bits),
              top = (1 << exponent_bits) - 1;
    const double sign = word >> (bits() - 1) ? -1 : 1;
    if (infinite && exponent == top) {
      return fraction ? std::numeric_limits<double>::quiet_NaN()
                      : sign * std::numeric_limits<double>::infinity();
    }
    if (!infinite && word == nan()) return std::numeric_limits<double>::quiet_NaN();
    if (!infinite && !unsigned_zero && magnitude == nan())
      return std::numeric_limits<double>::quiet_NaN();
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
    return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
  }

  uint32_t encode(double value) const {
    if (std::isnan(value)) return nan();
    const uint32_t sign = std::signbit(value) ? 1u << (bits() - 1) : 0;
    const uint32_t infinity = ((1u << exponent_bits) - 1) << fraction_bits;
    const uint32_t overflow = infinite ? infinity : nan();
    if (std::isinf(value)) return unsigned_zero ? nan() : sign | overflow;
    int exponent;
    std::frexp(value, &exponent);  // value = [0.5, 1) * 2^exponent
    const int unit = std::max(exponent - 1, 1 - bias) - fraction_bits;
    const auto steps = static_cast<uint64_t>(std::nearbyint(std::ldexp(std::fabs(value), -unit)));
    if (steps == 0) return unsigned_zero ? 0 : sign;
    // `steps` is the fraction with the hidden bit, which adds one to the exponent.
    const uint64_t word = (static_cast<uint64_t>(unit + fraction_bits + bias - 1)
                           << fraction_bits) +
                          steps;
    const uint64_t largest = infinite        ? infinity - 1
                             : unsigned_zero ? (1u << (bits() - 1)) - 1
                                             : nan() - 1;
    if (word > largest) return unsigned_zero ? nan() : sign | overflow;
    return sign | static_cast<uint32_t>(word);
  }
};

template <class T>
double read(const unsigned char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<double>(value);
}

template <class T>
void write(unsigned char* to, double value) {
  T out;
  if constexpr (std::is_integral_v<T>) {
    // C++ defines no conversion for a float outside of the range of an int: the value saturates.
    if (std::isnan(value))
      out = 0;
    else if (value <= static_cast<double>(std::numeric_limits<T>::min()))
      out = std::numeric_limits<T>::min();
    else if (value >= static_cast<double>(std::numeric_limits<T>::max()))
      out = std::numeric_limits<T>::max();
    else
      out = static_cast<T>(value);
  } else {
    out = static_cast<T>(value);
  }
  std::memcpy(to, &out, sizeof out);
}

bool is_complex(husk_dtype dtype) {
  return detail::element_kind(dtype) == detail::DtypeKind::Complex;
}

}  // namespace

int64_t Tensor::count() const {
  int64_t product = 1;
  for (int64_t size : sizes) product *= size;
  return product;
}

int64_t Tensor::number_count() const { return count() * (is_complex(dtype) ? 2 : 1); }

double Tensor::number(int64_t index) const {
  const size_t width = husk_dtype_size(dtype) / (is_complex(dtype) ? 2 : 1);
  const unsigned char* from = bytes.data() + static_cast<size_t>(index) * width;
  switch (dtype) {
    case HUSK_BOOL: return *from != 0;
#define HUSK_C_NUMBER(NAME, type) \
  case HUSK_##NAME: return read<type>(from);
#include <dtypes.def>
    default: break;
  }
  const SmallFloat format(*detail::float_format(dtype));
  return format.decode(width == 1 ? *from : static_cast<uint32_t>(read<uint16_t>(from)));
}

int64_t Tensor::integer(int64_t index) const {
  int64_t value;
  if (dtype != HUSK_I64 && dtype != HUSK_U64) return static_cast<int64_t>(number(index));
  std::memcpy(&value, bytes.data() + static_cast<size_t>(index) * sizeof value, sizeof value);
  return value;
}

void Tensor::set_number(int64_t index, double value) {
  const size_t width = husk_dtype_size(dtype) / (is_complex(dtype) ? 2 : 1);
  unsigned char* to = bytes.data() + static_cast<size_t>(index) * width;
  switch (dtype) {
    case HUSK_BOOL: *to = value != 0; return;
#define HUSK_C_NUMBER(NAME, type) \
  case HUSK_##NAME: return write<type>(to, value);
#include <dtypes.def>
    default: break;
  }
  const uint32_t bits = SmallFloat(*detail::float_format(dtype)).encode(value);
  std::memcpy(to, &bits, width);  // all supported platforms are little-endian
}

Tensor tensor_make(husk_dtype dtype, std::vector<int64_t> sizes) {
  int64_t bytes = static_cast<int64_t>(husk_dtype_size(dtype));
  for (int64_t size : sizes) {
    if (size < 0)
      fail(exit_usage, "a tensor of {}: sizes must not be negative", type_text(dtype, sizes));
    if (__builtin_mul_overflow(bytes, size, &bytes))
      fail(exit_usage, "a tensor of {} has 2^63 bytes or more", type_text(dtype, sizes));
  }
  Tensor tensor{dtype, std::move(sizes), {}};
  tensor.bytes.resize(static_cast<size_t>(bytes));
  return tensor;
}

husk_dtype dtype_from_name(std::string_view name) {
  for (int value = HUSK_BOOL; value < detail::kDtypeCount; value++)
    if (name == husk_dtype_name(static_cast<husk_dtype>(value)))
      return static_cast<husk_dtype>(value);
  return HUSK_DTYPE_NONE;
}

std::string type_text(husk_dtype dtype, const std::vector<int64_t>& sizes) {
  return fmt::format("{}[{}]", husk_dtype_name(dtype), fmt::join(sizes, ", "));
}

Tensor tensor_gather(husk_dtype dtype, const std::vector<int64_t>& sizes,
                     const std::vector<int64_t>& strides, const std::vector<unsigned char>& bytes) {
  Tensor tensor = tensor_make(dtype, sizes);
  const size_t width = husk_dtype_size(dtype);
  std::vector<int64_t> at(sizes.size(), 0);
  int64_t element = 0;
  for (size_t written = 0; written < tensor.bytes.size(); written += width) {
    std::memcpy(tensor.bytes.data() + written, bytes.data() + static_cast<size_t>(element) * width,
                width);
    for (size_t d = sizes.size(); d-- > 0;) {
      element += strides[d];
      if (++at[d] < sizes[d]) break;
      element -= strides[d] * sizes[d];
      at[d] = 0;
    }
  }
  return tensor;
}

}  // namespace husk::run
