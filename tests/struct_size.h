// Structs that begin with struct_size, as callers of an older and of a newer version of Husk have
// them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>

#include <husk/types.h>

namespace husk::test {

// A struct of a later version: the fields of T, then bytes that this version does not know.
template <class T>
struct Newer {
  static constexpr unsigned char kUnknown = 0xEE;

  explicit Newer(const T& fields) : known(fields) {
    known.struct_size = sizeof(*this);
    std::memset(unknown, kUnknown, sizeof(unknown));
  }
  bool is_untouched() const {
    for (const unsigned char byte : unknown)
      if (byte != kUnknown) return false;
    return true;
  }

  T known;
  unsigned char unknown[32];
};

// A struct of an earlier version, which ended after `size` bytes. The bytes after them belong to
// the caller: they are not part of the struct.
template <class T>
T older(const T& fields, size_t size) {
  T out;
  std::memset(static_cast<void*>(&out), 0xEE, sizeof(out));
  std::memcpy(static_cast<void*>(&out), &fields, size);
  out.struct_size = static_cast<uint32_t>(size);
  return out;
}

// Whether no byte of `out` after the first `size` was written since older() made it.
template <class T>
bool ends_at(const T& out, size_t size) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&out);
  for (size_t i = size; i < sizeof(out); ++i)
    if (bytes[i] != 0xEE) return false;
  return true;
}

// The error that a struct which is too small gets.
inline void expect_too_small(husk_status status, const husk_error& error, const char* type) {
  EXPECT_EQ(status, HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(error.code, HUSK_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(error.text, (std::string(type) + ".struct_size is ").c_str()), nullptr)
      << error.text;
}

}  // namespace husk::test
