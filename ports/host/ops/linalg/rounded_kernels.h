// The kernel of products whose first operand is rounded (rounded_product.h), but for its sums,
// which rounded_add.h computes.
#pragma once

#include "linalg/product_kernels.h"
#include "linalg/quantized.h"
#include "linalg/rounded_product.h"

namespace husk::host {
namespace {

typedef int32_t RoundedInts __attribute__((vector_size(HUSK_VECTOR_BYTES)));

constexpr int kBlockVectors = static_cast<int>(kRoundedBlock) / kLaneCount<float>;

// The bits of the largest absolute value of a block, which are more than those of infinity if an
// element is NaN.
inline uint32_t largest_bits(const Vector<float> (&values)[kBlockVectors]) {
  constexpr int L = kLaneCount<float>;
  UInt32Vector most = {};
  HUSK_UNROLL
  for (int i = 0; i < kBlockVectors; ++i) {
    const UInt32Vector size = bits_as<UInt32Vector>(values[i]) & 0x7fffffff;
    most = size > most ? size : most;
  }
  HUSK_UNROLL
  for (int step = 1; step < L; step *= 2) {
    const UInt32Vector low = Zip<L>::low(most, most), high = Zip<L>::high(most, most);
    most = low > high ? low : high;
  }
  return most[0];
}

// The ints next to numbers of at most 2^22; of two that are equally near, the even one.
inline RoundedInts nearest_ints(Vector<float> values, Vector<float> factor) {
  // The addition rounds to an int, the low bits of the result.
  const Vector<float> magic = all_lanes(12582912.0f);
  Vector<float> shifted = magic;
  add_product(shifted, values, factor);
  return bits_as<RoundedInts>(shifted) - bits_as<RoundedInts>(magic);
}

// Stores ints as bytes, and adds them to `sum`.
struct StoredInts {
  RoundedInts sum = {};
  void store(RoundedInts ints, int8_t* to) {
    typedef int8_t Bytes __attribute__((vector_size(kLaneCount<float>)));
    const Bytes bytes = __builtin_convertvector(ints, Bytes);
    __builtin_memcpy(to, &bytes, sizeof bytes);
    sum += ints;
  }
  int32_t total() const {
    constexpr int L = kLaneCount<float>;
    RoundedInts totals = sum;
    HUSK_UNROLL
    for (int step = 1; step < L; step *= 2)
      totals = Zip<L>::low(totals, totals) + Zip<L>::high(totals, totals);
    return totals[0];
  }
};

// Rounds a block to ints, and returns its step. A block that has an infinity or NaN has a step of
// NaN. Steps below 2^-120 count as 0.
inline float round_block(const Vector<float> (&values)[kBlockVectors], int8_t* to, int32_t& sum) {
  const uint32_t bits = largest_bits(values);
  const float largest = bits_as<float>(bits);
  const bool is_finite = bits < 0x7f800000;
  sum = 0;
  if (!is_finite || largest < 0x1p-113f) {
    __builtin_memset(to, 0, kRoundedBlock);
    return is_finite ? 0 : __builtin_nanf("");
  }
  StoredInts stored;
  HUSK_UNROLL
  for (int i = 0; i < kBlockVectors; ++i)
    stored.store(nearest_ints(values[i], all_lanes(127 / largest)), to + i * kLaneCount<float>);
  sum = stored.total();
  return largest / 127;
}

inline float power_of_two_float(int32_t exponent) {
  return bits_as<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

// Makes a block the sum of `slices` blocks, which lie `pitch` bytes apart, and writes their sums.
// Returns the step of the first one, NaN if the block has an infinity or NaN.
inline float slice_block(Vector<float> (&values)[kBlockVectors], int64_t slices, int64_t pitch,
                         int8_t* to, int32_t (&sums)[kMostSlices]) {
  const uint32_t bits = largest_bits(values);
  const bool is_finite = bits < 0x7f800000;
  // Steps are powers of two, so that nothing is rounded before the last slice. The largest element
  // is at most 127 steps; the power may be larger than a float is, so it has two factors.
  const int32_t power = 133 - static_cast<int32_t>((bits + 0x10000) >> 23), half = power / 2;
  const Vector<float> one = all_lanes(1.0f);
  HUSK_UNROLL
  for (int i = 0; i < kBlockVectors; ++i)
    values[i] = is_finite ? values[i] * all_lanes(power_of_two_float(half)) *
                                all_lanes(power_of_two_float(power - half))
                          : Vector<float>{};
  for (int64_t slice = 0; slice < slices; ++slice) {
    StoredInts stored;
    HUSK_UNROLL
    for (int i = 0; i < kBlockVectors; ++i) {
      const RoundedInts ints = nearest_ints(values[i], one);
      stored.store(ints, to + slice * pitch + i * kLaneCount<float>);
      // A rest is at most 1/2, so that the next slice has ints up to 64.
      values[i] = (values[i] - __builtin_convertvector(ints, Vector<float>)) *
                  static_cast<float>(kSliceSteps);
    }
    sums[slice] = stored.total();
  }
  if (bits == 0) return 0;
  return is_finite ? power_of_two_float(-half) * power_of_two_float(half - power)
                   : __builtin_nanf("");
}

template <class S>
void load_block(const S* from, int64_t step, Vector<float> (&values)[kBlockVectors]) {
  float scattered[kRoundedBlock];
  if (step != 1)
    for (int64_t i = 0; i < kRoundedBlock; ++i) scattered[i] = load_one(from + i * step);
  HUSK_UNROLL
  for (int i = 0; i < kBlockVectors; ++i)
    values[i] = step == 1 ? load(from + i * kLaneCount<float>)
                          : load(scattered + i * kLaneCount<float>);
}

// Rounds rows of a slice of the depth, and fills up with rows of zeros. `shift` is what is added to
// codes.
template <class S>
void round_rows(const Product& p, const RoundedSlice& slice, int32_t shift,
                const RoundedRows& rows) {
  const S* a = static_cast<const S*>(p.a.data) + slice.begin * p.a.column;
  const int64_t all = (p.m + kRoundedAtOnce - 1) / kRoundedAtOnce * kRoundedAtOnce;
  for (int64_t r = 0; r < all; ++r) {
    for (int64_t b = 0; b < rows.blocks; ++b) {
      const int64_t at = r * rows.blocks + b;
      int8_t* to = rows.ints + r * rows.pitch + b * kRoundedBlock;
      int32_t sum = 0;
      rows.steps[at] = 0;
      if (r < p.m) {
        Vector<float> values[kBlockVectors];
        load_block(a + r * p.a.row + b * kRoundedBlock * p.a.column, p.a.column, values);
        rows.steps[at] = round_block(values, to, sum);
      } else {
        __builtin_memset(to, 0, kRoundedBlock);
      }
      rows.int_sums[at] = static_cast<float>(sum);
      rows.starts[at] = -shift * sum;
    }
  }
}

// The rows that a row of elements of type S becomes.
template <class S>
constexpr int64_t kSlicesOf = kMostSlices - 1;
template <>
constexpr int64_t kSlicesOf<float> = kMostSlices;

// Makes the row several rows. Returns false if an element is infinite or NaN.
template <class S>
bool slice_row(const Product& p, const RoundedSlice& slice, int32_t shift,
               const RoundedRows& rows) {
  const S* a = static_cast<const S*>(p.a.data) + slice.begin * p.a.column;
  bool is_finite = true;
  for (int64_t b = 0; b < rows.blocks; ++b) {
    Vector<float> values[kBlockVectors];
    load_block(a + b * kRoundedBlock * p.a.column, p.a.column, values);
    int32_t sums[kMostSlices];
    const float step = slice_block(values, kSlicesOf<S>, rows.pitch, rows.ints + b * kRoundedBlock,
                                   sums);
    is_finite = is_finite && step == step;
    const int32_t first = join_ints(sums[0], sums[1]),
                  others = kSlicesOf<S> == 3 ? sums[2] : join_ints(sums[2], sums[3]);
    constexpr float kFactor = kSlicesOf<S> == 3 ? 1.0f / kSliceSteps
                                                : 1.0f / (kSliceSteps * kSliceSteps);
    rows.steps[b] = step * (1.0f / kSliceSteps);
    rows.int_sums[b] = static_cast<float>(first) + static_cast<float>(others) * kFactor;
    rows.starts[b] = -shift * first;
    rows.starts[rows.blocks + b] = -shift * others;
  }
  return is_finite;
}

// Lays out the scratch memory of a product for `count` rows of `depth` elements.
inline RoundedRows lay_out_rows(const Product& p, int64_t count, int64_t depth) {
  auto* place = static_cast<unsigned char*>(p.scratch);
  const auto take = [&](int64_t bytes) {
    void* taken = place;
    place += (bytes + 63) / 64 * 64;
    return taken;
  };
  RoundedRows rows = {};
  rows.pitch = rounded_pitch(depth);
  rows.blocks = depth / kRoundedBlock;
  const int64_t all = count + kRoundedAtOnce - 1,
                numbers = all * rows.blocks * int64_t{sizeof(float)};
  rows.sums = static_cast<float*>(take(all * kRoundedPitch * int64_t{sizeof(float)}));
  rows.ints = static_cast<int8_t*>(take(all * rows.pitch));
  rows.steps = static_cast<float*>(take(numbers));
  rows.int_sums = static_cast<float*>(take(numbers));
  rows.starts = static_cast<int32_t*>(take(numbers));
  return rows;
}

template <class S>
bool run_rounded(const Product& p, const RoundedAdd& add, bool are_slices, const void*& ready) {
  const bool is_flipped = (p.b.format.dtype == HUSK_U8) != add.takes_unsigned;
  const int32_t shift = p.b.format.bits == 4 ? 8
                        : !is_flipped        ? 0
                        : add.takes_unsigned ? 128
                                             : -128;
  const int64_t count = are_slices ? kSlicesOf<S> : p.m, depth = rounded_depth(p.k);
  const bool is_one_slice = depth == p.k;
  for (int64_t j = 0; j < p.n; j += kRoundedColumns) {
    const int64_t columns = smaller(kRoundedColumns, p.n - j);
    float* sums = nullptr;
    for (int64_t d = 0; d < p.k; d += depth) {
      const RoundedSlice slice = {d, smaller(depth, p.k - d)};
      if (p.cancellation->ends(p.m * columns * slice.depth / 64)) return true;
      RoundedRows rows = lay_out_rows(p, count, slice.depth);
      rows.are_slices = are_slices;
      if (!is_one_slice || !ready || ready != p.a.data) {
        if (!are_slices)
          round_rows<S>(p, slice, shift, rows);
        else if (!slice_row<S>(p, slice, shift, rows))
          return false;
      }
      ready = is_one_slice ? p.a.data : nullptr;
      sums = rows.sums;
      if (d == 0)
        __builtin_memset(
            sums, 0,
            sizeof(float) * static_cast<size_t>((count + kRoundedAtOnce - 1) * kRoundedPitch));
      add.add(p, slice, p.b.packed.column + j, columns, count, rows);
    }
    store_sums<float, S>(p, sums, kRoundedPitch, 0, j, p.m, columns);
  }
  return true;
}

[[maybe_unused]] bool run_rounded_product(const Product& p, const RoundedAdd& add, bool are_slices,
                                          const void*& ready) {
  switch (p.dtype) {
    case HUSK_F16: return run_rounded<Half>(p, add, are_slices, ready);
    case HUSK_BF16: return run_rounded<BFloat16>(p, add, are_slices, ready);
    default: return run_rounded<float>(p, add, are_slices, ready);
  }
}

}  // namespace
}  // namespace husk::host
