// Element types as C++ types: reading and writing one element, and choosing the type by dtype.
// Everything is in an unnamed namespace, because files that are compiled for different instruction
// sets must not share inline functions (see lanes.h).
#pragma once

#include <type_traits>

#include <husk/op.h>

#include "core/arguments.h"
#include "core/lanes.h"

namespace husk::host {
namespace {

// A bool element. Every byte except 0 means true.
struct Bool8 {
  uint8_t byte;
};
// A complex number, as an element and as a value.
template <class R>
struct Complex {
  R re, im;
};

// Sets of element types, as bits.
enum TypeSet : unsigned {
  Bools = 1,
  Ints = 2,
  WideUnsigned = 4,
  Halves = 8,
  Floats = 16,
  Complexes = 32,
  Reals = Ints | Halves | Floats,
  AnyReal = Reals | Bools,
  Numbers = AnyReal | Complexes,
  Everything = Numbers | WideUnsigned
};

// The set of an element type and its dtype; 0 for other types.
template <class T>
constexpr unsigned set_of = 0;
template <class T>
constexpr int32_t dtype_of = HUSK_DTYPE_NONE;
#define HUSK_HOST_ELEMENT(NAME, set, T) \
  template <>                           \
  constexpr unsigned set_of<T> = set;   \
  template <>                           \
  constexpr int32_t dtype_of<T> = HUSK_##NAME;
#include <dtypes.def>

// The type that an element is computed in: float for f16 and bf16, bool for Bool8, otherwise the
// element type itself.
template <class T>
using Value =
    std::conditional_t<set_of<T> == Halves, float, std::conditional_t<set_of<T> == Bools, bool, T>>;

template <class T>
constexpr bool is_complex = false;
template <class R>
constexpr bool is_complex<Complex<R>> = true;
template <class T>
constexpr bool is_floating = std::is_floating_point_v<Value<T>>;

// Reads the value of an element.
template <class T>
Value<T> get(const T* from) {
  if constexpr (std::is_same_v<T, Bool8>)
    return from->byte != 0;
  else if constexpr (set_of<T> == Halves)
    return load_one(from);
  else
    return *from;
}

// Writes a value to an element.
template <class T>
void set(T* to, Value<T> value) {
  if constexpr (std::is_same_v<T, Bool8>)
    to->byte = value;
  else if constexpr (set_of<T> == Halves)
    store_one(to, value);
  else
    *to = value;
}

template <class T>
bool is_nan(T value) {
  if constexpr (is_complex<T>)
    return value.re != value.re || value.im != value.im;
  else
    return value != value;
}

template <class T>
struct Tag {
  using type = T;
};

// Calls f(Tag<T>()) with the element type of `dtype`. Returns false, without a call, if the set K
// does not contain that type.
template <unsigned K, class F>
bool visit(int32_t dtype, F&& f) {
  switch (dtype) {
#define HUSK_HOST_ELEMENT(NAME, set, T) \
  case HUSK_##NAME:                     \
    if constexpr ((K & (set)) != 0)     \
      return f(Tag<T>()), true;         \
    else                                \
      return false;
#include <dtypes.def>
    default: return false;
  }
}

// Calls f(Tag<T>()) with the element type of tensor argument `at`. Fails if the set K does not
// contain that type.
template <unsigned K, class F>
husk_status visit_argument(const Arguments& args, ArgumentPlace at, F&& f) {
  return visit<K>(args[at].dtype, f) ? husk_status{HUSK_OK} : args.unsupported_dtype(at);
}

// N bytes that are only moved. All element types of the same size can be copied as one type.
template <int N>
struct Bytes {
  unsigned char bytes[N];
};

// Calls f(Tag<T>()) with a type T of `bytes` bytes, for ops that only move elements.
template <class F>
void visit_bytes(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1: return f(Tag<uint8_t>());
    case 2: return f(Tag<uint16_t>());
    case 4: return f(Tag<uint32_t>());
    case 8: return f(Tag<Bytes<8>>());  // c64 is aligned to 4 bytes only
    default: return f(Tag<Bytes<16>>());
  }
}

// Reads an element once. Another thread may change the memory of a tensor during a call (husk.h),
// and a compiler may read memory again instead of keeping what was read. So a number that is
// checked and then used as a place or a count comes from a single atomic read.
template <class T>
T read_once(const T* from) {
  return __atomic_load_n(from, __ATOMIC_RELAXED);
}

// Reads an index of dtype i64, i32, i16, i8 or u8, once.
inline int64_t get_index(int32_t dtype, const void* data, int64_t at) {
  switch (dtype) {
    case HUSK_I64: return read_once(static_cast<const int64_t*>(data) + at);
    case HUSK_I32: return read_once(static_cast<const int32_t*>(data) + at);
    case HUSK_I16: return read_once(static_cast<const int16_t*>(data) + at);
    case HUSK_I8: return read_once(static_cast<const int8_t*>(data) + at);
    default: return read_once(static_cast<const uint8_t*>(data) + at);
  }
}

// Whether an index is in [0, size).
inline bool is_within(int64_t index, int64_t size) {
  return static_cast<uint64_t>(index) < static_cast<uint64_t>(size);
}

// Writes an index to a tensor of dtype i64 or i32.
inline void set_index(const husk_op_arg& tensor, int64_t at, int64_t value) {
  if (tensor.dtype == HUSK_I32)
    static_cast<int32_t*>(tensor.data)[at] = static_cast<int32_t>(value);
  else
    static_cast<int64_t*>(tensor.data)[at] = value;
}

// The address of element 0 of a tensor.
template <class T>
const T* data_of(const husk_op_arg& tensor) {
  return static_cast<const T*>(tensor.data);
}
template <class T>
T* writable(const husk_op_arg& tensor) {
  return static_cast<T*>(tensor.data);
}

}  // namespace
}  // namespace husk::host
