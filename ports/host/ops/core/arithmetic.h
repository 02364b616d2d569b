// Arithmetic for ints, floats and complex numbers. Ints wrap around on overflow.
#pragma once

#include "core/checked.h"
#include "core/element.h"

namespace husk::host {
namespace {

// The unsigned type that ints are computed in, because overflow of a signed type is undefined.
// Types below 32 bits are widened first: C++ would widen them to a signed int.
template <class T>
using Wrapping = std::make_unsigned_t<std::conditional_t<(sizeof(T) < 4), int32_t, T>>;

template <class T>
T plus(T a, T b) {
  if constexpr (is_complex<T>)
    return {a.re + b.re, a.im + b.im};
  else if constexpr (std::is_same_v<T, bool>)
    return a || b;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  else
    return a + b;
}

template <class T>
T minus(T a, T b) {
  if constexpr (is_complex<T>)
    return {a.re - b.re, a.im - b.im};
  else if constexpr (std::is_same_v<T, bool>)
    return a != b;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
  else
    return a - b;
}

template <class T>
T times(T a, T b) {
  if constexpr (is_complex<T>)
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  else if constexpr (std::is_same_v<T, bool>)
    return a && b;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  else
    return a * b;
}

// Converts a double to type T. A value that an int type cannot hold becomes INT64_MIN cast to T, as
// on x86.
template <class T>
T number_of(double value) {
  if constexpr (is_complex<T>)
    return {static_cast<decltype(T::re)>(value), 0};
  else if constexpr (std::is_same_v<T, bool>)
    return value != 0;
  else if constexpr (std::is_integral_v<T>) {
    int64_t whole = 0;
    if (checked_int(value, whole)) return static_cast<T>(whole);
    if (value >= 0 && value < 0x1p64) return static_cast<T>(static_cast<uint64_t>(value));
    return static_cast<T>(INT64_MIN);
  } else
    return static_cast<T>(value);
}

// Converts a value between computed types with PyTorch's rules: complex to real drops the imaginary
// part.
template <class To, class From>
To cast(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (is_complex<To>) {
    using R = decltype(To::re);
    if constexpr (is_complex<From>)
      return {static_cast<R>(value.re), static_cast<R>(value.im)};
    else
      return {static_cast<R>(value), 0};
  } else if constexpr (std::is_same_v<To, bool>) {
    if constexpr (is_complex<From>)
      return value.re != 0 || value.im != 0;
    else
      return value != 0;
  } else if constexpr (is_complex<From>) {
    return cast<To>(value.re);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return number_of<To>(static_cast<double>(value));
  } else {
    return static_cast<To>(value);
  }
}

// The value of a scalar argument: an int, a float, or a complex number (two floats). `i` holds the
// value only if is_int.
struct Scalar {
  double re = 0, im = 0;
  int64_t i = 0;
  bool is_int = false;
};

// Reads a scalar argument. Returns false if the argument has another kind.
inline bool scalar_of(const husk_op_arg& arg, Scalar& out) {
  if (arg.kind == HUSK_ARG_INT)
    out = {static_cast<double>(arg.i), 0, arg.i, true};
  else if (arg.kind == HUSK_ARG_FLOAT)
    out = {arg.f, 0, 0, false};
  else if (arg.kind == HUSK_ARG_FLOATS && arg.count == 2 && arg.floats)
    out = {arg.floats[0], arg.floats[1], 0, false};
  else
    return false;
  return true;
}

// Reads a scalar argument that must be one.
inline husk_status get_scalar(const Arguments& args, ArgumentPlace at, Scalar& out) {
  if (scalar_of(args[at], out)) return HUSK_OK;
  return args.argument_error(at, HUSK_INVALID_ARGUMENT, "is not a number");
}

template <class T>
T scalar_as(const Scalar& scalar) {
  if constexpr (is_complex<T>)
    return {static_cast<decltype(T::re)>(scalar.re), static_cast<decltype(T::re)>(scalar.im)};
  else if (scalar.is_int)
    return cast<T>(scalar.i);
  else
    return cast<T>(scalar.re);
}

}  // namespace
}  // namespace husk::host
