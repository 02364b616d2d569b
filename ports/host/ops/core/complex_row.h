// Reads and writes rows of elements of any dtype as complex numbers of f64, and of integers as i64.
// Rare ops use them to have one implementation for all dtypes.
#pragma once

#include "core/arithmetic.h"

namespace husk::host {
namespace {

using Complex128 = Complex<double>;
template <class V>
using ReadRowOf = void (*)(const void* from, int64_t at, int64_t step, V* to, int64_t count);
template <class V>
using WriteRowOf = void (*)(void* to, int64_t at, int64_t step, const V* from, int64_t count);
using ReadRow = ReadRowOf<Complex128>;
using WriteRow = WriteRowOf<Complex128>;

constexpr int64_t kRowBlock = 128;  // elements that are converted at once

// Complex elements that are adjacent have a loop of their own, which compilers make vectors of.
template <class T, class V>
void read_row(const void* from, int64_t at, int64_t step, V* to, int64_t count) {
  const T* first = static_cast<const T*>(from) + at;
  if constexpr (is_complex<T>) {
    if (step == 1) {
      for (int64_t i = 0; i < count; ++i) to[i] = cast<V>(get(first + i));
      return;
    }
  }
  for (int64_t i = 0; i < count; ++i) to[i] = cast<V>(get(first + i * step));
}
template <class T, class V>
void write_row(void* to, int64_t at, int64_t step, const V* from, int64_t count) {
  T* first = static_cast<T*>(to) + at;
  if constexpr (is_complex<T>) {
    if (step == 1) {
      for (int64_t i = 0; i < count; ++i) set(first + i, cast<Value<T>>(from[i]));
      return;
    }
  }
  for (int64_t i = 0; i < count; ++i) set(first + i * step, cast<Value<T>>(from[i]));
}

// The element types that are read and written as V.
template <class V>
constexpr unsigned kRowTypes = std::is_integral_v<V> ? Ints | WideUnsigned | Bools : Everything;

// The functions below return false if the dtype is not supported.
template <class V>
bool row_reader(int32_t dtype, ReadRowOf<V>& out) {
  return visit<kRowTypes<V>>(dtype,
                             [&](auto tag) { out = read_row<typename decltype(tag)::type, V>; });
}
template <class V>
bool row_writer(int32_t dtype, WriteRowOf<V>& out) {
  return visit<kRowTypes<V>>(dtype,
                             [&](auto tag) { out = write_row<typename decltype(tag)::type, V>; });
}

}  // namespace
}  // namespace husk::host
