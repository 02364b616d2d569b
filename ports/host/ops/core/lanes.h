// SIMD vectors and the element types that are loaded into them, for the instruction set that the
// including file is compiled for.
// Everything is in an unnamed namespace and calls no inline function of the standard library.
// Otherwise the linker could keep a copy of an inline function that was compiled for AVX-512 and
// use it on a CPU without AVX-512.
#pragma once

#include <cstdint>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define HUSK_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define HUSK_VECTOR_BYTES 32
#else
#define HUSK_VECTOR_BYTES 16
#endif

#if defined(__clang__)
#define HUSK_UNROLL _Pragma("unroll")
#else
#define HUSK_UNROLL _Pragma("GCC unroll 16")
#endif

namespace husk::host {
namespace {

// An f16 element: IEEE 754 binary16.
struct Half {
  uint16_t bits;
};

// A bf16 element: the upper half of a binary32.
struct BFloat16 {
  uint16_t bits;
};

template <class T>
struct Lanes;
template <>
struct Lanes<float> {
  typedef float V __attribute__((vector_size(HUSK_VECTOR_BYTES)));
};
template <>
struct Lanes<double> {
  typedef double V __attribute__((vector_size(HUSK_VECTOR_BYTES)));
};
template <class T>
using Vector = typename Lanes<T>::V;
template <class T>
constexpr int kLaneCount = HUSK_VECTOR_BYTES / static_cast<int>(sizeof(T));

typedef uint32_t UInt32Vector __attribute__((vector_size(HUSK_VECTOR_BYTES)));
typedef uint16_t UInt16Vector __attribute__((vector_size(HUSK_VECTOR_BYTES / 2)));

template <class To, class From>
inline To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

// ---- one element ----

inline float load_one(const float* from) { return *from; }
inline double load_one(const double* from) { return *from; }
inline float load_one(const BFloat16* from) {
  return bits_as<float>(static_cast<uint32_t>(from->bits) << 16);
}

inline float load_one(const Half* from) {
#if defined(__F16C__)
  return _cvtsh_ss(from->bits);
#else
  const uint32_t sign = static_cast<uint32_t>(from->bits & 0x8000) << 16,
                 rest = from->bits & 0x7fffu;
  if (rest > 0x7c00)
    return bits_as<float>(sign | 0x7fc00000u | (rest & 0x3ff) << 13);  // a quiet NaN
  if (rest == 0x7c00) return bits_as<float>(sign | 0x7f800000u);
  if (rest >= 0x400) return bits_as<float>(sign | ((rest << 13) + 0x38000000u));
  const float small = static_cast<float>(rest) * 0x1p-24f;  // subnormal
  return sign ? -small : small;
#endif
}

inline void store_one(float* to, float value) { *to = value; }
inline void store_one(double* to, double value) { *to = value; }

inline void store_one(BFloat16* to, float value) {
  const uint32_t bits = bits_as<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);  // to nearest, ties to even
  to->bits = static_cast<uint16_t>((value != value ? bits | 0x400000 : rounded) >> 16);
}

inline void store_one(Half* to, float value) {
#if defined(__F16C__)
  to->bits = _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
#else
  const uint32_t bits = bits_as<uint32_t>(value), sign = bits >> 16 & 0x8000,
                 rest = bits & 0x7fffffff;
  uint32_t half;
  if (rest > 0x7f800000)
    half = 0x7e00;
  else if (rest >= 0x477ff000)  // 65520 and more round to infinity
    half = 0x7c00;
  else if (rest >= 0x38800000)  // normal, from 2^-14 on
    half = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
  else  // subnormal: the sum has the rounded multiple of 2^-24 in its low bits
    half = bits_as<uint32_t>(bits_as<float>(rest) + 0.5f) - 0x3f000000;
  to->bits = static_cast<uint16_t>(sign | half);
#endif
}

// ---- a vector of adjacent elements ----

inline Vector<float> load(const float* from) {
  Vector<float> v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
inline Vector<double> load(const double* from) {
  Vector<double> v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
inline Vector<float> load(const BFloat16* from) {
  UInt16Vector bits;
  __builtin_memcpy(&bits, from, sizeof bits);
  return bits_as<Vector<float>>(__builtin_convertvector(bits, UInt32Vector) << 16);
}
inline Vector<float> load(const Half* from) {
#if defined(__AVX512F__)
  // The plain intrinsic makes GCC 12 warn about an uninitialized value in GCC's own header, so the
  // zero-masked one is used.
  return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  Vector<float> v;
  for (int i = 0; i < kLaneCount<float>; ++i) v[i] = load_one(from + i);
  return v;
#endif
}

inline void store(float* to, Vector<float> v) { __builtin_memcpy(to, &v, sizeof v); }
inline void store(double* to, Vector<double> v) { __builtin_memcpy(to, &v, sizeof v); }
inline void store(BFloat16* to, Vector<float> v) {
  const UInt32Vector bits = bits_as<UInt32Vector>(v);
  const UInt32Vector nan = bits_as<UInt32Vector>(v != v);
  const UInt32Vector rounded = bits + 0x7fff + (bits >> 16 & 1);
  const UInt16Vector out = __builtin_convertvector(
      ((nan & (bits | 0x400000)) | (~nan & rounded)) >> 16, UInt16Vector);
  __builtin_memcpy(to, &out, sizeof out);
}
inline void store(Half* to, Vector<float> v) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
  for (int i = 0; i < kLaneCount<float>; ++i) store_one(to + i, v[i]);
#endif
}

// ---- across lanes ----

// Interleaves the lanes of two vectors (a0 b0 a1 b1 ...): `low` takes the lower halves of a and b,
// `high` the upper halves.
template <int L>
struct Zip;
template <>
struct Zip<2> {
  template <class V>
  static V low(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 2);
  }
  template <class V>
  static V high(V a, V b) {
    return __builtin_shufflevector(a, b, 1, 3);
  }
};
template <>
struct Zip<4> {
  template <class V>
  static V low(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 4, 1, 5);
  }
  template <class V>
  static V high(V a, V b) {
    return __builtin_shufflevector(a, b, 2, 6, 3, 7);
  }
};
template <>
struct Zip<8> {
  template <class V>
  static V low(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  }
  template <class V>
  static V high(V a, V b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  }
};
template <>
struct Zip<16> {
  template <class V>
  static V low(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  }
  template <class V>
  static V high(V a, V b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                   31);
  }
};

// Transposes an L x L matrix of lanes. Zipping row i with row i + L/2 moves one bit of the row
// number into the lane number, so after log2(L) rounds row number and lane number are exchanged.
template <class V, int L>
inline void transpose(V (&rows)[L]) {
  V zipped[L];
  HUSK_UNROLL
  for (int step = 1; step < L; step *= 2) {
    HUSK_UNROLL
    for (int i = 0; i < L / 2; ++i) {
      zipped[2 * i] = Zip<L>::low(rows[i], rows[i + L / 2]);
      zipped[2 * i + 1] = Zip<L>::high(rows[i], rows[i + L / 2]);
    }
    HUSK_UNROLL
    for (int i = 0; i < L; ++i) rows[i] = zipped[i];
  }
}

// The sum of all lanes.
template <class T>
inline T sum(Vector<T> v) {
  constexpr int L = kLaneCount<T>;
  HUSK_UNROLL
  for (int step = 1; step < L; step *= 2) v = Zip<L>::low(v, v) + Zip<L>::high(v, v);
  return v[0];
}

}  // namespace
}  // namespace husk::host
