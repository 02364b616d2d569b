// Sort keys: unsigned numbers that compare as the elements do. NaN is the largest key, all NaNs are
// equal, and -0 equals 0, as PyTorch sorts. With keys, one implementation of sorting and selecting
// serves all element types.
#pragma once

#include "core/element.h"

namespace husk::host {
namespace {

template <class T>
uint64_t key_of(T value) {
  if constexpr (std::is_same_v<T, bool>)
    return value;
  else if constexpr (std::is_same_v<T, float>) {
    if (value != value) return 0xffffffff;
    const uint32_t bits = bits_as<uint32_t>(value == 0 ? 0.0f : value);
    return bits >> 31 ? ~bits & 0xffffffff : bits | 0x80000000;
  } else if constexpr (std::is_same_v<T, double>) {
    if (value != value) return ~uint64_t{0};
    const uint64_t bits = bits_as<uint64_t>(value == 0 ? 0.0 : value);
    return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
  } else if constexpr (std::is_unsigned_v<T>)
    return value;
  else if constexpr (sizeof(T) == 8)
    return static_cast<uint64_t>(value) ^ uint64_t { 1 } << 63;
  else
    return static_cast<uint32_t>(value) ^ 0x80000000;
}

// A value with this key, which is no NaN.
template <class T>
T value_of_key(uint64_t key) {
  if constexpr (std::is_same_v<T, bool>)
    return key != 0;
  else if constexpr (std::is_same_v<T, float>) {
    const uint32_t bits = static_cast<uint32_t>(key);
    return bits_as<float>(bits >> 31 ? bits & 0x7fffffff : ~bits);
  } else if constexpr (std::is_same_v<T, double>)
    return bits_as<double>(key >> 63 ? key & ~(uint64_t{1} << 63) : ~key);
  else if constexpr (std::is_unsigned_v<T>)
    return static_cast<T>(key);
  else if constexpr (sizeof(T) == 8)
    return static_cast<T>(key ^ uint64_t{1} << 63);
  else
    return static_cast<T>(static_cast<uint32_t>(key) ^ 0x80000000);
}

// How to read the keys of a tensor. Keys of elements below 64 bits fit in 32 bits. Keys become
// places in tables, and another thread may change the elements: a call through a pointer reads each
// once.
struct Keys {
  uint64_t (*read)(const void* data, int64_t at) = nullptr;
  uint64_t mask = 0;  // the bits that a key may have; also the key of NaN
  bool wide() const { return mask >> 32 != 0; }
};

template <class T>
uint64_t read_key(const void* data, int64_t at) {
  return key_of<Value<T>>(get(static_cast<const T*>(data) + at));
}

// Returns false if elements of the dtype have no order.
inline bool keys_of(int32_t dtype, Keys& out) {
  return visit<AnyReal | WideUnsigned>(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    out.read = read_key<T>;
    out.mask = sizeof(Value<T>) == 8 ? ~uint64_t{0} : 0xffffffff;
  });
}

inline bool floating(int32_t dtype) {
  return visit<Halves | Floats>(dtype, [](auto) {});
}

// The key at position `rank` in ascending order. visit(f) calls f(key) for every key; there must be
// more than `rank` of them. Each pass over the keys finds eight more bits of the result, so no copy
// of the keys is needed.
template <class Visit>
uint64_t select_key(const Visit& visit, uint64_t mask, int64_t rank) {
  uint64_t prefix = 0;
  for (int shift = mask >> 32 ? 56 : 24; shift >= 0; shift -= 8) {
    int64_t counts[256] = {};
    const uint64_t above = shift == 56 ? 0 : mask & ~((uint64_t{1} << (shift + 8)) - 1);
    visit([&](uint64_t key) {
      if ((key & above) == prefix) ++counts[key >> shift & 255];
    });
    uint64_t digit = 0;
    for (; digit < 255 && rank >= counts[digit]; ++digit) rank -= counts[digit];
    prefix |= digit << shift;
  }
  return prefix;
}

}  // namespace
}  // namespace husk::host
