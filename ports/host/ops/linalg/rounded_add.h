// The sums of products of rounded rows with codes that are ints (rounded_product.h), for the
// instruction set that the including file is compiled for.
//
// A word of codes, or half of one with codes of 4 bits, is four codes of a column that are adjacent
// along the depth (quantized.h); an instruction multiplies it with four ints of a row. Products of
// a block are summed in i32 and multiplied by the step of the row and the scale of the column. A
// panel of a slice is in the first-level cache while all rows are multiplied with it.
#pragma once

#include "linalg/int_product_kernels.h"
#include "linalg/quantized_numbers.h"
#include "linalg/rounded_product.h"

namespace husk::host {
namespace {

// Panels that are multiplied at once, as many as there are registers for.
constexpr int kRoundedPanels = kIntVectors == 1 ? 2 : 1;
constexpr int64_t kRoundedAhead = 2048;  // words of a panel that are fetched ahead
// Blocks whose scales are in memory as f32.
constexpr int64_t kScaledBlocks = 32;

// ---- codes ----

struct RoundedNibbles {
  static constexpr bool kIsNibble = true;
  static constexpr int kHalves = 2;  // of a word
  explicit RoundedNibbles(int32_t) {}
  IntVector codes(IntVector words, int half) const {
    const IntVector mask = 0x0f0f0f0f - IntVector{};
    return half == 0 ? words & mask : bits_as<IntVector>(bits_as<UInt32Vector>(words) >> 4) & mask;
  }
};

// Codes of 8 bits, some bits of which may be flipped: the highest one adds 128 or subtracts it.
struct RoundedBytes {
  static constexpr bool kIsNibble = false;
  static constexpr int kHalves = 1;
  IntVector flipped;
  explicit RoundedBytes(int32_t bits) : flipped(bits - IntVector{}) {}
  IntVector codes(IntVector words, int) const { return words ^ flipped; }
};

// total += the four products of each lane, of codes with ints from -127 to 127.
template <class Codes>
inline void add_code_dots(IntVector& total, IntVector codes, IntVector ints) {
#if defined(__AVX2__) && !defined(__AVX512F__) && !defined(__AVXVNNI__)
  __m256i left = bits_as<__m256i>(codes), right = bits_as<__m256i>(ints);
  if (!Codes::kIsNibble) {
    right = _mm256_sign_epi8(right, left);
    left = _mm256_abs_epi8(left);
  }
  // The instruction multiplies unsigned with signed bytes and saturates, which 2 * 128 * 127 does
  // not reach.
  const __m256i pairs = _mm256_maddubs_epi16(left, right);
  total += bits_as<IntVector>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#else
  add_dots(total, codes, ints);
#endif
}

// ---- products ----

// `count` panels that lie `pitch` words apart: the words of a slice of the first one, and its
// number in the matrix. If `pitch` is 0, the other panels are the first one again.
struct RoundedPanels {
  const uint32_t* words;
  int64_t pitch, number;
  int count;
};

// Numbers of some blocks, of each one those of the columns of some panels.
struct BlockNumbers {
  alignas(64) float numbers[kScaledBlocks * kRoundedPanels * kPanelColumns];

  void read(const GroupNumbers& from, int64_t groups, int64_t group_size,
            const RoundedPanels& panels, int64_t first, int64_t count) {
    switch (from.dtype) {
      case HUSK_F32: return read_as<float>(from, groups, group_size, panels, first, count);
      case HUSK_F16: return read_as<Half>(from, groups, group_size, panels, first, count);
      case HUSK_BF16: return read_as<BFloat16>(from, groups, group_size, panels, first, count);
      case HUSK_I8: return read_as<int8_t>(from, groups, group_size, panels, first, count);
      case HUSK_U8: return read_as<uint8_t>(from, groups, group_size, panels, first, count);
      default: return read_as<int32_t>(from, groups, group_size, panels, first, count);
    }
  }

 private:
  template <class T>
  static Vector<float> load_numbers(const T* from) {
    if constexpr (std::is_integral_v<T>) {
      Vector<float> v = {};
      for (int lane = 0; lane < kLaneCount<float>; ++lane) v[lane] = static_cast<float>(from[lane]);
      return v;
    } else {
      return load(from);
    }
  }

  template <class T>
  __attribute__((noinline)) void read_as(const GroupNumbers& from, int64_t groups,
                                         int64_t group_size, const RoundedPanels& panels,
                                         int64_t first, int64_t count) {
    constexpr int L = kLaneCount<float>;
    const int64_t pitch = panels.count * kPanelColumns, group = first / group_size;
    for (int p = 0; p < panels.count; ++p) {
      const int64_t panel = panels.number + (panels.pitch != 0 ? p : 0);
      const T* at = static_cast<const T*>(from.packed) + (panel * groups + group) * kPanelColumns;
      float* to = numbers + p * kPanelColumns;
      // A division for each block would take as long as its products.
      int64_t left = group_size - first % group_size;
      for (int64_t b = 0; b < count; ++b, to += pitch) {
        // The loop reads the numbers of the next panel after these.
        __builtin_prefetch(at + groups * kPanelColumns);
        for (int v = 0; v < kIntVectors; ++v) store(to + v * L, load_numbers(at + v * L));
        left -= kRoundedBlock;
        if (left == 0) {
          at += kPanelColumns;
          left = group_size;
        }
      }
    }
  }
};

// Adds R rows times a block of C vectors of columns to `sum`.
template <class Codes, int R, int C>
inline void add_block(const Codes& codes, const uint32_t* words, int64_t pitch, const int8_t* ints,
                      int64_t row_pitch, IntVector (&sum)[R][C]) {
  constexpr int L = kLaneCount<float>, V = kIntVectors, H = Codes::kHalves,
                kWords = static_cast<int>(kRoundedBlock) / 4 / H;
  const auto load = [&](int w, int c) {
    const uint32_t* from = words + c / V * pitch + w * kPanelColumns + c % V * L;
    // The processor loads ahead, but not far enough.
    if (C == V) __builtin_prefetch(from + kRoundedAhead);
    return load_ints(from);
  };
#if defined(__ARM_FEATURE_MATMUL_INT8)
  if constexpr (R % 2 == 0) {
    IntRowPair<C> pairs[R / 2];
    HUSK_UNROLL
    for (int w = 0; w < kWords; w += 2 / H) {
      int8x16_t left[C][2];
      HUSK_UNROLL
      for (int c = 0; c < C; ++c) {
        const IntVector first = load(w, c);
        IntRowPair<C>::interleave(codes.codes(first, 0),
                                  codes.codes(H == 1 ? load(w + 1, c) : first, H - 1), left[c]);
      }
      HUSK_UNROLL
      for (int r = 0; r < R; r += 2) {
        const int8_t* at = ints + r * row_pitch + w * H * 4;
        pairs[r / 2].add(at, at + row_pitch, left);
      }
    }
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) {
      HUSK_UNROLL
      for (int c = 0; c < C; ++c) sum[r][c] += pairs[r / 2].row(r % 2, c);
    }
    return;
  }
#endif
  HUSK_UNROLL
  for (int w = 0; w < kWords; ++w) {
    IntVector block[C];
    HUSK_UNROLL
    for (int c = 0; c < C; ++c) block[c] = load(w, c);
    HUSK_UNROLL
    for (int half = 0; half < H; ++half) {
      HUSK_UNROLL
      for (int c = 0; c < C; ++c) {
        const IntVector left = codes.codes(block[c], half);
        HUSK_UNROLL
        for (int r = 0; r < R; ++r)
          add_code_dots<Codes>(sum[r][c], left,
                               all_ints(reinterpret_cast<const uint8_t*>(ints) + r * row_pitch +
                                        (w * H + half) * 4));
      }
    }
  }
}

// The sums of R slices of a row as one number, in steps of the second slice.
template <int R>
inline Vector<float> join_slices(IntVector first, IntVector second, IntVector third,
                                 IntVector fourth) {
  static_assert(R == 3 || R == 4);
  const auto numbers = [](IntVector ints) { return __builtin_convertvector(ints, Vector<float>); };
  Vector<float> sum = numbers(join_ints(first, second));
  if constexpr (R == 3)
    add_product(sum, numbers(third), all_lanes(1.0f / kSliceSteps));
  else
    add_product(sum, numbers(join_ints(third, fourth)),
                all_lanes(1.0f / (kSliceSteps * kSliceSteps)));
  return sum;
}

// Adds R rows, or R slices of one row, times `blocks` blocks of P panels to sums. The scales of a
// block, of type S, follow those of the block before it.
template <class Codes, int R, int P, bool AreSlices, class S>
__attribute__((noinline)) void add_blocks(int32_t flipped, const uint32_t* words, int64_t pitch,
                                          const void* block_scales, int64_t blocks,
                                          const int8_t* ints, int64_t row_pitch, const float* steps,
                                          const int32_t* starts, int64_t block_pitch, float* sums) {
  const S* scales = static_cast<const S*>(block_scales);
  constexpr int L = kLaneCount<float>, V = kIntVectors, C = P * V,
                kWords = static_cast<int>(kRoundedBlock) / 4 / Codes::kHalves,
                kTotals = AreSlices ? 1 : R;
  const Codes codes(flipped);
  Vector<float> total[kTotals][C] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    IntVector sum[R][C];
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) {
      // The last slice of a pair has the start of both.
      const int32_t start = !AreSlices                 ? starts[r * block_pitch + b]
                            : r % 2 == 1 || r == R - 1 ? starts[r / 2 * block_pitch + b]
                                                       : 0;
      HUSK_UNROLL
      for (int c = 0; c < C; ++c) sum[r][c] = start - IntVector{};
    }
    add_block(codes, words, pitch, ints, row_pitch, sum);
    // Scales of the weight itself are fetched as many blocks ahead as its codes.
    if (!std::is_same_v<S, float>) __builtin_prefetch(scales + kRoundedAhead / kWords);
    words += kWords * kPanelColumns;
    ints += kRoundedBlock;
    HUSK_UNROLL
    for (int c = 0; c < C; ++c) {
      const Vector<float> scale = load(scales + c * L);
      if constexpr (AreSlices) {
        add_product(total[0][c], join_slices<R>(sum[0][c], sum[1][c], sum[2][c], sum[R - 1][c]),
                    scale * all_lanes(steps[b]));
      } else {
        HUSK_UNROLL
        for (int r = 0; r < R; ++r)
          add_product(total[r][c], __builtin_convertvector(sum[r][c], Vector<float>),
                      scale * all_lanes(steps[r * block_pitch + b]));
      }
    }
    scales += C * L;
  }
  HUSK_UNROLL
  for (int r = 0; r < kTotals; ++r) {
    HUSK_UNROLL
    for (int c = 0; c < C; ++c) {
      float* to = sums + r * kRoundedPitch + c * L;
      store(to, load(to) + total[r][c]);
    }
  }
}

// Subtracts the zeros of `blocks` blocks of `vectors` vectors from the sums of a row.
void subtract_zeros(const BlockNumbers& scales, const BlockNumbers& zeros, int64_t blocks,
                    int vectors, const float* steps, const float* int_sums, float* sums) {
  constexpr int L = kLaneCount<float>;
  for (int c = 0; c < vectors; ++c) {
    Vector<float> total = load(sums + c * L);
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t at = (b * vectors + c) * L;
      total -= load(scales.numbers + at) * load(zeros.numbers + at) *
               all_lanes(steps[b] * int_sums[b]);
    }
    store(sums + c * L, total);
  }
}

using AddBlocks = void (*)(int32_t flipped, const uint32_t* words, int64_t pitch,
                           const void* scales, int64_t blocks, const int8_t* ints,
                           int64_t row_pitch, const float* steps, const int32_t* starts,
                           int64_t block_pitch, float* sums);
// The sums of one row, which may be slices, with scales of type S.
template <class Codes, class S>
AddBlocks add_row_of(int64_t slices, bool are_slices) {
  if (!are_slices) return add_blocks<Codes, 1, 1, false, S>;
  return slices == 3 ? add_blocks<Codes, 3, 1, true, S> : add_blocks<Codes, 4, 1, true, S>;
}
template <class Codes>
AddBlocks add_of(int64_t rows, bool are_slices, bool are_halves) {
  if (are_halves) return add_row_of<Codes, Half>(rows, are_slices);
  if (are_slices || rows == 1) return add_row_of<Codes, float>(rows, are_slices);
  return rows <= kRoundedAtOnce ? add_blocks<Codes, 4, 1, false, float>
                                : add_blocks<Codes, 4, kRoundedPanels, false, float>;
}

// Instructions take unsigned codes if kIntShift is not 0.
constexpr bool kTakesUnsigned = kIntShift != 0;

[[maybe_unused]] void add_rounded_rows(const Product& p, const RoundedSlice& slice, int64_t column,
                                       int64_t columns, int64_t count, const RoundedRows& rows) {
  constexpr int kMany = static_cast<int>(kRoundedAtOnce);
  const bool are_nibbles = p.b.format.bits == 4;
  // The codes of few rows are read once, in the order of memory.
  const int rows_at_once = count == 1 ? 1 : kMany, at_once = count <= kMany ? 1 : kRoundedPanels;
  const Quantization& q = *p.b.quantization;
  // One row reads scales of blocks where they lie: to convert them first takes longer.
  const bool reads_halves = (count == 1 || rows.are_slices) && q.group == kRoundedBlock &&
                            q.scales.dtype == HUSK_F16 && !q.zeros.data;
  const auto add = are_nibbles ? add_of<RoundedNibbles>(count, rows.are_slices, reads_halves)
                               : add_of<RoundedBytes>(count, rows.are_slices, reads_halves);
  const bool is_flipped = (p.b.format.dtype == HUSK_U8) != kTakesUnsigned;
  const int32_t flipped = is_flipped ? static_cast<int32_t>(0x80808080u) : 0;
  const int64_t panel_pitch = panel_words(p.b.format.bits, p.k), groups = p.k / q.group,
                words_of_block = kRoundedBlock / codes_of_word(p.b.format.bits) * kPanelColumns;
  BlockNumbers scales, zeros;
  for (int64_t j = 0; j < columns; j += at_once * kPanelColumns) {
    const int64_t number = (column + j) / kPanelColumns;
    const RoundedPanels panels = {static_cast<const uint32_t*>(p.b.packed.data) +
                                      number * panel_pitch +
                                      slice.begin / kRoundedBlock * words_of_block,
                                  columns - j > kPanelColumns ? panel_pitch : 0, number, at_once};
    for (int64_t first = 0; first < rows.blocks; first += kScaledBlocks) {
      const int64_t blocks = smaller(kScaledBlocks, rows.blocks - first),
                    begin = slice.begin + first * kRoundedBlock;
      const void* block_scales = scales.numbers;
      if (reads_halves)
        block_scales = static_cast<const Half*>(q.scales.packed) +
                       (number * groups + begin / kRoundedBlock) * kPanelColumns;
      else
        scales.read(q.scales, groups, q.group, panels, begin, blocks);
      if (q.zeros.data) zeros.read(q.zeros, groups, q.group, panels, begin, blocks);
      for (int64_t r = 0; r < count; r += rows_at_once) {
        const int64_t at = r * rows.blocks + first;
        add(flipped, panels.words + first * words_of_block, panels.pitch, block_scales, blocks,
            rows.ints + r * rows.pitch + first * kRoundedBlock, rows.pitch, rows.steps + at,
            rows.starts + at, rows.blocks, rows.sums + r * kRoundedPitch + j);
      }
      for (int64_t r = 0; q.zeros.data && r < (rows.are_slices ? 1 : count); ++r) {
        const int64_t at = r * rows.blocks + first;
        subtract_zeros(scales, zeros, blocks, at_once * kIntVectors, rows.steps + at,
                       rows.int_sums + at, rows.sums + r * kRoundedPitch + j);
      }
    }
  }
}

}  // namespace
}  // namespace husk::host
