// The element types as C++ types, how they are read and written, and the choice of one by dtype. Everything is in an
// unnamed namespace, as in lanes.h.
#ifndef HUSK_HOST_ELEMENT_H
#define HUSK_HOST_ELEMENT_H

#include <husk/op.h>

#include <type_traits>

#include "lanes.h"

namespace husk::host {
namespace {

struct Truth { uint8_t byte; };   // bool; any byte but 0 is true
template <class R> struct Complex { R re, im; };

// What an element is computed as: float for f16 and bf16, bool for bool, itself for others.
template <class T> struct Computed { using type = T; };
template <> struct Computed<Half> { using type = float; };
template <> struct Computed<Brain> { using type = float; };
template <> struct Computed<Truth> { using type = bool; };
template <class T> using Value = typename Computed<T>::type;

template <class T> constexpr bool is_complex = false;
template <class R> constexpr bool is_complex<Complex<R>> = true;
template <class T> constexpr bool is_floating = std::is_floating_point_v<Value<T>>;

template <class T>
Value<T> get(const T* from) {
  if constexpr (std::is_same_v<T, Truth>) return from->byte != 0;
  else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Brain>) return load_one(from);
  else return *from;
}

template <class T>
void set(T* to, Value<T> value) {
  if constexpr (std::is_same_v<T, Truth>) to->byte = value;
  else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Brain>) store_one(to, value);
  else *to = value;
}

template <class T> bool is_nan(T value) {
  if constexpr (is_complex<T>) return value.re != value.re || value.im != value.im;
  else return value != value;
}

// Sets of element types.
enum Kinds : unsigned {
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

template <class T> struct Tag { using type = T; };

// f(Tag<T>()) for the type of a dtype, if the set has it; returns whether it does.
template <unsigned K, class F>
bool visit(int32_t dtype, F&& f) {
#define HUSK_CASE(set, name, T) \
  case name:                    \
    if constexpr ((K & (set)) != 0) return f(Tag<T>()), true; else return false;
  switch (dtype) {
    HUSK_CASE(Bools, HUSK_BOOL, Truth)
    HUSK_CASE(Ints, HUSK_U8, uint8_t)
    HUSK_CASE(Ints, HUSK_I8, int8_t)
    HUSK_CASE(Ints, HUSK_I16, int16_t)
    HUSK_CASE(Ints, HUSK_I32, int32_t)
    HUSK_CASE(Ints, HUSK_I64, int64_t)
    HUSK_CASE(WideUnsigned, HUSK_U16, uint16_t)
    HUSK_CASE(WideUnsigned, HUSK_U32, uint32_t)
    HUSK_CASE(WideUnsigned, HUSK_U64, uint64_t)
    HUSK_CASE(Halves, HUSK_F16, Half)
    HUSK_CASE(Halves, HUSK_BF16, Brain)
    HUSK_CASE(Floats, HUSK_F32, float)
    HUSK_CASE(Floats, HUSK_F64, double)
    HUSK_CASE(Complexes, HUSK_C64, Complex<float>)
    HUSK_CASE(Complexes, HUSK_C128, Complex<double>)
    default: return false;
  }
#undef HUSK_CASE
}

// A block of bytes that only moves: elements of one size are one type.
template <int N> struct Bytes { unsigned char bytes[N]; };

template <class F>
void visit_bytes(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1: return f(Tag<uint8_t>());
    case 2: return f(Tag<uint16_t>());
    case 4: return f(Tag<uint32_t>());
    case 8: return f(Tag<Bytes<8>>());   // a complex of two f32 is aligned to 4
    default: return f(Tag<Bytes<16>>());
  }
}

// An index of any integer dtype, as read from a tensor.
inline int64_t get_index(int32_t dtype, const void* data, int64_t at) {
  switch (dtype) {
    case HUSK_I64: return static_cast<const int64_t*>(data)[at];
    case HUSK_I32: return static_cast<const int32_t*>(data)[at];
    case HUSK_I16: return static_cast<const int16_t*>(data)[at];
    case HUSK_I8: return static_cast<const int8_t*>(data)[at];
    default: return static_cast<const uint8_t*>(data)[at];
  }
}

template <class T> const T* data_of(const husk_op_arg& tensor) { return static_cast<const T*>(tensor.data); }
template <class T> T* writable(const husk_op_arg& tensor) { return static_cast<T*>(tensor.data); }

}  // namespace
}  // namespace husk::host

#endif
