// How sums of products of codes become results of a convolution (int_convolution_kernels.h).
#pragma once

#include "nn/int_convolution_parts.h"

namespace husk::host {
namespace {

__attribute__((noinline)) Vector<float> activate_any(Activation activation, Vector<float> v) {
  switch (activation) {
    case Activation::None: return v;
#define HUSK_ACTIVATION(Name, name) \
  case Activation::Name: return activate<float, Activation::Name>(v);
#include <activations.def>
  }
  return v;
}

// Loads `count` codes as numbers.
inline Vector<float> load_codes(const void* data, husk_dtype dtype, int64_t at, int64_t stride,
                                int64_t count) {
  if (dtype == HUSK_F32) {
    const float* from = static_cast<const float*>(data) + at;
    if (stride == 1) return load_some<float>(from, count);
    Vector<float> v = {};
    for (int64_t i = 0; i < count; ++i) v[i] = from[i * stride];
    return v;
  }
  const uint8_t* from = static_cast<const uint8_t*>(data) + at;
  CodeLanes codes = {};
  if (stride == 1 && count >= kLanes)
    __builtin_memcpy(&codes, from, sizeof codes);
  else
    for (int64_t i = 0; i < count; ++i) codes[i] = from[i * stride];
  const IntVector ints = dtype == HUSK_I8 ? widened(bits_as<SignedLanes>(codes)) : widened(codes);
  return __builtin_convertvector(ints, Vector<float>);
}

inline void store_codes(IntVector codes, uint8_t* to, int64_t stride, int64_t count) {
  const CodeLanes bytes = narrowed(codes);
  if (stride == 1 && count >= kLanes)
    __builtin_memcpy(to, &bytes, sizeof bytes);
  else
    for (int64_t i = 0; i < count; ++i) to[i * stride] = bytes[i];
}

// Sums as numbers, with the bias.
inline Vector<float> scaled(IntVector sums, Vector<float> scales, Vector<float> bias) {
  return __builtin_convertvector(sums, Vector<float>) * scales + bias;
}

// Writes the results of a position for columns `column` to `end` of the part.
__attribute__((noinline)) void finish_any(const IntPart& p, int64_t row, int64_t column,
                                          int64_t end, const int32_t* sums) {
  const IntConvolution& c = p.c;
  const int64_t stride = c.out_strides.channel, residual_stride = c.residual_strides.channel;
  for (; column < end; column += kLanes, sums += kLanes) {
    const int64_t lanes = smaller(kLanes, end - column), channel = p.channel() + column;
    Vector<float> v = scaled(load_ints(sums), load(p.buffers.scales + column),
                             load(p.buffers.bias + column));
    if (c.residual)
      v += (load_codes(c.residual, c.residual_dtype,
                       p.buffers.residual[row] + channel * residual_stride, residual_stride,
                       lanes) -
            all_lanes(static_cast<float>(c.residual_zero))) *
           all_lanes(p.residual_scale);
    if (!p.is_plain) {
      v = activate_any(c.activation, v);
      if (p.has_codes()) v = v * all_lanes(c.out_inverse);
    }
    v = at_most<float>(all_lanes(p.most), at_least<float>(all_lanes(p.least), v));
    const int64_t at = p.buffers.out[row] + channel * stride;
    if (p.has_codes()) {
      store_codes(rounded(v) + (c.out_zero - IntVector{}), static_cast<uint8_t*>(c.out) + at,
                  stride, lanes);
      continue;
    }
    float* to = static_cast<float*>(c.out) + at;
    if (stride == 1)
      store_some<float>(to, v, lanes);
    else
      for (int64_t i = 0; i < lanes; ++i) to[i * stride] = v[i];
  }
}

inline void store_first(CodeLanes codes, uint8_t* to, int64_t count) {
  uint8_t bytes[kLanes];
  __builtin_memcpy(bytes, &codes, sizeof codes);
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) __builtin_memcpy(to + i, bytes + i, 4);
  for (; i < count; ++i) to[i] = bytes[i];
}

// SiLU times a factor, for results that become codes. The relative error is at most 2^-20 for
// numbers above -16. A division takes as long as all the rest together, so AVX-512 starts from an
// estimate of 1 / x and makes it exact up to a rounding.
inline Vector<float> silu(Vector<float> v, Vector<float> factor) {
#if defined(__AVX512F__)
  constexpr float kLog2E = -1.44269504088896341f;
  constexpr float kShift = 12582912;  // 1.5 * 2^23: the sum with a small number rounds it to an int
  // Bounds keep a NaN. Beyond them the sigmoid is 0 or 1 to all bits that matter.
  const Vector<float> x = clamp<float>(v, -87, 87), shifted = x * kLog2E + kShift,
                      rest = x * kLog2E - (shifted - kShift);
  // 2^rest for |rest| <= 1/2, and e^-x, whose exponent has that of 2^rest added.
  const Vector<float> power = ((((0.00132764713f * rest + 0.00967554189f) * rest + 0.0555071346f) *
                                    rest +
                                0.240221202f) *
                                   rest +
                               0.693146944f) *
                                  rest +
                              1.00000012f;
  const Vector<float> below = 1 + bits_as<Vector<float>>(bits_as<UInt32Vector>(power) +
                                                         (bits_as<UInt32Vector>(shifted) << 23));
  const Vector<float> estimate = _mm512_maskz_rcp14_ps(0xffff, below),
                      inverse = estimate + estimate * (1 - below * estimate);
  return v * factor * inverse;
#else
  return activate<float, Activation::Silu>(v) * factor;
#endif
}

template <int N>
inline void activate_silu(Vector<float> (&v)[N], Vector<float> factor) {
  HUSK_UNROLL
  for (int i = 0; i < N; ++i) v[i] = silu(v[i], factor);
}

// Results of a part after a clamp, or after one of the common activations that are none
// (IntPart::is_simple).
class SimpleResults {
 public:
  explicit SimpleResults(const IntPart& p)
      : inverse_(all_lanes(p.has_codes() ? p.c.out_inverse : 1)),
        least_(all_lanes(p.least)),
        most_(all_lanes(p.most)),
        residual_zero_(all_lanes(static_cast<float>(p.c.residual_zero))),
        residual_scale_(all_lanes(p.residual_scale)),
        out_zero_(p.c.out_zero),
        has_signed_residual_(p.c.residual_dtype == HUSK_I8),
        activation_(p.c.activation),
        flip_(p.c.out_dtype == HUSK_I8 ? uint8_t{128} : uint8_t{0}),
        least_code_(rounded(least_)[0] + out_zero_ + flip_) {}

  // The residual of `lanes` columns.
  Vector<float> residual(const uint8_t* from, int64_t lanes = kLanes) const {
    CodeLanes codes = {};
    if (lanes == kLanes)
      __builtin_memcpy(&codes, from, sizeof codes);
    else
      for (int64_t i = 0; i < lanes; ++i) codes[i] = from[i];
    const IntVector ints = has_signed_residual_ ? widened(bits_as<SignedLanes>(codes))
                                                : widened(codes);
    return (__builtin_convertvector(ints, Vector<float>) - residual_zero_) * residual_scale_;
  }

  Vector<float> number(Vector<float> v) const {
    Vector<float> activated[1] = {v};
    activate_each(activated);
    return at_most<float>(most_, at_least<float>(least_, activated[0]));
  }

  // Codes in the order of packed(). Rounding keeps the order of numbers, so that the lower end can
  // be a code.
  ByteVector codes(const Vector<float> (&v)[4]) const {
    Vector<float> below[4] = {v[0], v[1], v[2], v[3]};
    activate_each(below);
    HUSK_UNROLL
    for (int i = 0; i < 4; ++i) below[i] = at_most<float>(most_, below[i]);
    const ByteVector codes = packed(below, static_cast<int16_t>(out_zero_ + flip_));
    return at_least(static_cast<uint8_t>(least_code_) + ByteVector{}, codes) ^ flip_;
  }

  // Writes the first `lanes` codes of each vector to a place of its own.
  void store(const Vector<float> (&v)[4], uint8_t* const (&to)[4], int64_t lanes = kLanes) const {
    const ByteVector all = in_order(codes(v));
    HUSK_UNROLL
    for (int i = 0; i < 4; ++i) {
      const CodeLanes some = quarter(all, i);
      if (lanes == kLanes)
        __builtin_memcpy(to[i], &some, sizeof some);
      else
        store_first(some, to[i], lanes);
    }
  }

 private:
  template <int N>
  void activate_each(Vector<float> (&v)[N]) const {
    if (activation_ == Activation::Silu) return activate_silu(v, inverse_);
    if (activation_ != Activation::Hardswish) return;
    HUSK_UNROLL
    for (int i = 0; i < N; ++i) v[i] = activate<float, Activation::Hardswish>(v[i]) * inverse_;
  }

  Vector<float> inverse_, least_, most_, residual_zero_, residual_scale_;
  int32_t out_zero_;
  bool has_signed_residual_;
  Activation activation_;
  uint8_t flip_;  // makes codes of u8 those of i8
  int32_t least_code_;
};

// finish() for simple results in f32.
__attribute__((noinline)) void finish_numbers(const IntPart& p, const SimpleResults& results,
                                              int64_t row, int64_t rows, int64_t column,
                                              int64_t count, const int32_t* sums, int64_t pitch) {
  const IntConvolutionBuffers& b = p.buffers;
  auto* const out = static_cast<float*>(p.c.out) + p.channel() + column;
  const auto* const residual = static_cast<const float*>(p.c.residual);
  for (int64_t j = 0; j < count; j += kLanes) {
    const int64_t lanes = smaller(kLanes, count - j);
    const Vector<float> scales = load(b.scales + column + j), bias = load(b.bias + column + j);
    for (int64_t r = 0; r < rows; ++r) {
      Vector<float> v = scaled(load_ints(sums + r * pitch + j), scales, bias);
      if (residual)
        v += load_some<float>(residual + b.residual[row + r] + p.channel() + column + j, lanes);
      store_some<float>(out + b.out[row + r] + j, results.number(v), lanes);
    }
  }
}

// How many positions have adjacent results of `count` columns that fill a vector of codes together.
inline int64_t positions_together(const IntConvolution& c, int64_t rows, int64_t count,
                                  int64_t pitch) {
  const auto are_adjacent = [&](const ImageStrides& s) {
    const int64_t line = c.positions[1] * count;
    return s.axis[1] == count && s.axis[0] == line && s.image == c.positions[0] * line;
  };
  const int64_t together = 4 * kLanes / count;
  const bool fills = together > 1 && together <= rows && count % kLanes == 0 &&
                     count * together == 4 * kLanes && pitch == count;
  return fills && are_adjacent(c.out_strides) && (!c.residual || are_adjacent(c.residual_strides))
             ? together
             : 1;
}

// Writes the results of `rows` positions, whose sums lie `pitch` apart, for `count` columns. The
// last vector of columns overlaps the one before it, if there is one.
inline void finish(const IntPart& p, const SimpleResults& results, int64_t row, int64_t rows,
                   int64_t column, int64_t count, const int32_t* sums, int64_t pitch) {
  const IntConvolution& c = p.c;
  const IntConvolutionBuffers& b = p.buffers;
  if (!p.is_simple) {
    for (int64_t r = 0; r < rows; ++r)
      finish_any(p, row + r, column, column + count, sums + r * pitch);
    return;
  }
  if (!p.has_codes()) return finish_numbers(p, results, row, rows, column, count, sums, pitch);
  const int64_t channel = p.channel() + column;
  auto* const out = static_cast<uint8_t*>(c.out) + channel;
  const bool adds = c.residual != nullptr;
  const auto* const residual = static_cast<const uint8_t*>(c.residual) + (adds ? channel : 0);
  const int64_t together = positions_together(c, rows, count, pitch);
  int64_t j = 0;
  for (; j + 4 * kLanes <= count * together; j += 4 * kLanes) {
    Vector<float> scales[4], bias[4];
    HUSK_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int64_t at = column + (j + i * kLanes) % count;
      scales[i] = load(b.scales + at);
      bias[i] = load(b.bias + at);
    }
    for (int64_t next = 0; next < rows; next += together) {
      const int64_t r = smaller(next, rows - together);
      Vector<float> v[4];
      HUSK_UNROLL
      for (int i = 0; i < 4; ++i) {
        v[i] = scaled(load_ints(sums + r * pitch + j + i * kLanes), scales[i], bias[i]);
        if (adds) v[i] += results.residual(residual + b.residual[row + r] + j + i * kLanes);
      }
      const ByteVector codes = in_order(results.codes(v));
      __builtin_memcpy(out + b.out[row + r] + j, &codes, sizeof codes);
    }
  }
  for (; j < count; j += kLanes) {
    const int64_t lanes = smaller(kLanes, count), at = smaller(j, count - lanes);
    const Vector<float> scales = load(b.scales + column + at), bias = load(b.bias + column + at);
    // Four rows at a time, the last of which may overlap those before; or else one by one.
    const int64_t step = rows >= 4 ? 1 : 0, each = rows >= 4 ? 4 : 1;
    for (int64_t next = 0; next < rows; next += each) {
      const int64_t first = smaller(next, rows - each);
      const int32_t* from = sums + first * pitch + at;
      Vector<float> v[4];
      HUSK_UNROLL
      for (int i = 0; i < 4; ++i) v[i] = scaled(load_ints(from + i * step * pitch), scales, bias);
      if (adds) {
        HUSK_UNROLL
        for (int i = 0; i < 4; ++i)
          v[i] += results.residual(residual + b.residual[row + first + i * step] + at, lanes);
      }
      uint8_t* to[4];
      HUSK_UNROLL
      for (int i = 0; i < 4; ++i) to[i] = out + b.out[row + first + i * step] + at;
      results.store(v, to, lanes);
    }
  }
}

}  // namespace
}  // namespace husk::host
