// The kernel of products of i8. Four elements of a row of a, and four of each column of b, that are
// adjacent along the depth make a lane of 32 bits; an instruction, or a few, adds the four products
// of each lane to sums in i32. Words of b are those of quantized.h.
//
// Rows of a are copied to scratch memory in slices of the depth, filled with 0; so is a panel of b
// that is not packed. A panel of a slice is in the first-level cache while all rows are multiplied
// with it.
#pragma once

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "core/cancellation.h"
#include "core/extremes.h"
#include "core/lanes.h"
#include "core/scratch.h"
#include "linalg/int_product.h"
#include "linalg/quantized.h"

namespace husk::host {
namespace {

constexpr int64_t kIntRows = 96, kIntColumns = 256, kIntDepth = 1024;
// Rows that lie 2^n bytes apart share lines of the first-level cache.
constexpr int64_t kIntPitch = kIntDepth + 64;
constexpr int kIntRowsAtOnce = 4;
constexpr int kIntVectors = static_cast<int>(kPanelColumns) / kLaneCount<float>;
constexpr int64_t kMostIntPanels = 2;  // that are multiplied at once

typedef int32_t IntVector __attribute__((vector_size(HUSK_VECTOR_BYTES)));
typedef int16_t ShortVector __attribute__((vector_size(HUSK_VECTOR_BYTES)));

// ---- instructions ----

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
// The instruction multiplies unsigned bytes with signed ones. So 128 is added to the elements of a,
// and 128 times the sum of the column is subtracted from each sum.
constexpr uint8_t kIntShift = 128;
#else
constexpr uint8_t kIntShift = 0;
#endif

// total += the four products of each lane.
inline void add_dots(IntVector& total, IntVector a, IntVector b) {
#if defined(__AVX512VNNI__) && HUSK_VECTOR_BYTES == 64
  total = bits_as<IntVector>(
      _mm512_dpbusd_epi32(bits_as<__m512i>(total), bits_as<__m512i>(a), bits_as<__m512i>(b)));
#elif defined(__AVXVNNI__)
  total = bits_as<IntVector>(
      _mm256_dpbusd_avx_epi32(bits_as<__m256i>(total), bits_as<__m256i>(a), bits_as<__m256i>(b)));
#elif defined(__ARM_FEATURE_DOTPROD)
  total = bits_as<IntVector>(
      vdotq_s32(bits_as<int32x4_t>(total), bits_as<int8x16_t>(b), bits_as<int8x16_t>(a)));
#elif defined(__aarch64__)
  const int8x16_t left = bits_as<int8x16_t>(a), right = bits_as<int8x16_t>(b);
  const int16x8_t low = vmull_s8(vget_low_s8(left), vget_low_s8(right)),
                  high = vmull_high_s8(left, right);
  total += bits_as<IntVector>(vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#else
  // Bytes 0 and 2, and bytes 1 and 3, as pairs of i16.
  const auto even = [](IntVector v) { return bits_as<ShortVector>(v) << 8 >> 8; };
  const auto odd = [](IntVector v) { return bits_as<ShortVector>(v) >> 8; };
  const auto add = [&](ShortVector left, ShortVector right) {
#if defined(__AVX512BW__)
    total += bits_as<IntVector>(_mm512_madd_epi16(bits_as<__m512i>(left), bits_as<__m512i>(right)));
#elif defined(__AVX2__)
    total += bits_as<IntVector>(_mm256_madd_epi16(bits_as<__m256i>(left), bits_as<__m256i>(right)));
#else
    total += bits_as<IntVector>(_mm_madd_epi16(bits_as<__m128i>(left), bits_as<__m128i>(right)));
#endif
  };
  add(even(a), even(b));
  add(odd(a), odd(b));
#endif
}

inline IntVector load_ints(const void* from) {
  IntVector v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
inline IntVector all_ints(const uint8_t* from) {
  int32_t word;
  __builtin_memcpy(&word, from, sizeof word);
  return word - IntVector{};
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
// The sums of two rows and C vectors of columns. An instruction multiplies eight ints of each row
// with eight of each of two columns, so that a register has the sums of two rows and two columns.
template <int C>
class IntRowPair {
 public:
  // Adds the products of eight ints of each row with `columns`.
  void add(const void* first_row, const void* second_row, const int8x16_t (&columns)[C][2]) {
    int8x8_t first, second;
    __builtin_memcpy(&first, first_row, sizeof first);
    __builtin_memcpy(&second, second_row, sizeof second);
    const int8x16_t rows = vcombine_s8(first, second);
    HUSK_UNROLL
    for (int c = 0; c < C; ++c) {
      HUSK_UNROLL
      for (int half = 0; half < 2; ++half)
        sums_[c][half] = vmmlaq_s32(sums_[c][half], rows, columns[c][half]);
    }
  }
  // The sums of a row, 0 or 1, and vector c.
  IntVector row(int row, int c) const {
    const int64x2_t low = vreinterpretq_s64_s32(sums_[c][0]),
                    high = vreinterpretq_s64_s32(sums_[c][1]);
    return bits_as<IntVector>(row == 0 ? vzip1q_s64(low, high) : vzip2q_s64(low, high));
  }
  // Makes two vectors of words, which have the ints 0 to 3 and 4 to 7 of each column, one pair of
  // registers, which have the eight ints of two columns each.
  static void interleave(IntVector low, IntVector high, int8x16_t (&columns)[2]) {
    const int32x4_t first = bits_as<int32x4_t>(low), second = bits_as<int32x4_t>(high);
    columns[0] = vreinterpretq_s8_s32(vzip1q_s32(first, second));
    columns[1] = vreinterpretq_s8_s32(vzip2q_s32(first, second));
  }

 private:
  int32x4_t sums_[C][2] = {};
};
#endif

// ---- blocks ----

struct IntBuffers {
  alignas(64) uint8_t a[kIntRows * kIntPitch];
  alignas(64) uint32_t b[kMostIntPanels * kIntDepth / 4 * kPanelColumns];
  alignas(64) int32_t sums[kIntRows * kIntColumns];
};
static_assert(sizeof(IntBuffers) <= kProductScratch, "core/scratch.h");

// Adds R rows of a times P panels of b that lie `pitch` words apart to sums.
template <int R, int P>
void add_int_panels(int64_t words, const uint8_t* a, const uint32_t* b, int64_t pitch,
                    int32_t* sums) {
  constexpr int L = kLaneCount<float>, V = kIntVectors;
  IntVector total[R][P * V] = {}, shift[P * V] = {};
#if defined(__ARM_FEATURE_MATMUL_INT8)
  if constexpr (R % 2 == 0) {
    IntRowPair<P * V> pairs[R / 2];
    for (int64_t d = 0; d < words; d += 2) {
      int8x16_t right[P * V][2];
      HUSK_UNROLL
      for (int c = 0; c < P * V; ++c) {
        const uint32_t* from = b + c / V * pitch + d * kPanelColumns + c % V * L;
        // The bytes behind the last ints of a row are multiplied with 0.
        IntRowPair<P * V>::interleave(load_ints(from),
                                      d + 1 < words ? load_ints(from + kPanelColumns) : IntVector{},
                                      right[c]);
      }
      HUSK_UNROLL
      for (int r = 0; r < R; r += 2)
        pairs[r / 2].add(a + r * kIntPitch + d * 4, a + (r + 1) * kIntPitch + d * 4, right);
    }
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) {
      HUSK_UNROLL
      for (int c = 0; c < P * V; ++c) total[r][c] = pairs[r / 2].row(r % 2, c);
    }
    words = 0;
  }
#endif
  const IntVector shifts = static_cast<int32_t>(kIntShift * 0x01010101u) + IntVector{};
  for (int64_t d = 0; d < words; ++d) {
    IntVector right[P * V];
    HUSK_UNROLL
    for (int p = 0; p < P; ++p) {
      HUSK_UNROLL
      for (int v = 0; v < V; ++v)
        right[p * V + v] = load_ints(b + p * pitch + d * kPanelColumns + v * L);
    }
    if constexpr (kIntShift != 0) {
      HUSK_UNROLL
      for (int c = 0; c < P * V; ++c) add_dots(shift[c], shifts, right[c]);
    }
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) {
      const IntVector left = all_ints(a + r * kIntPitch + d * 4);
      HUSK_UNROLL
      for (int c = 0; c < P * V; ++c) add_dots(total[r][c], left, right[c]);
    }
  }
  HUSK_UNROLL
  for (int r = 0; r < R; ++r) {
    HUSK_UNROLL
    for (int c = 0; c < P * V; ++c) {
      int32_t* to = sums + r * kIntColumns + c * L;
      // Sums wrap around, as those of instructions do.
      const UInt32Vector sum = bits_as<UInt32Vector>(load_ints(to)) +
                               bits_as<UInt32Vector>(total[r][c]) - bits_as<UInt32Vector>(shift[c]);
      __builtin_memcpy(to, &sum, sizeof sum);
    }
  }
}

template <int P>
void add_int_rows(int64_t rows, int64_t words, const uint8_t* a, const uint32_t* b, int64_t pitch,
                  int32_t* sums) {
  for (; rows >= kIntRowsAtOnce; rows -= kIntRowsAtOnce) {
    add_int_panels<kIntRowsAtOnce, P>(words, a, b, pitch, sums);
    a += kIntRowsAtOnce * kIntPitch;
    sums += kIntRowsAtOnce * kIntColumns;
  }
  switch (rows) {
    case 1: return add_int_panels<1, P>(words, a, b, pitch, sums);
    case 2: return add_int_panels<2, P>(words, a, b, pitch, sums);
    case 3: return add_int_panels<3, P>(words, a, b, pitch, sums);
    default: return;
  }
}

// How rows are multiplied with `panels` panels: by vectors, or by tiles (int_product_amx.h).
struct IntVectorProducts {
  static constexpr int kPanels = kIntVectors == 4 ? 1 : 2;  // as many as there are registers for
  void add(int64_t panels, int64_t rows, int64_t words, const uint8_t* a, const uint32_t* b,
           int64_t pitch, int32_t* sums) const {
    if (panels == kPanels)
      add_int_rows<kPanels>(rows, words, a, b, pitch, sums);
    else
      add_int_rows<1>(rows, words, a, b, pitch, sums);
  }
};

// Copies `count` elements, and fills with 0 up to a multiple of 4.
inline void copy_int_row(const int8_t* from, int64_t step, int64_t count, uint8_t* to) {
  const auto shifted = [](int8_t x) {
    return static_cast<uint8_t>(static_cast<uint8_t>(x) + kIntShift);
  };
  int64_t i = 0;
  if (step == 1)  // a loop of vectors
    for (; i < count; ++i) to[i] = shifted(from[i]);
  for (; i < count; ++i) to[i] = shifted(from[i * step]);
  for (; i % 4 != 0; ++i) to[i] = kIntShift;
}

typedef uint8_t PanelBytes __attribute__((vector_size(16)));
typedef uint16_t PanelPairs __attribute__((vector_size(16)));
typedef uint32_t PanelWords __attribute__((vector_size(16)));
static_assert(kPanelColumns == sizeof(PanelBytes));

// Packs four rows of 16 columns, whose elements are adjacent along the columns.
inline void pack_int_rows(const int8_t* from, int64_t row, uint32_t* to) {
  PanelBytes rows[4];
  HUSK_UNROLL
  for (int r = 0; r < 4; ++r) __builtin_memcpy(&rows[r], from + r * row, sizeof rows[r]);
  const auto low = [](PanelBytes one, PanelBytes other) {
    return bits_as<PanelPairs>(__builtin_shufflevector(one, other, 0, 16, 1, 17, 2, 18, 3, 19, 4,
                                                       20, 5, 21, 6, 22, 7, 23));
  };
  const auto high = [](PanelBytes one, PanelBytes other) {
    return bits_as<PanelPairs>(__builtin_shufflevector(one, other, 8, 24, 9, 25, 10, 26, 11, 27, 12,
                                                       28, 13, 29, 14, 30, 15, 31));
  };
  const PanelPairs pairs[2][2] = {{low(rows[0], rows[1]), low(rows[2], rows[3])},
                                  {high(rows[0], rows[1]), high(rows[2], rows[3])}};
  HUSK_UNROLL
  for (int half = 0; half < 2; ++half) {
    const PanelPairs first = pairs[half][0], second = pairs[half][1],
                     words[2] = {
                         __builtin_shufflevector(first, second, 0, 8, 1, 9, 2, 10, 3, 11),
                         __builtin_shufflevector(first, second, 4, 12, 5, 13, 6, 14, 7, 15)};
    __builtin_memcpy(to + half * 8, words, sizeof words);
  }
}

// Packs 16 rows of 16 columns, whose elements are adjacent along the rows.
inline void pack_int_columns(const int8_t* from, int64_t column, uint32_t* to) {
  HUSK_UNROLL
  for (int c = 0; c < kPanelColumns; c += 4) {
    PanelWords columns[4];
    HUSK_UNROLL
    for (int i = 0; i < 4; ++i)
      __builtin_memcpy(&columns[i], from + (c + i) * column, sizeof columns[i]);
    const PanelWords low = __builtin_shufflevector(columns[0], columns[1], 0, 4, 1, 5),
                     low_2 = __builtin_shufflevector(columns[2], columns[3], 0, 4, 1, 5),
                     high = __builtin_shufflevector(columns[0], columns[1], 2, 6, 3, 7),
                     high_2 = __builtin_shufflevector(columns[2], columns[3], 2, 6, 3, 7),
                     words[4] = {__builtin_shufflevector(low, low_2, 0, 1, 4, 5),
                                 __builtin_shufflevector(low, low_2, 2, 3, 6, 7),
                                 __builtin_shufflevector(high, high_2, 0, 1, 4, 5),
                                 __builtin_shufflevector(high, high_2, 2, 3, 6, 7)};
    HUSK_UNROLL
    for (int i = 0; i < 4; ++i)
      __builtin_memcpy(to + i * kPanelColumns + c, &words[i], sizeof words[i]);
  }
}

// Packs the panel of b that begins with column j: `filled` columns and `depth` rows from row d on.
inline void pack_int_panel(const IntProduct& p, int64_t j, int64_t filled, int64_t d, int64_t depth,
                           uint32_t* to) {
  const int8_t* from = static_cast<const int8_t*>(p.b.data) + d * p.b.row + j * p.b.column;
  int64_t i = 0;
  if (filled == kPanelColumns && p.b.column == 1)
    for (; i + 4 <= depth; i += 4, to += kPanelColumns)
      pack_int_rows(from + i * p.b.row, p.b.row, to);
  else if (filled == kPanelColumns && p.b.row == 1)
    for (; i + 16 <= depth; i += 16, to += 4 * kPanelColumns)
      pack_int_columns(from + i, p.b.column, to);
  for (; i < depth; i += 4, to += kPanelColumns)
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      uint32_t word = 0;
      if (p.b.row == 1 && c < filled && i + 4 <= depth)
        __builtin_memcpy(&word, from + i + c * p.b.column, sizeof word);
      else
        for (int64_t e = 0; c < filled && e < 4 && i + e < depth; ++e)
          word |= uint32_t{static_cast<uint8_t>(from[(i + e) * p.b.row + c * p.b.column])} << 8 * e;
      to[c] = word;
    }
}

template <class Products>
[[gnu::noinline]] void run_int_product_by(const IntProduct& p) {
  auto& buffers = *static_cast<IntBuffers*>(p.scratch);
  const int8_t* a = static_cast<const int8_t*>(p.a.data);
  const int64_t all_words = panel_words(8, p.k);
  for (int64_t i = 0; i < p.m; i += kIntRows) {
    const int64_t rows = smaller(kIntRows, p.m - i);
    for (int64_t j = 0; j < p.n; j += kIntColumns) {
      const int64_t columns = smaller(kIntColumns, p.n - j);
      __builtin_memset(buffers.sums, 0, static_cast<size_t>(rows) * kIntColumns * sizeof(int32_t));
      for (int64_t d = 0; d < p.k; d += kIntDepth) {
        const int64_t depth = smaller(kIntDepth, p.k - d), words = (depth + 3) / 4;
        if (p.cancellation->ends(rows * columns * depth / 64)) return;
        for (int64_t r = 0; r < rows; ++r)
          copy_int_row(a + (i + r) * p.a.row + d * p.a.column, p.a.column, depth,
                       buffers.a + r * kIntPitch);
        // The application is not asked, and so does not run, while there are tiles.
        Products products;
        for (int64_t c = 0; c < columns; c += Products::kPanels * kPanelColumns) {
          const int64_t panels = columns - c > kPanelColumns ? Products::kPanels : 1;
          const uint32_t* b = buffers.b;
          int64_t pitch = kIntDepth / 4 * kPanelColumns;
          if (p.packed.data) {
            pitch = all_words;
            b = static_cast<const uint32_t*>(p.packed.data) +
                (p.packed.column + j + c) / kPanelColumns * pitch + d / 4 * kPanelColumns;
          } else {
            for (int64_t panel = 0; panel < panels; ++panel) {
              const int64_t column = c + panel * kPanelColumns;
              pack_int_panel(p, j + column, smaller(kPanelColumns, columns - column), d, depth,
                             buffers.b + panel * pitch);
            }
          }
          products.add(panels, rows, words, buffers.a, b, pitch, buffers.sums + c);
        }
      }
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
          p.out[(i + r) * p.out_row + (j + c) * p.out_column] = buffers.sums[r * kIntColumns + c];
    }
  }
}

[[maybe_unused]] void run_int_product(const IntProduct& p) {
  run_int_product_by<IntVectorProducts>(p);
}

}  // namespace
}  // namespace husk::host
