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

// How the elements of a matrix are stored: their type in memory, and how many of them along the
// depth share a scale. 0: each element is a number by itself. Kernels are found by it.
struct Format {
  husk_dtype dtype;
  int32_t group;
};

// A copy of b in the layout of the kernels (product_pack).
struct PackedMatrix {
  const void* data;  // null if there is none
  int64_t column;    // the column of the copy with which b begins, a multiple of 64
};

// The second operand, whose element (i, j) lies at data[i * row + j * column], as in a MatrixView.
struct Operand {
  const void* data;
  int64_t row;
  int64_t column;
  Format format;
  PackedMatrix packed;
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

int64_t product_pack_baseline(const ProductPacking& packing, void* to);
int64_t product_pack_avx2(const ProductPacking& packing, void* to);
int64_t product_pack_avx512(const ProductPacking& packing, void* to);
int64_t product_pack_bf16(const ProductPacking& packing, void* to);

}  // namespace husk::host
