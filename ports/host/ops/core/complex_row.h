// Reads and writes rows of elements of any dtype as complex numbers of f64. Rare ops use them to
// have one implementation for all dtypes.
#pragma once

#include "core/arithmetic.h"

namespace husk::host {
namespace {

using Complex128 = Complex<double>;
using ReadRow = void (*)(const void* from, int64_t at, int64_t step, Complex128* to, int64_t count);
using WriteRow = void (*)(void* to, int64_t at, int64_t step, const Complex128* from,
                          int64_t count);

constexpr int64_t kRowBlock = 128;  // elements that are converted at once

template <class T>
void read_row(const void* from, int64_t at, int64_t step, Complex128* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = cast<Complex128>(get(static_cast<const T*>(from) + at + i * step));
}
template <class T>
void write_row(void* to, int64_t at, int64_t step, const Complex128* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    set(static_cast<T*>(to) + at + i * step, cast<Value<T>>(from[i]));
}

// The functions below return false if the dtype is not supported.
inline bool row_reader(int32_t dtype, ReadRow& out) {
  return visit<Everything>(dtype, [&](auto tag) { out = read_row<typename decltype(tag)::type>; });
}
inline bool row_writer(int32_t dtype, WriteRow& out) {
  return visit<Everything>(dtype, [&](auto tag) { out = write_row<typename decltype(tag)::type>; });
}

}  // namespace
}  // namespace husk::host
