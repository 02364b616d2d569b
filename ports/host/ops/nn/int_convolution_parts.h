// Definitions that all kernels of convolutions of codes of 8 bits use: vectors of codes, the
// scratch memory of a part, and the positions that it has.
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
constexpr int64_t kIntMaxLines = 8;  // lines of a kernel that are read where they lie
constexpr int64_t kLanes = kLaneCount<float>;
// Rows and panels whose sums are in registers. A tile of one panel can be longer, so that it has
// enough sums for instructions not to wait for each other.
#if HUSK_VECTOR_BYTES == 64
constexpr int kIntTileRows = 6, kIntTilePanels = 4, kIntLongTileRows = 12;
#elif HUSK_VECTOR_BYTES == 32 || defined(__aarch64__)
constexpr int kIntTileRows = 4, kIntTilePanels = 1, kIntLongTileRows = kIntTileRows;
#else
constexpr int kIntTileRows = 2, kIntTilePanels = 1, kIntLongTileRows = kIntTileRows;
#endif

typedef uint8_t CodeLanes __attribute__((vector_size(HUSK_VECTOR_BYTES / 4)));
typedef int8_t SignedLanes __attribute__((vector_size(HUSK_VECTOR_BYTES / 4)));

typedef uint8_t ByteVector __attribute__((vector_size(HUSK_VECTOR_BYTES)));
typedef uint8_t ByteVector16 __attribute__((vector_size(16)));
typedef uint8_t ByteVector32 __attribute__((vector_size(32)));
typedef int16_t ShortLanes __attribute__((vector_size(HUSK_VECTOR_BYTES / 2)));

// ---- vectors of codes ----

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

// Rounds numbers of a small size to ints, ties to even.
inline IntVector rounded(Vector<float> v) {
  constexpr float kMagic = 0x1.8p23f;
  return bits_as<IntVector>(v + all_lanes(kMagic)) - (bits_as<int32_t>(kMagic) - IntVector{});
}

// Makes ints of four vectors of numbers that are at most 255, adds `zero` to them, and makes codes
// of these, at least 0 and at most 255. Column c of each 128 bits of the codes is number c % 4 of
// the same 128 bits of vector c / 4.
inline ByteVector packed(const Vector<float> (&v)[4], int16_t zero) {
#if defined(__AVX512F__)
  const auto ints = [&](int i) { return _mm512_maskz_cvtps_epi32(0xffff, v[i]); };
  const auto add = [&](__m512i shorts) {
    return _mm512_maskz_adds_epi16(~0u, shorts, _mm512_set1_epi16(zero));
  };
  const __m512i low = add(_mm512_packs_epi32(ints(0), ints(1))),
                high = add(_mm512_packs_epi32(ints(2), ints(3)));
  return bits_as<ByteVector>(_mm512_packus_epi16(low, high));
#elif defined(__AVX2__)
  const auto ints = [&](int i) { return _mm256_cvtps_epi32(v[i]); };
  const auto add = [&](__m256i shorts) {
    return _mm256_adds_epi16(shorts, _mm256_set1_epi16(zero));
  };
  const __m256i low = add(_mm256_packs_epi32(ints(0), ints(1))),
                high = add(_mm256_packs_epi32(ints(2), ints(3)));
  return bits_as<ByteVector>(_mm256_packus_epi16(low, high));
#elif defined(__x86_64__)
  const auto ints = [&](int i) { return _mm_cvtps_epi32(v[i]); };
  const auto add = [&](__m128i shorts) { return _mm_adds_epi16(shorts, _mm_set1_epi16(zero)); };
  const __m128i low = add(_mm_packs_epi32(ints(0), ints(1))),
                high = add(_mm_packs_epi32(ints(2), ints(3)));
  return bits_as<ByteVector>(_mm_packus_epi16(low, high));
#else
  const auto ints = [&](int i) { return vqmovn_s32(vcvtnq_s32_f32(bits_as<float32x4_t>(v[i]))); };
  const auto codes = [&](int i) {
    return vqmovun_s16(vqaddq_s16(vcombine_s16(ints(i), ints(i + 1)), vdupq_n_s16(zero)));
  };
  return bits_as<ByteVector>(vcombine_u8(codes(0), codes(2)));
#endif
}

// Brings codes that packed() made of four adjacent vectors into the order of their columns.
inline ByteVector in_order(ByteVector codes) {
#if defined(__AVX512F__)
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return bits_as<ByteVector>(
      _mm512_maskz_permutexvar_epi32(0xffff, order, bits_as<__m512i>(codes)));
#elif defined(__AVX2__)
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return bits_as<ByteVector>(_mm256_permutevar8x32_epi32(bits_as<__m256i>(codes), order));
#else
  return codes;
#endif
}

#if defined(__AVX512F__)
// The same for the vectors of two positions, which have 32 channels each in the order of
// interleave().
inline ByteVector pair_in_order(ByteVector codes) {
  const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 4, 12, 5, 13, 2, 10, 3, 11, 6, 14, 7, 15);
  return bits_as<ByteVector>(
      _mm512_maskz_permutexvar_epi32(0xffff, order, bits_as<__m512i>(codes)));
}
inline ByteVector32 half(ByteVector codes, int i) {
  ByteVector32 some;
  __builtin_memcpy(&some, reinterpret_cast<const uint8_t*>(&codes) + i * sizeof some, sizeof some);
  return some;
}
#endif

// The first to the fourth quarter of a vector.
inline CodeLanes quarter(ByteVector codes, int i) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  const __m128i half = i < 2 ? _mm256_castsi256_si128(bits_as<__m256i>(codes))
                             : _mm256_extracti128_si256(bits_as<__m256i>(codes), 1);
  return bits_as<CodeLanes>(i % 2 == 0 ? _mm_cvtsi128_si64(half) : _mm_extract_epi64(half, 1));
#endif
  CodeLanes some;
  __builtin_memcpy(&some, reinterpret_cast<const uint8_t*>(&codes) + i * sizeof some, sizeof some);
  return some;
}

inline ByteVector at_least(ByteVector low, ByteVector codes) {
#if defined(__AVX512F__)
  return bits_as<ByteVector>(
      _mm512_maskz_max_epu8(~0ull, bits_as<__m512i>(low), bits_as<__m512i>(codes)));
#else
  return codes > low ? codes : low;
#endif
}

// Makes words of four rows of codes. Word c % 4 of each 128 bits of words[c / 4] has element c of
// the same 128 bits of each row, those of the first row in its lowest byte.
#if defined(__x86_64__)
#define HUSK_INTERLEAVE(Bytes, Register, prefix)                          \
  inline void interleave(const Bytes(&rows)[4], Bytes(&words)[4]) {       \
    const auto row = [&](int i) { return bits_as<Register>(rows[i]); };   \
    const Register low[2] = {prefix##_unpacklo_epi8(row(0), row(1)),      \
                             prefix##_unpacklo_epi8(row(2), row(3))},     \
                   high[2] = {prefix##_unpackhi_epi8(row(0), row(1)),     \
                              prefix##_unpackhi_epi8(row(2), row(3))};    \
    words[0] = bits_as<Bytes>(prefix##_unpacklo_epi16(low[0], low[1]));   \
    words[1] = bits_as<Bytes>(prefix##_unpackhi_epi16(low[0], low[1]));   \
    words[2] = bits_as<Bytes>(prefix##_unpacklo_epi16(high[0], high[1])); \
    words[3] = bits_as<Bytes>(prefix##_unpackhi_epi16(high[0], high[1])); \
  }
HUSK_INTERLEAVE(ByteVector16, __m128i, _mm)
#if defined(__AVX512F__)
HUSK_INTERLEAVE(ByteVector32, __m256i, _mm256)
HUSK_INTERLEAVE(ByteVector, __m512i, _mm512)
#elif defined(__AVX2__)
HUSK_INTERLEAVE(ByteVector, __m256i, _mm256)
#endif
#undef HUSK_INTERLEAVE
#else
inline void interleave(const ByteVector16 (&rows)[4], ByteVector16 (&words)[4]) {
  const auto row = [&](int i) { return bits_as<uint8x16_t>(rows[i]); };
  const uint8x16x2_t first = vzipq_u8(row(0), row(1)), second = vzipq_u8(row(2), row(3));
  for (int half = 0; half < 2; ++half) {
    const uint16x8x2_t both = vzipq_u16(vreinterpretq_u16_u8(first.val[half]),
                                        vreinterpretq_u16_u8(second.val[half]));
    words[2 * half] = bits_as<ByteVector16>(both.val[0]);
    words[2 * half + 1] = bits_as<ByteVector16>(both.val[1]);
  }
}
#endif

// ---- memory ----

// The words of a slice of the panels of a tile, or of all panels of a depthwise part.
constexpr int64_t kIntSliceWords = kIntTilePanels * kIntSlice / 4 * kIntPanel,
                  kDepthwiseWords = kIntPartColumns * kMaxDepthwiseTaps,
                  kIntWords = kIntSliceWords > kDepthwiseWords ? kIntSliceWords : kDepthwiseWords;

struct IntConvolutionBuffers {
  alignas(64) uint8_t a[kIntPositions * kIntSlicePitch];
  alignas(64) uint32_t b[kIntWords];  // panels that are not packed
  // The weights of as many channels as a vector has bytes, in the order of interleave().
  alignas(64) uint32_t weights[kMaxDepthwiseTaps * HUSK_VECTOR_BYTES];
  alignas(64) int32_t sums[kIntPositions * kIntPartColumns];
  // The numbers of each column of the part. Sums begin with minus what the zero of the input adds.
  alignas(64) float scales[kIntPartColumns], bias[kIntPartColumns];
  alignas(64) int32_t begins[kIntPartColumns];
  alignas(64) uint8_t zeros[HUSK_VECTOR_BYTES];
  // The first element of the output and of the residual at each position.
  int64_t out[kIntPositions], residual[kIntPositions];
};
static_assert(sizeof(IntConvolutionBuffers) <= kConvolutionScratch, "core/scratch.h");

// ---- parts ----

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
  bool has_codes() const { return c.out_dtype != HUSK_F32; }  // the output
};

// A position of the output: its image, and the element of the input that its first tap reads.
struct Place {
  int64_t image, y, x, at[2];

  Place(const IntConvolution& c, int64_t position)
      : image(position / c.positions[1] / c.positions[0]),
        y(position / c.positions[1] % c.positions[0]),
        x(position % c.positions[1]),
        at{y * c.stride[0] - c.padding[0], x * c.stride[1] - c.padding[1]} {}

  int64_t element(const ImageStrides& s) const {
    return image * s.image + y * s.axis[0] + x * s.axis[1];
  }
};

// Calls `use(row, place, count)` for positions of a part that follow each other along a line.
template <class Use>
inline void for_each_line(const IntPart& p, const Use& use) {
  for (int64_t row = 0; row < p.count;) {
    const Place place(p.c, p.first + row);
    const int64_t count = smaller(p.count - row, p.c.positions[1] - place.x);
    use(row, place, count);
    row += count;
  }
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
  bool has_all(const IntConvolution& c, int axis) const {
    return first == 0 && last == c.kernel[axis];
  }
};

}  // namespace
}  // namespace husk::host
