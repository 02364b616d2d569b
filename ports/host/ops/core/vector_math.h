// Functions of vectors, for the instruction set that the including file is compiled for.
#pragma once

#include "core/activation.h"
#include "core/lanes.h"

namespace husk::host {
namespace {

// e to the power of each lane. The relative error is at most 2^-22. Results below 2^-126 become 0.
inline Vector<float> exp(Vector<float> x) {
  constexpr float kShift = 12582912;  // 1.5 * 2^23: the sum with a small number rounds it to an int
  const Vector<float> low = Vector<float>{} - 87.33f, high = Vector<float>{} + 89.f;
  // A NaN stays a NaN.
  const Vector<float> bounded = x < low ? low : x > high ? high : x;
  const Vector<float> shifted = bounded * 1.44269504088896341f + kShift, n = shifted - kShift;
  // x = n ln 2 + r. The first factor has so few bits that its product with n is exact.
  const Vector<float> r = (bounded - n * 0.693359375f) - n * -2.12194440e-4f;
  // (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2.
  const Vector<float> rest = (((0.00138146f * r + 0.00836872f) * r + 0.04166839f) * r +
                              0.16666521f) *
                                 r +
                             0.49999993f;
  const Vector<float> fraction = rest * (r * r) + r + 1.f;
  // Two factors, because 2^128 is no float.
  const UInt32Vector power = bits_as<UInt32Vector>(shifted) << 23;
  const Vector<float> half = bits_as<Vector<float>>(power - (1u << 23) + 0x3f800000u);
  const Vector<float> result = fraction * half * 2.f;
  return x < low ? Vector<float>{} : result;
}

// The functions of f64 are libm's, one lane at a time.
template <class F>
inline Vector<double> by_lane(Vector<double> x, const F& function) {
  Vector<double> result = {};
  for (int i = 0; i < kLaneCount<double>; ++i) result[i] = function(x[i]);
  return result;
}

inline Vector<double> exp(Vector<double> x) {
  return by_lane(x, [](double lane) { return __builtin_exp(lane); });
}

// 1 / (1 + e^-x).
template <class V>
inline V sigmoid(V x) {
  return 1 / (1 + exp(-x));
}

// The error is at most 3e-7 of the result. Below 0.625 it is an odd polynomial.
inline Vector<float> tanh(Vector<float> x) {
  const Vector<float> square = x * x;
  const Vector<float> rest = (((-0.00559093646f * square + 0.0205387488f) * square -
                               0.0537096359f) *
                                  square +
                              0.13331092f) *
                                 square -
                             0.333332695f;
  const Vector<float> small = x * square * rest + x, large = 1 - 2 / (exp(x + x) + 1);
  return square < 0.390625f ? small : large;
}
inline Vector<double> tanh(Vector<double> x) {
  return by_lane(x, [](double lane) { return __builtin_tanh(lane); });
}

// x times the probability that a normal variable is less than x: 0.5 x (1 + erf(x / sqrt(2))). erf
// is a quotient of polynomials whose error is 2e-8 before rounding; from 3.92 on it is 1.
inline Vector<float> gelu(Vector<float> x) {
  constexpr float kEnd = 3.92f;
  const Vector<float> one = Vector<float>{} + 1;
  const Vector<float> z = x * 0.70710678118654752f, u = z * z;
  const Vector<float> above = ((((2.0347104e-6f * u + 2.87480507e-4f) * u + 3.86840734e-3f) * u +
                                5.30607216e-2f) *
                                   u +
                               0.192766011f) *
                                  u +
                              1.12837899f;
  const Vector<float> below = ((((3.80704448e-5f * u + 1.18813326e-3f) * u + 1.51724555e-2f) * u +
                                0.115085416f) *
                                   u +
                               0.504166126f) *
                                  u +
                              1;
  const Vector<float> half = x * 0.5f;
  const Vector<float> erf = z > kEnd ? one : z < -kEnd ? -one : z * above / below;
  return half * erf + half;
}
inline Vector<double> gelu(Vector<double> x) {
  return by_lane(x, [](double lane) {
    return 0.5 * lane * (1 + __builtin_erf(lane * 0.70710678118654752440));
  });
}

// gelu with tanh in place of erf: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
inline Vector<float> gelu_tanh(Vector<float> x) {
  return x * sigmoid(x * (1.59576912160573071f + 0.0713548162726f * x * x));
}
inline Vector<double> gelu_tanh(Vector<double> x) {
  return by_lane(x, [](double lane) {
    const double inner = 0.79788456080286535588 * (lane + 0.044715 * lane * lane * lane);
    return 0.5 * lane * (1 + __builtin_tanh(inner));
  });
}

// The larger of each pair of lanes, and the largest lane. A NaN is larger than any number.
template <class T>
inline Vector<T> larger(Vector<T> a, Vector<T> b) {
  return ((a > b) | (a != a)) ? a : b;
}
template <class T>
inline T largest(Vector<T> v) {
  constexpr int L = kLaneCount<T>;
  HUSK_UNROLL
  for (int step = 1; step < L; step *= 2) v = larger<T>(Zip<L>::low(v, v), Zip<L>::high(v, v));
  return v[0];
}

// The larger of two numbers, and the smaller one. The result is x if x is NaN. For GCC, vectors of
// floats are not the same as one instruction. It warns of the plain intrinsics for AVX-512, as in
// lanes.h.
template <class T>
inline Vector<T> at_least(Vector<T> low, Vector<T> x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == sizeof(float)) return _mm512_maskz_max_ps(0xffff, low, x);
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == sizeof(float)) return _mm256_max_ps(low, x);
#endif
  return x < low ? low : x;
}
template <class T>
inline Vector<T> at_most(Vector<T> high, Vector<T> x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == sizeof(float)) return _mm512_maskz_min_ps(0xffff, high, x);
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == sizeof(float)) return _mm256_min_ps(high, x);
#endif
  return x > high ? high : x;
}
template <class T>
inline Vector<T> clamp(Vector<T> x, T low, T high) {  // keeps NaN
  return at_most<T>(all_lanes(high), at_least<T>(all_lanes(low), x));
}

template <class T, Activation A>
inline Vector<T> activate(Vector<T> x) {
  switch (A) {
    case Activation::None: return x;
    case Activation::Relu: return at_least<T>(Vector<T>{}, x);
    case Activation::Relu6: return clamp<T>(x, 0, 6);
    case Activation::Hardsigmoid: return clamp<T>(x + T(3), 0, 6) * (T(1) / T(6));
    case Activation::Hardswish: return x * (clamp<T>(x + T(3), 0, 6) * (T(1) / T(6)));
    case Activation::Sigmoid: return T(1) / (T(1) + exp(-x));
    case Activation::Silu: return x / (T(1) + exp(-x));
    case Activation::Tanh: return tanh(x);
    case Activation::Gelu: return gelu(x);
    case Activation::GeluTanh: return gelu_tanh(x);
  }
  return x;
}

}  // namespace
}  // namespace husk::host
