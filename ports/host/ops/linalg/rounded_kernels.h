// The kernel of products whose first operand is rounded (rounded_product.h), but for its sums,
// which rounded_add.h computes.
#pragma once

#include "linalg/product_kernels.h"
#include "linalg/quantized.h"
#include "linalg/rounded_product.h"

namespace husk::host {
namespace {

typedef int32_t RoundedInts __attribute__((vector_size(HUSK_VECTOR_BYTES)));

// Rounds a block to ints. A block that has an infinity or NaN has a step of NaN. Steps below
// 2^-120 count as 0.
inline float round_block(const float* from, int8_t* to, int32_t& sum) {
  constexpr int L = kLaneCount<float>, N = static_cast<int>(kRoundedBlock) / L;
  typedef int8_t Bytes __attribute__((vector_size(L)));
  Vector<float> values[N];
  UInt32Vector most = {};
  HUSK_UNROLL
  for (int i = 0; i < N; ++i) {
    values[i] = load(from + i * L);
    const UInt32Vector size = bits_as<UInt32Vector>(values[i]) & 0x7fffffff;
    most = size > most ? size : most;
  }
  uint32_t sizes[L];
  __builtin_memcpy(sizes, &most, sizeof most);
  HUSK_UNROLL
  for (int half = L / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i)
      sizes[i] = sizes[i] > sizes[i + half] ? sizes[i] : sizes[i + half];
  const float largest = bits_as<float>(sizes[0]);
  const bool is_finite = sizes[0] < 0x7f800000;
  sum = 0;
  if (!is_finite || largest < 0x1p-113f) {
    __builtin_memset(to, 0, kRoundedBlock);
    return is_finite ? 0 : __builtin_nanf("");
  }
  // The addition rounds to an int, the low bits of the result.
  const Vector<float> magic = all_lanes(12582912.0f), factor = all_lanes(127 / largest);
  RoundedInts total = {};
  HUSK_UNROLL
  for (int i = 0; i < N; ++i) {
    Vector<float> shifted = magic;
    add_product(shifted, values[i], factor);
    const RoundedInts ints = bits_as<RoundedInts>(shifted) - bits_as<RoundedInts>(magic);
    total += ints;
    const Bytes bytes = __builtin_convertvector(ints, Bytes);
    __builtin_memcpy(to + i * L, &bytes, sizeof bytes);
  }
  int32_t totals[L];
  __builtin_memcpy(totals, &total, sizeof total);
  HUSK_UNROLL
  for (int half = L / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) totals[i] += totals[i + half];
  sum = totals[0];
  return largest / 127;
}

// Rounds rows of a slice, and fills up with rows of zeros. `shift` is what is added to codes.
template <class S>
void round_rows(const Product& p, int64_t row, int64_t count, const RoundedSlice& slice,
                int32_t shift, RoundedRows& rows) {
  const S* a = static_cast<const S*>(p.a.data);
  float block[kRoundedBlock];
  const int64_t all = (count + kRoundedAtOnce - 1) / kRoundedAtOnce * kRoundedAtOnce;
  for (int64_t r = 0; r < all; ++r) {
    for (int64_t b = 0; b < slice.blocks(); ++b) {
      const int64_t at = r * slice.blocks() + b;
      int8_t* to = rows.ints + r * slice.pitch() + b * kRoundedBlock;
      int32_t sum = 0;
      rows.steps[at] = 0;
      if (r < count) {
        const S* from = a + (row + r) * p.a.row + (slice.begin + b * kRoundedBlock) * p.a.column;
        if (p.a.column == 1)
          for (int64_t i = 0; i < kRoundedBlock; i += kLaneCount<float>)
            store(block + i, load(from + i));
        else
          for (int64_t i = 0; i < kRoundedBlock; ++i) block[i] = load_one(from + i * p.a.column);
        rows.steps[at] = round_block(block, to, sum);
      } else {
        __builtin_memset(to, 0, kRoundedBlock);
      }
      rows.int_sums[at] = static_cast<float>(sum);
      rows.starts[at] = -shift * sum;
    }
  }
}

template <class S>
void run_rounded(const Product& p, const RoundedAdd& add) {
  auto& rows = lay_out<RoundedRows>(p);
  const bool is_flipped = (p.b.format.dtype == HUSK_U8) != add.takes_unsigned;
  const int32_t shift = p.b.format.bits == 4 ? 8
                        : !is_flipped        ? 0
                        : add.takes_unsigned ? 128
                                             : -128;
  const int64_t most_rows = p.m <= kFewRoundedRows ? kFewRoundedRows : kRoundedRows,
                most_depth = p.m <= kFewRoundedRows ? kLongDepth : kRoundedDepth;
  for (int64_t i = 0; i < p.m; i += most_rows) {
    const int64_t count = smaller(most_rows, p.m - i);
    for (int64_t j = 0; j < p.n; j += kRoundedColumns) {
      const int64_t columns = smaller(kRoundedColumns, p.n - j);
      __builtin_memset(
          rows.sums, 0,
          sizeof rows.sums / RoundedRows::kRows * static_cast<size_t>(count + kRoundedAtOnce - 1));
      for (int64_t d = 0; d < p.k; d += most_depth) {
        const RoundedSlice slice = {d, smaller(most_depth, p.k - d)};
        if (p.cancellation->ends(count * columns * slice.depth / 64)) return;
        round_rows<S>(p, i, count, slice, shift, rows);
        add.add(p, slice, p.b.packed.column + j, columns, count, rows);
      }
      store_sums<float, S>(p, rows.sums, kRoundedPitch, i, j, count, columns);
    }
  }
}

[[maybe_unused]] void run_rounded_product(const Product& p, const RoundedAdd& add) {
  switch (p.dtype) {
    case HUSK_F16: return run_rounded<Half>(p, add);
    case HUSK_BF16: return run_rounded<BFloat16>(p, add);
    default: return run_rounded<float>(p, add);
  }
}

}  // namespace
}  // namespace husk::host
