// Products whose first operand becomes ints of 8 bits: the kernels and their choice.
#pragma once

#include "core/scratch.h"
#include "cpu.h"
#include "linalg/product.h"

namespace husk::host {

// So many elements of a row that are adjacent have one step, the largest absolute value divided by
// 127, and are rounded to ints of it.
constexpr int64_t kRoundedBlock = 32;

// A single row may also become the sum of several rows of ints, each with steps of 1/128 of those
// of the one before: 3 for f16 and bf16, which lose up to 2^-21 of the largest element of a block,
// less than the rounding of a result, and 4 for f32, which lose up to 2^-28.
constexpr int64_t kMostSlices = 4;
constexpr int32_t kSliceSteps = 128;

constexpr int64_t kMostRoundedRows = 216;     // rows that are rounded at a time
constexpr int64_t kMostRoundedDepth = 16384;  // elements of a slice
constexpr int64_t kRoundedColumns = 256;      // columns of a block of sums
constexpr int64_t kRoundedAtOnce = 4;         // rows that are multiplied at once
// Sums have room for a panel that the matrix has not.
constexpr int64_t kRoundedPitch = kRoundedColumns + 16;

// A slice of the depth, a multiple of kRoundedBlock elements. Most products have one.
struct RoundedSlice {
  int64_t begin, depth;
};

// Rounded rows of a slice in scratch memory, of which the last few may be of zeros, so that
// kRoundedAtOnce divides their number; and the sums of a block of columns.
//
// Slices of one row have numbers together, those of row 0, which count steps of the second slice;
// `starts` has a row for the first two slices and one for the others. A pair of slices has the sum
// join_ints().
struct RoundedRows {
  bool are_slices;
  int64_t pitch;   // ints from row to row
  int64_t blocks;  // of a row
  int8_t* ints;
  // For each row and block: the step, the sum of its ints, and what sums in i32 begin with, which
  // is that sum times the difference of a code and the int that an instruction takes for it.
  float* steps;
  float* int_sums;
  int32_t* starts;
  float* sums;
};

// Kernels that are compiled for several sets of features use what is in the unnamed namespace.
namespace {

// The sum of a slice and of the next one, in steps of the next one.
template <class Ints>
constexpr Ints join_ints(Ints slice, Ints next) {
  return slice * kSliceSteps + next;
}

constexpr int64_t rounded_depth(int64_t k) { return k < kMostRoundedDepth ? k : kMostRoundedDepth; }
// Rows that lie 2^n bytes apart would share lines of the first-level cache.
constexpr int64_t rounded_pitch(int64_t depth) { return depth + 64; }
// The rows of a product that are rounded at a time: as many as there is scratch memory for.
constexpr int64_t rounded_rows_at_once(int64_t k) {
  constexpr int64_t kAlignment = 64 * 5;  // of the members of RoundedRows
  const int64_t depth = rounded_depth(k),
                row = rounded_pitch(depth) + depth / kRoundedBlock * int64_t{3 * sizeof(float)} +
                      kRoundedPitch * int64_t{sizeof(float)},
                fit = (kProductScratch - kAlignment) / row - (kRoundedAtOnce - 1),
                most = fit < kMostRoundedRows ? fit : kMostRoundedRows;
  return most / kRoundedAtOnce * kRoundedAtOnce;
}
}  // namespace

static_assert(rounded_rows_at_once(INT64_MAX) >= kMostSlices, "core/scratch.h");

// The functions that are compiled for the sets of features with instructions for such products.
struct RoundedAdd {
  // Adds `count` rows of a slice times up to kRoundedColumns columns, from column `column` of the
  // whole matrix on, to `rows.sums`.
  void (*add)(const Product& p, const RoundedSlice& slice, int64_t column, int64_t columns,
              int64_t count, const RoundedRows& rows);
  bool takes_unsigned;  // instructions take codes of 8 bits as unsigned ints, else as signed ones
};

// Kernels for a set of features, which the CPU must support. `run` computes a product with a packed
// second operand, whose codes are ints without a table of values and whose groups are multiples of
// kRoundedBlock. Its rows, rounded_rows_at_once() at most, are rounded; or, if `are_slices` is set,
// its only row becomes several rows, and if that has an infinity or NaN, `run` computes nothing and
// returns false. `ready` is null, or what an earlier call with the same scratch memory and the same
// rows left there, so that these become ints once.
struct RoundedKernels {
  bool (*run)(const Product& product, const RoundedAdd& add, bool are_slices, const void*& ready);
  RoundedAdd add;
  bool has_slices;  // slices are faster than products of f32
};

bool rounded_product_baseline(const Product& product, const RoundedAdd& add, bool are_slices,
                              const void*& ready);
bool rounded_product_avx2(const Product& product, const RoundedAdd& add, bool are_slices,
                          const void*& ready);
bool rounded_product_avx512(const Product& product, const RoundedAdd& add, bool are_slices,
                            const void*& ready);

#define HUSK_ROUNDED_ADD(name)                                                         \
  void rounded_add_##name(const Product& p, const RoundedSlice& slice, int64_t column, \
                          int64_t columns, int64_t count, const RoundedRows& rows)
HUSK_ROUNDED_ADD(baseline);
HUSK_ROUNDED_ADD(avx2);
HUSK_ROUNDED_ADD(avx_vnni);
HUSK_ROUNDED_ADD(avx512_vnni);
HUSK_ROUNDED_ADD(dotprod);
HUSK_ROUNDED_ADD(i8mm);

}  // namespace husk::host
