// Rows of elements of any dtype as complex numbers of f64: for ops that are rare, one code for all dtypes.
#ifndef HUSK_HOST_WIDE_H
#define HUSK_HOST_WIDE_H

#include "number.h"

namespace husk::host {
namespace {

using Wide = Complex<double>;
using ReadWide = void (*)(const void* from, int64_t at, int64_t step, Wide* to, int64_t count);
using WriteWide = void (*)(void* to, int64_t at, int64_t step, const Wide* from, int64_t count);

constexpr int64_t wide_block = 128;

template <class T>
void read_wide(const void* from, int64_t at, int64_t step, Wide* to, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] = cast<Wide>(get(static_cast<const T*>(from) + at + i * step));
}
template <class T>
void write_wide(void* to, int64_t at, int64_t step, const Wide* from, int64_t count) {
  for (int64_t i = 0; i < count; i++) set(static_cast<T*>(to) + at + i * step, cast<Value<T>>(from[i]));
}

inline bool reader_of(int32_t dtype, ReadWide& out) {
  return visit<Everything>(dtype, [&](auto tag) { out = read_wide<typename decltype(tag)::type>; });
}
inline bool writer_of(int32_t dtype, WriteWide& out) {
  return visit<Everything>(dtype, [&](auto tag) { out = write_wide<typename decltype(tag)::type>; });
}

}  // namespace
}  // namespace husk::host

#endif
