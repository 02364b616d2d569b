// The kernel of convolutions and linear layers of codes of 8 bits. A part is a product of matrices:
// a row has the elements that a position reads, tap by tap, and a column the weights of a channel.
// Rows lie in the input itself if a position reads adjacent elements that need no change; else they
// are copied to scratch memory. Elements beside the image are the code of 0, so that one correction
// of a column, its sum of weights times that code, holds for all rows.
//
// The instructions of x86-64 for four products multiply unsigned with signed bytes, the others
// signed ones (int_product_kernels.h). An input of the other kind is copied with its highest bits
// changed, which adds 128 to its codes and to their zero.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "core/vector_math.h"
#include "linalg/int_product_kernels.h"
#include "nn/int_convolution.h"

namespace husk::host {
namespace {

constexpr int64_t kIntSlice = 2304;  // bytes of a row that are multiplied at a time
constexpr int64_t kIntSlicePitch = kIntSlice + 64;
constexpr int64_t kLanes = kLaneCount<float>;
// Rows and panels whose sums are in registers.
#if HUSK_VECTOR_BYTES == 64
constexpr int kIntTileRows = 6, kIntTilePanels = 4;
#elif HUSK_VECTOR_BYTES == 32 || defined(__aarch64__)
constexpr int kIntTileRows = 4, kIntTilePanels = 1;
#else
constexpr int kIntTileRows = 2, kIntTilePanels = 1;
#endif

typedef uint8_t CodeLanes __attribute__((vector_size(HUSK_VECTOR_BYTES / 4)));
typedef int8_t SignedLanes __attribute__((vector_size(HUSK_VECTOR_BYTES / 4)));

typedef uint8_t ByteVector __attribute__((vector_size(HUSK_VECTOR_BYTES)));
typedef int16_t ShortLanes __attribute__((vector_size(HUSK_VECTOR_BYTES / 2)));

// GCC 12 converts vectors whose elements are more than twice as wide one element at a time, and it
// warns about the intrinsics without a mask.
inline IntVector widened(CodeLanes codes) {
#if defined(__AVX512F__)
  return bits_as<IntVector>(_mm512_maskz_cvtepu8_epi32(0xffff, bits_as<__m128i>(codes)));
#elif defined(__AVX2__)
  return bits_as<IntVector>(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bits_as<long long>(codes))));
#else
  return __builtin_convertvector(__builtin_convertvector(codes, ShortLanes), IntVector);
#endif
}
inline IntVector widened(SignedLanes codes) {
#if defined(__AVX512F__)
  return bits_as<IntVector>(_mm512_maskz_cvtepi8_epi32(0xffff, bits_as<__m128i>(codes)));
#elif defined(__AVX2__)
  return bits_as<IntVector>(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(bits_as<long long>(codes))));
#else
  return __builtin_convertvector(__builtin_convertvector(codes, ShortLanes), IntVector);
#endif
}
// The low bytes.
inline CodeLanes narrowed(IntVector v) {
#if defined(__AVX512F__)
  return bits_as<CodeLanes>(_mm512_maskz_cvtepi32_epi8(0xffff, bits_as<__m512i>(v)));
#else
  return __builtin_convertvector(__builtin_convertvector(v, ShortLanes), CodeLanes);
#endif
}

// The words of a slice of the panels of a tile, or of all panels of a depthwise part.
constexpr int64_t kIntSliceWords = kIntTilePanels * kIntSlice / 4 * kIntPanel,
                  kDepthwiseWords = kIntPartColumns * kMaxDepthwiseTaps,
                  kIntWords = kIntSliceWords > kDepthwiseWords ? kIntSliceWords : kDepthwiseWords;

struct IntConvolutionBuffers {
  alignas(64) uint8_t a[kIntPositions * kIntSlicePitch];
  alignas(64) uint32_t b[kIntWords];  // panels that are not packed
  alignas(64) int32_t sums[kIntPositions * kIntPartColumns];
  // The numbers of each column of the part.
  alignas(64) float scales[kIntPartColumns], bias[kIntPartColumns];
  alignas(64) int32_t corrections[kIntPartColumns];
  alignas(64) uint8_t zeros[kIntPartColumns];
  // The first element of the output and of the residual at each position.
  int64_t out[kIntPositions], residual[kIntPositions];
};
static_assert(sizeof(IntConvolutionBuffers) <= kConvolutionScratch, "core/scratch.h");

// A part, and what all functions need to know of it.
struct IntPart {
  const IntConvolution& c;
  IntConvolutionBuffers& buffers;
  int64_t group, first, count;  // positions
  int64_t panel, panels, column, columns;
  uint8_t flip;  // changes a code to the kind of the instructions
  uint8_t zero;  // the code of 0, before it is changed
  // A plain activation is a clamp to two ends. If the result has codes, too, then scales, bias,
  // residual and ends are divided by the scale of the output, and numbers are rounded at once.
  bool is_plain;
  bool is_simple;  // finish() does not leave its columns to finish_any()
  float least, most, residual_scale;

  int64_t channel() const { return group * c.out_channels + column; }
};

// A position of the output: its image, and the element of the input that its first tap reads.
struct Place {
  int64_t image, y, x, at[2];

  Place(const IntConvolution& c, int64_t position)
      : image(position / c.positions[1] / c.positions[0]),
        y(position / c.positions[1] % c.positions[0]),
        x(position % c.positions[1]) {
    set(c);
  }
  void set(const IntConvolution& c) {
    at[0] = y * c.stride[0] - c.padding[0];
    at[1] = x * c.stride[1] - c.padding[1];
  }
  void advance(const IntConvolution& c) {
    if (++x == c.positions[1]) {
      x = 0;
      if (++y == c.positions[0]) y = 0, ++image;
    }
    set(c);
  }
  int64_t element(const ImageStrides& s) const {
    return image * s.image + y * s.axis[0] + x * s.axis[1];
  }
};

// ---- results ----

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

// Rounds numbers of a small size to ints, ties to even, and adds `zero`.
inline IntVector rounded(Vector<float> v, int32_t zero) {
  constexpr float kMagic = 0x1.8p23f;
  return bits_as<IntVector>(v + all_lanes(kMagic)) -
         (bits_as<int32_t>(kMagic) - zero + IntVector{});
}

inline void store_codes(IntVector codes, uint8_t* to, int64_t stride, int64_t count) {
  const CodeLanes bytes = narrowed(codes);
  if (stride == 1 && count >= kLanes)
    __builtin_memcpy(to, &bytes, sizeof bytes);
  else
    for (int64_t i = 0; i < count; ++i) to[i * stride] = bytes[i];
}

// The sums of a vector of columns as numbers, with the bias.
inline Vector<float> scaled(const IntConvolutionBuffers& b, int64_t column, const int32_t* sums) {
  const UInt32Vector sum = bits_as<UInt32Vector>(load_ints(sums)) -
                           bits_as<UInt32Vector>(load_ints(b.corrections + column));
  return __builtin_convertvector(bits_as<IntVector>(sum), Vector<float>) * load(b.scales + column) +
         load(b.bias + column);
}

// Writes the results of a position for columns `column` to `end` of the part.
__attribute__((noinline)) void finish_any(const IntPart& p, int64_t row, int64_t column,
                                          int64_t end, const int32_t* sums) {
  const IntConvolution& c = p.c;
  const int64_t stride = c.out_strides.channel, residual_stride = c.residual_strides.channel;
  for (; column < end; column += kLanes, sums += kLanes) {
    const int64_t lanes = smaller(kLanes, end - column), channel = p.channel() + column;
    Vector<float> v = scaled(p.buffers, column, sums);
    if (c.residual)
      v += (load_codes(c.residual, c.residual_dtype,
                       p.buffers.residual[row] + channel * residual_stride, residual_stride,
                       lanes) -
            all_lanes(static_cast<float>(c.residual_zero))) *
           all_lanes(p.residual_scale);
    const bool has_codes = c.out_dtype != HUSK_F32;
    if (!p.is_plain) {
      v = activate_any(c.activation, v);
      if (has_codes) v = v * all_lanes(c.out_inverse);
    }
    v = at_most<float>(all_lanes(p.most), at_least<float>(all_lanes(p.least), v));
    const int64_t at = p.buffers.out[row] + channel * stride;
    if (has_codes) {
      store_codes(rounded(v, c.out_zero), static_cast<uint8_t*>(c.out) + at, stride, lanes);
      continue;
    }
    float* to = static_cast<float*>(c.out) + at;
    if (stride == 1)
      store_some<float>(to, v, lanes);
    else
      for (int64_t i = 0; i < lanes; ++i) to[i * stride] = v[i];
  }
}

// The same for `rows` positions, whose sums lie `pitch` apart. Most results are codes after a clamp
// at most.
inline void finish(const IntPart& p, int64_t row, int64_t rows, int64_t column, int64_t count,
                   const int32_t* sums, int64_t pitch) {
  const IntConvolution& c = p.c;
  const IntConvolutionBuffers& b = p.buffers;
  const int64_t whole = p.is_simple ? count / kLanes * kLanes : 0, channel = p.channel() + column;
  const bool adds = c.residual != nullptr, is_signed = c.residual_dtype == HUSK_I8;
  const Vector<float> zero = all_lanes(static_cast<float>(c.residual_zero)),
                      residual_scale = all_lanes(p.residual_scale), least = all_lanes(p.least),
                      most = all_lanes(p.most);
  const bool is_hardswish = c.activation == Activation::Hardswish;
  const Vector<float> inverse = all_lanes(c.out_inverse);
  const int32_t out_zero = c.out_zero;
  auto* const out = static_cast<uint8_t*>(c.out);
  const auto* const residual = static_cast<const uint8_t*>(c.residual);
  for (int64_t j = 0; j < whole; j += kLanes) {
    const UInt32Vector correction = bits_as<UInt32Vector>(load_ints(b.corrections + column + j));
    const Vector<float> scale = load(b.scales + column + j), bias = load(b.bias + column + j);
    for (int64_t r = 0; r < rows; ++r) {
      const UInt32Vector sum = bits_as<UInt32Vector>(load_ints(sums + r * pitch + j)) - correction;
      Vector<float> v = __builtin_convertvector(bits_as<IntVector>(sum), Vector<float>) * scale +
                        bias;
      if (adds) {
        CodeLanes codes;
        __builtin_memcpy(&codes, residual + b.residual[row + r] + channel + j, sizeof codes);
        const IntVector ints = is_signed ? widened(bits_as<SignedLanes>(codes)) : widened(codes);
        v += (__builtin_convertvector(ints, Vector<float>) - zero) * residual_scale;
      }
      // The one common activation that is no clamp.
      if (is_hardswish) v = activate<float, Activation::Hardswish>(v) * inverse;
      const CodeLanes codes = narrowed(
          rounded(at_most<float>(most, at_least<float>(least, v)), out_zero));
      __builtin_memcpy(out + b.out[row + r] + channel + j, &codes, sizeof codes);
    }
  }
  for (int64_t r = 0; r < rows && whole < count; ++r)
    finish_any(p, row + r, column + whole, column + count, sums + r * pitch + whole);
}

// ---- rows ----

inline void copy_codes(const uint8_t* from, int64_t step, int64_t count, uint8_t flip,
                       uint8_t* to) {
  // The last store overlaps the one before it rather than write after the run.
  if (step == 1 && count >= HUSK_VECTOR_BYTES) {
    const auto copy = [&](int64_t i) {
      ByteVector codes;
      __builtin_memcpy(&codes, from + i, sizeof codes);
      codes ^= flip;
      __builtin_memcpy(to + i, &codes, sizeof codes);
    };
    for (int64_t i = 0; i + HUSK_VECTOR_BYTES <= count; i += HUSK_VECTOR_BYTES) copy(i);
    return copy(count - HUSK_VECTOR_BYTES);
  }
  if (step == 1 && count >= 8) {
    const uint64_t flips = flip * uint64_t{0x0101010101010101};
    const auto copy = [&](int64_t i) {
      uint64_t word;
      __builtin_memcpy(&word, from + i, sizeof word);
      word ^= flips;
      __builtin_memcpy(to + i, &word, sizeof word);
    };
    for (int64_t i = 0; i + 8 <= count; i += 8) copy(i);
    return copy(count - 8);
  }
  for (int64_t i = 0; i < count; ++i) to[i] = from[i * step] ^ flip;
}

// The taps along an axis that lie in the image, for a position whose first tap reads element `at`.
struct Inside {
  int64_t first, last;

  Inside(const IntConvolution& c, int axis, int64_t at) {
    const int64_t step = c.dilation[axis], left = c.in[axis] - at;
    first = at >= 0 ? 0 : step == 1 ? -at : (step - 1 - at) / step;
    last = left <= 0 ? 0 : smaller(c.kernel[axis], step == 1 ? left : (left + step - 1) / step);
    first = smaller(first, last);
  }
};

// Copies elements from `begin` to `end` of a row, and fills a word of 32 bits with 0.
inline void copy_row(const IntPart& p, const Place& place, int64_t begin, int64_t end,
                     uint8_t* to) {
  const IntConvolution& c = p.c;
  const int64_t channels = c.in_channels, step = c.input_strides.channel,
                line = c.kernel[1] * channels;
  const Inside across(c, 1, place.at[1]);
  // Products that lead out of the image are left out, since they may not fit an int64_t.
  const int64_t pitch = across.last - across.first > 1 ? c.dilation[1] * c.input_strides.axis[1]
                                                       : channels;
  const auto* image = static_cast<const uint8_t*>(c.input) + place.image * c.input_strides.image +
                      p.group * channels * step;
  if (across.first < across.last)
    image += (place.at[1] + across.first * c.dilation[1]) * c.input_strides.axis[1];
  const uint8_t zero = p.zero ^ p.flip;
  uint8_t* const base = to - begin;
  const auto clear = [&](int64_t from, int64_t until) {
    for (int64_t i = larger(from, begin); i < smaller(until, end); ++i) base[i] = zero;
  };
  for (int64_t ky = begin / line; ky * line < end; ++ky) {
    const int64_t y = place.at[0] + ky * c.dilation[0], at = ky * line;
    if (y < 0 || y >= c.in[0]) {
      clear(at, at + line);
      continue;
    }
    const uint8_t* from = image + y * c.input_strides.axis[0];
    const int64_t first = at + across.first * channels, last = at + across.last * channels;
    clear(at, first);
    if (step == 1 && pitch == channels) {
      const int64_t i = larger(first, begin), until = smaller(last, end);
      if (i < until) copy_codes(from + (i - first), 1, until - i, p.flip, base + i);
    } else {
      for (int64_t kx = across.first; kx < across.last; ++kx) {
        const int64_t tap = at + kx * channels, i = larger(tap, begin),
                      until = smaller(tap + channels, end);
        if (i < until)
          copy_codes(from + (kx - across.first) * pitch + (i - tap) * step, step, until - i, p.flip,
                     base + i);
      }
    }
    clear(last, at + line);
  }
  for (int64_t i = end; (i - begin) % 4 != 0; ++i) base[i] = 0;
}

// ---- products ----

// Adds R rows times P panels that lie `pitch` words apart to sums of a pitch of their own, or
// writes them there.
template <int R, int P>
void multiply_tile(int64_t words, const uint8_t* const* a, const uint32_t* b, int64_t pitch,
                   bool adds, int32_t* sums, int64_t sums_pitch) {
  constexpr int V = static_cast<int>(kIntPanel / kLanes);
  IntVector total[R][P * V] = {};
  const uint8_t* rows[R];
  HUSK_UNROLL
  for (int r = 0; r < R; ++r) rows[r] = a[r];
  for (int64_t d = 0; d < words; ++d) {
    IntVector right[P * V];
    HUSK_UNROLL
    for (int p = 0; p < P; ++p) {
      HUSK_UNROLL
      for (int v = 0; v < V; ++v)
        right[p * V + v] = load_ints(b + p * pitch + d * kIntPanel + v * kLanes);
    }
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) {
      const IntVector left = all_ints(rows[r] + d * 4);
      HUSK_UNROLL
      for (int v = 0; v < P * V; ++v) add_dots(total[r][v], left, right[v]);
    }
  }
  HUSK_UNROLL
  for (int r = 0; r < R; ++r) {
    HUSK_UNROLL
    for (int v = 0; v < P * V; ++v) {
      int32_t* to = sums + r * sums_pitch + v * kLanes;
      UInt32Vector sum = bits_as<UInt32Vector>(total[r][v]);
      if (adds) sum += bits_as<UInt32Vector>(load_ints(to));
      __builtin_memcpy(to, &sum, sizeof sum);
    }
  }
}

template <int R>
void multiply_panels(int64_t panels, int64_t words, const uint8_t* const* a, const uint32_t* b,
                     int64_t pitch, bool adds, int32_t* sums, int64_t sums_pitch) {
  if constexpr (kIntTilePanels == 4) {
    if (panels == 4) return multiply_tile<R, 4>(words, a, b, pitch, adds, sums, sums_pitch);
    if (panels >= 2) {
      multiply_tile<R, 2>(words, a, b, pitch, adds, sums, sums_pitch);
      if (panels == 2) return;
      b += 2 * pitch;
      sums += 2 * kIntPanel;
    }
  }
  multiply_tile<R, 1>(words, a, b, pitch, adds, sums, sums_pitch);
}

inline void run_product(const IntPart& p, Cancellation& cancellation) {
  const IntConvolution& c = p.c;
  IntConvolutionBuffers& buffers = p.buffers;
  const int64_t all_depth = depth_of(c), panel_words = int_panel_words(c);
  const bool in_place = taps_of(c) == 1 && c.padding[0] == 0 && c.padding[1] == 0 && p.flip == 0 &&
                        all_depth % 4 == 0 && c.input_strides.channel == 1;
  for (int64_t d = 0; d < all_depth; d += kIntSlice) {
    const int64_t depth = smaller(kIntSlice, all_depth - d), words = (depth + 3) / 4;
    const bool is_last = d + depth == all_depth;
    if (cancellation.ends(p.count * p.columns * depth / 128)) return;
    const uint8_t* rows[kIntPositions];
    Place place(c, p.first);
    for (int64_t r = 0; r < p.count; ++r, place.advance(c)) {
      rows[r] = buffers.a + r * kIntSlicePitch;
      if (in_place) {
        rows[r] = static_cast<const uint8_t*>(c.input) + place.image * c.input_strides.image +
                  place.at[0] * c.input_strides.axis[0] + place.at[1] * c.input_strides.axis[1] +
                  p.group * c.in_channels + d;
      } else {
        copy_row(p, place, d, d + depth, buffers.a + r * kIntSlicePitch);
      }
    }
    for (int64_t column = 0; column < p.columns; column += kIntTilePanels * kIntPanel) {
      const int64_t left = p.columns - column, first_panel = p.panel + column / kIntPanel;
      const int64_t panels = smaller(kIntTilePanels, (left + kIntPanel - 1) / kIntPanel);
      const uint32_t* b = buffers.b;
      int64_t pitch = kIntSlice / 4 * kIntPanel;
      if (c.packed) {
        pitch = panel_words;
        b = static_cast<const uint32_t*>(c.packed) +
            (p.group * int_panels(c) + first_panel) * pitch + d / 4 * kIntPanel;
      } else {
        for (int64_t panel = 0; panel < panels; ++panel)
          write_int_panel(c, p.group, first_panel + panel, d / 4, d / 4 + words,
                          buffers.b + panel * pitch);
      }
      for (int64_t r = 0; r < p.count;) {
        const int64_t count = p.count - r >= kIntTileRows ? kIntTileRows : 1;
        int32_t* sums = buffers.sums + r * kIntPartColumns + column;
        int64_t sums_pitch = kIntPartColumns;
        if (is_last && d == 0) {
          // Sums that are complete stay in the first-level cache.
          sums = buffers.sums;
          sums_pitch = kIntTilePanels * kIntPanel;
        }
        if (count == 1)
          multiply_panels<1>(panels, words, rows + r, b, pitch, d != 0, sums, sums_pitch);
        else
          multiply_panels<kIntTileRows>(panels, words, rows + r, b, pitch, d != 0, sums,
                                        sums_pitch);
        if (is_last)
          finish(p, r, count, column, smaller(left, panels * kIntPanel), sums, sums_pitch);
        r += count;
      }
    }
  }
}

// ---- depthwise ----

// total += x w for elements of 16 bits in the low halves of lanes; the high halves of w are 0.
inline void add_products(IntVector& total, IntVector x, IntVector w) {
#if defined(__AVX512VNNI__) && HUSK_VECTOR_BYTES == 64
  total = bits_as<IntVector>(
      _mm512_dpwssd_epi32(bits_as<__m512i>(total), bits_as<__m512i>(x), bits_as<__m512i>(w)));
#elif defined(__AVX512BW__)
  total += bits_as<IntVector>(_mm512_madd_epi16(bits_as<__m512i>(x), bits_as<__m512i>(w)));
#elif defined(__AVX2__)
  total += bits_as<IntVector>(_mm256_madd_epi16(bits_as<__m256i>(x), bits_as<__m256i>(w)));
#elif defined(__x86_64__)
  total += bits_as<IntVector>(_mm_madd_epi16(bits_as<__m128i>(x), bits_as<__m128i>(w)));
#else
  total += x * (w << 16 >> 16);
#endif
}

// Writes the sums of P panels. The codes of a tap begin at element `column` of at[tap].
template <class Codes, int P>
inline void add_taps(int64_t taps, const uint8_t* const* at, int64_t column,
                     const uint32_t* weights, int64_t pitch, int32_t* sums) {
  constexpr int V = static_cast<int>(kIntPanel / kLanes);
  IntVector total[P * V] = {};
  for (int64_t tap = 0; tap < taps; ++tap) {
    const uint8_t* from = at[tap] + column;
    HUSK_UNROLL
    for (int v = 0; v < P * V; ++v) {
      Codes codes;
      __builtin_memcpy(&codes, from + v * kLanes, sizeof codes);
      add_products(total[v], widened(codes),
                   load_ints(weights + v / V * pitch + tap * kIntPanel + v % V * kLanes));
    }
  }
  __builtin_memcpy(sums, total, sizeof total);
}

template <class Codes>
void run_depthwise_rows(const IntPart& p, Cancellation& cancellation) {
  constexpr int kAtOnce = HUSK_VECTOR_BYTES == 64 ? 4 : 1;
  const IntConvolution& c = p.c;
  const int64_t taps = taps_of(c), pitch = int_panel_words(c), step = c.input_strides.channel;
  const uint32_t* b = p.buffers.b;
  if (c.packed) {
    b = static_cast<const uint32_t*>(c.packed) + p.panel * pitch;
  } else {
    for (int64_t panel = 0; panel < p.panels; ++panel)
      write_int_panel(c, 0, p.panel + panel, 0, taps, p.buffers.b + panel * pitch);
  }
  // The elements that a position reads whose taps all lie in the image, if there is one.
  int64_t offsets[kMaxDepthwiseTaps];
  bool fits = true;
  for (int axis = 0; axis < 2; ++axis)
    fits = fits && c.dilation[axis] * (c.kernel[axis] - 1) < c.in[axis];
  for (int64_t tap = 0; fits && tap < taps; ++tap)
    offsets[tap] = tap / c.kernel[1] * c.dilation[0] * c.input_strides.axis[0] +
                   tap % c.kernel[1] * c.dilation[1] * c.input_strides.axis[1];
  Place place(c, p.first);
  for (int64_t r = 0; r < p.count; ++r, place.advance(c)) {
    if (cancellation.ends(taps * p.columns / 16)) return;
    const uint8_t* at[kMaxDepthwiseTaps];
    int64_t steps[kMaxDepthwiseTaps];
    const auto* image = static_cast<const uint8_t*>(c.input) + place.image * c.input_strides.image +
                        p.column * step;
    const Inside down(c, 0, place.at[0]), across(c, 1, place.at[1]);
    const auto element = [&](int64_t ky, int64_t kx) {
      return image + (place.at[0] + ky * c.dilation[0]) * c.input_strides.axis[0] +
             (place.at[1] + kx * c.dilation[1]) * c.input_strides.axis[1];
    };
    if (fits && down.last - down.first == c.kernel[0] &&
        across.last - across.first == c.kernel[1]) {
      const uint8_t* const first = element(0, 0);
      for (int64_t tap = 0; tap < taps; ++tap) {
        at[tap] = first + offsets[tap];
        steps[tap] = step;
      }
    } else {
      for (int64_t ky = 0, tap = 0; ky < c.kernel[0]; ++ky)
        for (int64_t kx = 0; kx < c.kernel[1]; ++kx, ++tap) {
          const bool is_inside = ky >= down.first && ky < down.last && kx >= across.first &&
                                 kx < across.last;
          at[tap] = is_inside ? element(ky, kx) : p.buffers.zeros;
          steps[tap] = is_inside ? step : 1;
        }
    }
    int32_t* sums = p.buffers.sums;
    int64_t panel = 0;
    if (step == 1) {
      // Sums of several panels wait for each other less than those of one.
      for (; panel + kAtOnce < p.panels; panel += kAtOnce)
        add_taps<Codes, kAtOnce>(taps, at, panel * kIntPanel, b + panel * pitch, pitch,
                                 sums + panel * kIntPanel);
      for (; panel < p.panels; ++panel) {
        const int64_t column = panel_begin(c, p.panel + panel) - p.column;
        if (p.columns - column < kIntPanel) break;
        add_taps<Codes, 1>(taps, at, column, b + panel * pitch, pitch, sums + column);
      }
    }
    for (; panel < p.panels; ++panel) {
      const int64_t column = panel_begin(c, p.panel + panel) - p.column,
                    filled = smaller(kIntPanel, p.columns - column);
      uint8_t some[kMaxDepthwiseTaps][kIntPanel];
      const uint8_t* copies[kMaxDepthwiseTaps];
      for (int64_t tap = 0; tap < taps; ++tap) {
        copies[tap] = some[tap];
        for (int64_t i = 0; i < kIntPanel; ++i)
          some[tap][i] = i < filled ? at[tap][(column + i) * steps[tap]] : uint8_t{0};
      }
      add_taps<Codes, 1>(taps, copies, 0, b + panel * pitch, pitch, sums + column);
    }
    finish(p, r, 1, 0, p.columns, sums, 0);
  }
}

// ---- parts ----

[[maybe_unused]] void run_int_convolution(const IntConvolution& c, int64_t part,
                                          Cancellation& cancellation, void* scratch) {
  auto& buffers = *static_cast<IntConvolutionBuffers*>(scratch);
  const IntConvolutionParts parts(c);
  const int64_t block = part % parts.position_blocks, rest = part / parts.position_blocks;
  // Blocks that are as large as each other, but for one position.
  const int64_t each = positions_of(c) / parts.position_blocks,
                more = positions_of(c) % parts.position_blocks;
  const int64_t first = block * each + smaller(block, more), count = each + (block < more);
  const int64_t panel = rest % parts.column_blocks * (kIntPartColumns / kIntPanel),
                column = panel_begin(c, panel), group = rest / parts.column_blocks;
  const bool depthwise = is_depthwise(c), is_unsigned = c.input_dtype == HUSK_U8;
  IntPart p = {c,
               buffers,
               group,
               first,
               count,
               panel,
               smaller(kIntPartColumns / kIntPanel, int_panels(c) - panel),
               column,
               smaller(kIntPartColumns, int_columns(c) - column),
               is_unsigned == (kIntShift != 0) || depthwise ? uint8_t{0} : uint8_t{128},
               static_cast<uint8_t>(c.input_zero),
               true,
               false,
               -__builtin_inff(),
               __builtin_inff(),
               c.residual_scale};
  const bool has_codes = c.out_dtype != HUSK_F32;
  p.is_plain = c.activation == Activation::None || c.activation == Activation::Relu ||
               c.activation == Activation::Relu6;
  p.is_simple = (p.is_plain || c.activation == Activation::Hardswish) && has_codes &&
                c.out_strides.channel == 1 &&
                (!c.residual || (c.residual_dtype != HUSK_F32 && c.residual_strides.channel == 1));
  // Behind a plain activation, the scale of the output divides the factors once, not each result.
  const float factor = p.is_plain && has_codes ? c.out_inverse : 1;
  p.residual_scale *= factor;
  if (has_codes) {
    p.least = static_cast<float>(c.out_least - c.out_zero);
    p.most = static_cast<float>(c.out_most - c.out_zero);
  }
  // Ends of codes that an activation leaves none of are one code.
  const auto raise = [&](float& end, float least) { end = end < least ? least : end; };
  const auto lower = [&](float& end, float most) { end = end > most ? most : end; };
  if (p.is_plain && c.activation != Activation::None) raise(p.least, p.most < 0 ? p.most : 0);
  if (c.activation == Activation::Relu6) lower(p.most, 6 * factor > p.least ? 6 * factor : p.least);
  int32_t zero = c.input_zero;
  if (p.flip != 0) zero += is_unsigned ? -128 : 128;
  const auto* sums = static_cast<const int32_t*>(c.packed);
  if (sums) sums += int_groups(c) * int_panels(c) * int_panel_words(c);
  for (int64_t j = 0; j < (p.columns + kIntPanel - 1) / kIntPanel * kIntPanel; ++j) {
    const bool exists = j < p.columns;
    const int64_t channel = p.channel() + j;
    const int32_t sum = !exists ? 0 : sums ? sums[channel] : sum_of_weights(c, channel);
    buffers.corrections[j] = zero * sum;
    buffers.scales[j] = exists ? factor * c.input_scale * c.scales[channel * c.scales_stride] : 0;
    buffers.bias[j] = exists && c.bias ? factor * c.bias[channel * c.bias_stride] : 0;
  }
  Place place(c, first);
  for (int64_t r = 0; r < count; ++r, place.advance(c)) {
    buffers.out[r] = place.element(c.out_strides);
    buffers.residual[r] = c.residual ? place.element(c.residual_strides) : 0;
  }
  if (!depthwise) return run_product(p, cancellation);
  __builtin_memset(buffers.zeros, p.zero, sizeof buffers.zeros);
  if (is_unsigned)
    run_depthwise_rows<CodeLanes>(p, cancellation);
  else
    run_depthwise_rows<SignedLanes>(p, cancellation);
}

}  // namespace
}  // namespace husk::host
