// The matrix product that the kernels compute:
// out = activation(alpha * a b + beta * self) + residual.
#pragma once

#include <husk/types.h>

#include "core/activation.h"
#include "core/scratch.h"

namespace husk::host {

class Cancellation;

// A matrix whose element (i, j) lies at data[i * row + j * column]. Strides are in elements and may
// be negative.
struct MatrixView {
  const void* data;
  int64_t row;
  int64_t column;
};

// How the elements of a matrix are stored: their type in memory, and the bits of a code. 0:
// elements are numbers, not codes. Kernels are found by it.
struct Format {
  husk_dtype dtype;
  int32_t bits;
};

// Numbers that belong to a group of elements of a column each: number (g, j) lies at
// data[g * row + j * column].
struct GroupNumbers {
  const void* data;    // null if there are none
  const void* packed;  // a copy in the layout of the kernels; null if there is none
  int64_t row, column;
  husk_dtype dtype;
};

// The numbers that the codes of a quantized matrix stand for: code c at (i, j) is the number
// (value(c) - zeros(i / group, j)) * scales(i / group, j). The value of an int of 8 bits is the
// int, that of another code is values[c].
struct Quantization {
  int64_t group;  // divides the depth
  GroupNumbers scales, zeros;
  const float* values;  // 16 for codes of 4 bits, 256 for floats of 8 bits
};

// A copy of b in the layout of the kernels (product_pack).
struct PackedMatrix {
  const void* data;  // null if there is none
  int64_t column;    // the column of the whole matrix with which b begins, a multiple of 64
};

// The second operand, whose element (i, j) lies at data[i * row + j * column], as in a MatrixView.
// With codes of 4 bits, two that are adjacent along the depth share a byte, the first one in its
// low half: `row` is 1, and code (i, j) lies in byte data[i / 2 + j * column].
struct Operand {
  const void* data;
  int64_t row;
  int64_t column;
  Format format;
  PackedMatrix packed;
  const Quantization* quantization = nullptr;  // of the whole matrix; null if there are no codes
};

// a is m x k, b is k x n, self, residual and out are m x n and have the type of a, `dtype`. The
// caller checks that there are kernels for the formats (product_choice.h) and that addresses are
// aligned to the dtype. Sums are in f32, for f64 in f64, and are rounded to the dtype once; ints
// and complex numbers are summed in their own type. If self.data is null, beta * self is left out,
// as residual is. Each element of out is written after the same elements of self and residual are
// read. a and b must not overlap out. Only floats have an activation, a residual or a packed b.
struct Product {
  husk_dtype dtype;
  int64_t m, n, k;
  MatrixView a, self, residual;
  Operand b;
  Activation activation;
  void* out;
  int64_t out_row, out_column;
  double alpha, beta;
  Cancellation* cancellation;  // of the calling thread; out is undefined after it has ended
  void* scratch;               // kProductScratch bytes of the calling thread; floats need it
  // If not null, row r of a and of out is their row rows[r]. Only products with codes have it, of
  // at most kFewCodeRows rows, without self and residual.
  const int64_t* rows = nullptr;
};

// A matrix of k x n that is to be packed as the second operand of products whose first operand has
// the type `dtype`.
struct ProductPacking {
  husk_dtype dtype;
  int64_t k, n;
  Operand b;
  Cancellation* cancellation;  // the copy is undefined after it has ended
};

// The functions of the rows of ProductKernels. `run` returns false, and computes nothing, if other
// kernels are faster. It may transpose the product, so that nothing is copied for a small one. The
// CPU must support the set of features that is called.

// Products of ints, of complex numbers and of floats that no kernel knows.
bool product_run_plain(Product& product);

// Products of floats. The same code is compiled for three sets of features.
bool product_run_baseline(Product& product);
bool product_run_avx2(Product& product);
bool product_run_avx512(Product& product);
// Only bf16, with instructions for it. Returns false for one row or one column of a matrix that is
// not packed, because memory is slower than the instructions of f32 there.
bool product_run_bf16(Product& product);
// Only bf16, by tiles. Returns false if there are few rows or columns. The layout of a packed b is
// that of product_run_bf16.
bool product_run_amx(Product& product);

// Products of floats with codes. The same code is compiled for three sets of features. `pack`
// writes codes in a layout that is the same for all of them.
bool product_run_quantized_baseline(Product& product);
bool product_run_quantized_avx2(Product& product);
bool product_run_quantized_avx512(Product& product);
int64_t product_pack_codes(const ProductPacking& packing, void* to);
constexpr const char* kCodesLayout = "codes 1";

int64_t product_pack_baseline(const ProductPacking& packing, void* to);
int64_t product_pack_avx2(const ProductPacking& packing, void* to);
int64_t product_pack_avx512(const ProductPacking& packing, void* to);
int64_t product_pack_bf16(const ProductPacking& packing, void* to);

}  // namespace husk::host
