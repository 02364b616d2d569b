// SIMD vectors and the element types that are loaded into them, for the instruction set that the
// including file is compiled for.
// Everything is in an unnamed namespace and calls no inline function of the standard library.
// Otherwise the linker could keep a copy of an inline function that was compiled for AVX-512 and
// use it on a CPU without AVX-512.
#pragma once

#include <cstdint>

#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <husk/types.h>

// The instruction set adds products of pairs of bf16 to sums in f32.
#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define HUSK_BF16_PAIRS 1
#else
#define HUSK_BF16_PAIRS 0
#endif

// The instruction set multiplies tiles of bf16. Clang 14 has another macro than later versions.
#if defined(__AMX_BF16__) || defined(__AMXBF16__)
#define HUSK_BF16_TILES 1
#else
#define HUSK_BF16_TILES 0
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

// Two bf16 elements. The low half is the first one.
struct BFloat16Pair {
  uint32_t bits;
};

// Whether the kernels of products, convolutions and attention know a dtype.
constexpr bool has_kernels(int32_t dtype) {
  return dtype == HUSK_F16 || dtype == HUSK_BF16 || dtype == HUSK_F32 || dtype == HUSK_F64;
}

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
template <>
struct Lanes<BFloat16Pair> {
  typedef uint32_t V __attribute__((vector_size(HUSK_VECTOR_BYTES)));
};
template <class T>
using Vector = typename Lanes<T>::V;
template <class T>
constexpr int kLaneCount = HUSK_VECTOR_BYTES / static_cast<int>(sizeof(T));

using UInt32Vector = Vector<BFloat16Pair>;
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
#elif defined(__aarch64__)
  return bits_as<__fp16>(from->bits);
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
#elif defined(__aarch64__)
  to->bits = bits_as<uint16_t>(static_cast<__fp16>(value));
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
#if defined(__aarch64__)
  return bits_as<Vector<float>>(vld1q_f32(from));  // GCC 12 loads lanes of the copy one by one
#endif
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
#elif defined(__aarch64__)
  return bits_as<Vector<float>>(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&from->bits))));
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
#elif defined(__aarch64__)
  vst1_u16(&to->bits, vreinterpret_u16_f16(vcvt_f16_f32(bits_as<float32x4_t>(v))));
#else
  for (int i = 0; i < kLaneCount<float>; ++i) store_one(to + i, v[i]);
#endif
}

// Loads the first `count` elements of a vector. The other lanes are 0.
template <class T, class S>
inline Vector<T> load_some(const S* from, int64_t count) {
  constexpr int L = kLaneCount<T>;
  if (count >= L) return load(from);
#if defined(__AVX512F__)
  if constexpr (sizeof(S) == 4)
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), from);
#endif
  Vector<T> v = {};
  for (int i = 0; i < L && i < count; ++i) v[i] = load_one(from + i);
  return v;
}

// Stores the first `count` elements of a vector.
template <class T, class S>
inline void store_some(S* to, Vector<T> v, int64_t count) {
  constexpr int L = kLaneCount<T>;
  if (count >= L) return store(to, v);
#if defined(__AVX512F__)
  if constexpr (sizeof(S) == 4)
    return _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << count) - 1), v);
#endif
  for (int i = 0; i < L && i < count; ++i) store_one(to + i, v[i]);
}

// ---- a vector of pairs ----

// Loads the bits of `count` elements, at most a vector, into lanes of 32 bits. The other lanes are
// 0.
inline UInt32Vector load_bits(const BFloat16* from, int64_t count) {
  UInt16Vector bits = {};
  if (count == kLaneCount<float>) {
    __builtin_memcpy(&bits, from, sizeof bits);
  } else {
#if defined(__AVX512BW__)
    const auto mask = static_cast<__mmask16>((1u << count) - 1);
    bits = bits_as<UInt16Vector>(_mm256_maskz_loadu_epi16(mask, from));
#else
    for (int64_t i = 0; i < count; ++i) bits[i] = from[i].bits;
#endif
  }
  return __builtin_convertvector(bits, UInt32Vector);
}

inline Vector<BFloat16Pair> load(const BFloat16Pair* from) {
#if defined(__aarch64__)
  return bits_as<Vector<BFloat16Pair>>(vld1q_u32(&from->bits));
#endif
  Vector<BFloat16Pair> v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
inline void store(BFloat16Pair* to, Vector<BFloat16Pair> v) { __builtin_memcpy(to, &v, sizeof v); }

// ---- multiplication ----

// All lanes have the same value.
inline Vector<float> all_lanes(float value) { return value - Vector<float>{}; }
inline Vector<double> all_lanes(double value) { return value - Vector<double>{}; }
inline Vector<BFloat16Pair> all_lanes(BFloat16Pair pair) {
  return pair.bits - Vector<BFloat16Pair>{};
}

// total += a * b.
template <class V>
inline void add_product(V& total, V a, V b) {
  total += a * b;
}
#if HUSK_BF16_PAIRS
// total += the sum of both products of each pair. The instructions take subnormal numbers as 0.
inline void add_product(Vector<float>& total, Vector<BFloat16Pair> a, Vector<BFloat16Pair> b) {
#if defined(__AVX512BF16__)
  total = _mm512_dpbf16_ps(total, bits_as<__m512bh>(a), bits_as<__m512bh>(b));
#else
  total = bits_as<Vector<float>>(
      vbfdotq_f32(bits_as<float32x4_t>(total), bits_as<bfloat16x8_t>(a), bits_as<bfloat16x8_t>(b)));
#endif
}
#endif

#if defined(__aarch64__)
// total += a[lane] * b.
template <class V>
inline void add_product_of_lane(V& total, V a, int lane, V b) {
  total += a[lane] * b;
}
#if HUSK_BF16_PAIRS
inline void add_product_of_lane(Vector<float>& total, Vector<BFloat16Pair> a, int lane,
                                Vector<BFloat16Pair> b) {
  const auto sum = bits_as<float32x4_t>(total);
  const auto left = bits_as<bfloat16x8_t>(a), right = bits_as<bfloat16x8_t>(b);
  switch (lane) {
    case 0: total = bits_as<Vector<float>>(vbfdotq_laneq_f32(sum, right, left, 0)); return;
    case 1: total = bits_as<Vector<float>>(vbfdotq_laneq_f32(sum, right, left, 1)); return;
    case 2: total = bits_as<Vector<float>>(vbfdotq_laneq_f32(sum, right, left, 2)); return;
    default: total = bits_as<Vector<float>>(vbfdotq_laneq_f32(sum, right, left, 3));
  }
}
#endif
#endif

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

// Writes the sum of all lanes of vector i to to[i]; overwrites the vectors. N is a power of two.
// Each round adds the halves of two vectors, and leaves half as many vectors. The bit of the vector
// number that a round removes becomes the lowest bit of the lane number.
template <class T, int N>
inline void sum_each(Vector<T> (&v)[N], T* to) {
  constexpr int L = kLaneCount<T>, group = N < L ? N : L;
  HUSK_UNROLL
  for (int first = 0; first < N; first += group) {
    HUSK_UNROLL
    for (int step = group / 2; step > 0; step /= 2) {
      HUSK_UNROLL
      for (int i = first; i < first + step; ++i)
        v[i] = Zip<L>::low(v[i], v[i + step]) + Zip<L>::high(v[i], v[i + step]);
    }
    HUSK_UNROLL
    for (int step = group; step < L; step *= 2)
      v[first] = Zip<L>::low(v[first], v[first]) + Zip<L>::high(v[first], v[first]);
    if constexpr (group == L) {
      store(to + first, v[first]);
    } else {
      alignas(64) T lanes[L];
      store(lanes, v[first]);
      HUSK_UNROLL
      for (int i = 0; i < group; ++i) to[first + i] = lanes[i * (L / group)];
    }
  }
}

}  // namespace
}  // namespace husk::host
