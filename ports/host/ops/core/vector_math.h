// Functions of vectors, for the instruction set that the including file is compiled for.
#pragma once

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

inline Vector<double> exp(Vector<double> x) {
  Vector<double> result = {};
  for (int i = 0; i < kLaneCount<double>; ++i) result[i] = __builtin_exp(x[i]);
  return result;
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

}  // namespace
}  // namespace husk::host
