// The kernel of normal numbers for AVX2. Its logarithm, sine and cosine are those of Moshier's
// Cephes library in float32 (https://www.netlib.org/cephes), as PyTorch has them. Each product that
// is added to a number is rounded together with the sum where PyTorch's compiler does so.
#pragma once

#include "core/lanes.h"
#include "random/normal.h"

namespace husk::host {
namespace {

constexpr int kPairs = 8;  // of a group
typedef float Pairs __attribute__((vector_size(kPairs * sizeof(float))));
typedef int32_t PairBits __attribute__((vector_size(kPairs * sizeof(float))));

inline Pairs all_pairs(float x) { return Pairs{} + x; }
// a * b + c, rounded once.
inline Pairs fused_pairs(Pairs a, Pairs b, Pairs c) { return _mm256_fmadd_ps(a, b, c); }
inline Pairs fused_pairs(Pairs a, Pairs b, float c) { return fused_pairs(a, b, all_pairs(c)); }

// The logarithm of numbers in (0, 1].
inline Pairs log_of_pairs(Pairs numbers) {
  constexpr float kFactors[] = {-1.1514610310e-1f, 1.1676998740e-1f,  -1.2420140846e-1f,
                                1.4249322787e-1f,  -1.6668057665e-1f, 2.0000714765e-1f,
                                -2.4999993993e-1f, 3.3333331174e-1f};
  constexpr int32_t kExponent = 0x7f800000, kHalf = 0x3f000000;
  // numbers = 2^exponent * x with x in [0.5, 1), then in [sqrt(0.5), sqrt(2)).
  const PairBits bits = bits_as<PairBits>(numbers);
  const Pairs fraction = bits_as<Pairs>((bits & ~kExponent) | kHalf);
  const PairBits is_small = fraction < all_pairs(0.707106781186547524f);
  const Pairs exponent = __builtin_convertvector((bits >> 23) - 0x7e + is_small, Pairs);
  const Pairs x = (fraction - 1) + bits_as<Pairs>(bits_as<PairBits>(fraction) & is_small);
  const Pairs square = x * x;
  Pairs y = all_pairs(7.0376836292e-2f);
  for (const float factor : kFactors) y = fused_pairs(y, x, factor);
  y = fused_pairs(y * x, square, exponent * -2.12194440e-4f);
  y = fused_pairs(-square, all_pairs(0.5f), y);
  return fused_pairs(exponent, all_pairs(0.693359375f), x + y);
}

// The sine and the cosine of angles from 0 to 2 pi.
inline void turn_pairs(Pairs angle, Pairs& sine, Pairs& cosine) {
  // The octant, rounded up to an even one, and the distance to its begin.
  const PairBits octant = (__builtin_convertvector(angle * 1.27323954473516f, PairBits) + 1) & ~1;
  const Pairs turns = __builtin_convertvector(octant, Pairs);
  Pairs x = fused_pairs(turns, all_pairs(-0.78515625f), angle);
  x = fused_pairs(turns, all_pairs(-2.4187564849853515625e-4f), x);
  x = fused_pairs(turns, all_pairs(-3.77489497744594108e-8f), x);
  const Pairs square = x * x;
  Pairs c = fused_pairs(all_pairs(2.443315711809948e-5f), square, -1.388731625493765e-3f);
  c = fused_pairs(c, square, 4.166664568298827e-2f);
  c = fused_pairs(c * square, square, square * -0.5f) + 1;
  Pairs s = fused_pairs(all_pairs(-1.9515295891e-4f), square, 8.3321608736e-3f);
  s = fused_pairs(s, square, -1.6666654611e-1f);
  s = fused_pairs(s * square, x, x);
  const PairBits keeps = (octant & 2) == 0;
  const Pairs first = keeps ? s : c, second = keeps ? c : s;
  sine = bits_as<Pairs>(bits_as<PairBits>(first) ^ (octant & 4) << 29);
  cosine = bits_as<Pairs>(bits_as<PairBits>(second) ^ (~(octant - 2) & 4) << 29);
}

inline void run_normal_groups(float* data, int64_t groups, float mean, float deviation) {
  for (; groups > 0; --groups, data += 2 * kPairs) {
    Pairs first, second, sine, cosine;
    __builtin_memcpy(&first, data, sizeof first);
    __builtin_memcpy(&second, data + kPairs, sizeof second);
    const Pairs radius = _mm256_sqrt_ps(log_of_pairs(1 - first) * -2.f);
    turn_pairs(second * 6.283185307179586f, sine, cosine);
    first = fused_pairs(radius * cosine, all_pairs(deviation), mean);
    second = fused_pairs(radius * sine, all_pairs(deviation), mean);
    __builtin_memcpy(data, &first, sizeof first);
    __builtin_memcpy(data + kPairs, &second, sizeof second);
  }
}

}  // namespace
}  // namespace husk::host
