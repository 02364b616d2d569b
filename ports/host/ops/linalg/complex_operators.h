// Operators for complex numbers, and functions that real and complex numbers both have. Products
// and quotients do not treat infinities and NaN specially.
#pragma once

#include <cmath>

#include "core/element.h"

namespace husk::host {
namespace {

template <class R>
inline Complex<R> operator+(Complex<R> a, Complex<R> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class R>
inline Complex<R> operator-(Complex<R> a, Complex<R> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class R>
inline Complex<R> operator-(Complex<R> a) {
  return {-a.re, -a.im};
}
template <class R>
inline Complex<R> operator*(Complex<R> a, Complex<R> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
// Divides by the larger part first, so that no square overflows.
template <class R>
inline Complex<R> operator/(Complex<R> a, Complex<R> b) {
  if (std::fabs(b.re) >= std::fabs(b.im)) {
    const R ratio = b.re == 0 ? b.im : b.im / b.re, whole = b.re + b.im * ratio;
    return {(a.re + a.im * ratio) / whole, (a.im - a.re * ratio) / whole};
  }
  const R ratio = b.re / b.im, whole = b.re * ratio + b.im;
  return {(a.re * ratio + a.im) / whole, (a.im * ratio - a.re) / whole};
}
template <class R>
inline Complex<R>& operator+=(Complex<R>& a, Complex<R> b) {
  return a = a + b;
}
template <class R>
inline Complex<R>& operator-=(Complex<R>& a, Complex<R> b) {
  return a = a - b;
}
template <class R>
inline Complex<R>& operator*=(Complex<R>& a, Complex<R> b) {
  return a = a * b;
}
template <class R>
inline Complex<R>& operator/=(Complex<R>& a, Complex<R> b) {
  return a = a / b;
}
template <class R>
inline bool operator==(Complex<R> a, Complex<R> b) {
  return a.re == b.re && a.im == b.im;
}

// The type of the real part.
template <class T>
struct RealType {
  using type = T;
};
template <class R>
struct RealType<Complex<R>> {
  using type = R;
};
template <class T>
using Real = typename RealType<T>::type;

// A real number as a T.
template <class T>
inline T from_real(Real<T> value) {
  if constexpr (is_complex<T>)
    return {value, 0};
  else
    return value;
}
template <class T>
inline T conj(T value) {
  if constexpr (is_complex<T>)
    return {value.re, -value.im};
  else
    return value;
}
template <class T>
inline Real<T> real_part(T value) {
  if constexpr (is_complex<T>)
    return value.re;
  else
    return value;
}
template <class T>
inline Real<T> imaginary_part([[maybe_unused]] T value) {
  if constexpr (is_complex<T>)
    return value.im;
  else
    return Real<T>(0);
}
template <class T>
inline Real<T> magnitude(T value) {
  if constexpr (is_complex<T>)
    return std::hypot(value.re, value.im);
  else
    return std::fabs(value);
}
// The sum of the absolute values of the parts, by which LAPACK chooses pivots.
template <class T>
inline Real<T> taxicab(T value) {
  if constexpr (is_complex<T>)
    return std::fabs(value.re) + std::fabs(value.im);
  else
    return std::fabs(value);
}
template <class T>
inline Real<T> squared(T value) {
  if constexpr (is_complex<T>)
    return value.re * value.re + value.im * value.im;
  else
    return value * value;
}

}  // namespace
}  // namespace husk::host
