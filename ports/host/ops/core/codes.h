// Codes of 8 bits as elements: ints, and floats of the format e4m3fn. They are loaded like the
// elements of core/lanes.h, as f32.
#pragma once

#include "core/lanes.h"

namespace husk::host {
namespace {

struct Int8Code {
  int8_t value;
};
struct Float8Code {
  uint8_t bits;
};

typedef int32_t CodeVector __attribute__((vector_size(HUSK_VECTOR_BYTES)));
typedef int8_t CodeBytes __attribute__((vector_size(HUSK_VECTOR_BYTES / 4)));
typedef uint8_t UnsignedCodeBytes __attribute__((vector_size(HUSK_VECTOR_BYTES / 4)));

inline float load_one(const Int8Code* from) { return from->value; }
inline Vector<float> load(const Int8Code* from) {
#if defined(__AVX512F__)
  const __m512i words = _mm512_maskz_cvtepi8_epi32(
      0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  return __builtin_convertvector(bits_as<CodeVector>(words), Vector<float>);
#elif defined(__AVX2__)
  const __m256i words = _mm256_cvtepi8_epi32(
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  return __builtin_convertvector(bits_as<CodeVector>(words), Vector<float>);
#else
  CodeBytes bytes;
  __builtin_memcpy(&bytes, from, sizeof bytes);
  return __builtin_convertvector(bytes, Vector<float>);
#endif
}

// The exponent of e4m3fn moves to that of f32, whose bias is larger by 120. So subnormal numbers
// are right, too.
inline float load_one(const Float8Code* from) {
  const uint32_t rest = from->bits & 0x7f, sign = static_cast<uint32_t>(from->bits & 0x80) << 24;
  if (rest == 0x7f) return bits_as<float>(sign | 0x7fc00000u);
  return bits_as<float>(bits_as<uint32_t>(bits_as<float>(rest << 20) * 0x1p120f) | sign);
}
inline Vector<float> load(const Float8Code* from) {
#if defined(__AVX512F__)
  const auto codes = bits_as<UInt32Vector>(
      _mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__AVX2__)
  const auto codes = bits_as<UInt32Vector>(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  UnsignedCodeBytes bytes;
  __builtin_memcpy(&bytes, from, sizeof bytes);
  const auto codes = __builtin_convertvector(bytes, UInt32Vector);
#endif
  const UInt32Vector rest = codes & 0x7f;
  const auto nan = bits_as<UInt32Vector>(rest == 0x7f) & 0x7fc00000;
  const Vector<float> magnitude = bits_as<Vector<float>>(rest << 20) * 0x1p120f;
  return bits_as<Vector<float>>(bits_as<UInt32Vector>(magnitude) | nan | (codes & 0x80) << 24);
}

}  // namespace
}  // namespace husk::host
