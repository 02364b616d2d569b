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

// A copy of b in the layout of the kernels (product_pack).
struct PackedMatrix {
  const void* data;  // null if there is none
  int64_t column;    // the column of the copy with which b begins, a multiple of 64
};

// a is m x k, b is k x n, self, residual and out are m x n. The caller checks that
// product_knows(dtype) and that addresses are aligned to the dtype. Sums are in f32, for f64 in
// f64, and are rounded to the dtype once; ints and complex numbers are summed in their own type. If
// self.data is null, beta * self is left out, as residual is. Each element of out is written after
// the same elements of self and residual are read. a and b must not overlap out. Only floats have
// an activation, a residual or a packed b.
struct Product {
  husk_dtype dtype;
  int64_t m, n, k;
  MatrixView a, b, self, residual;
  PackedMatrix packed_b;
  Activation activation;
  void* out;
  int64_t out_row, out_column;
  double alpha, beta;
  Cancellation* cancellation;  // of the calling thread; out is undefined after it has ended
  void* scratch;               // kProductScratch bytes of the calling thread; floats need it
};

struct Device;

// True if product_run supports the dtype.
bool product_knows(int32_t dtype);

// Computes a product. Supports all dtypes except bool and f8, and returns false for those. Ints
// wrap around; alpha and beta are converted to ints.
bool product_run(const Device& device, const Product& product);

// A matrix of k x n that is to be packed as the second operand of products.
struct ProductPacking {
  husk_dtype dtype;
  int64_t k, n;
  MatrixView b;
  Cancellation* cancellation;  // the copy is undefined after it has ended
};

// Returns the bytes of the packed matrix, and writes it to `to` if that is not null. Returns 0 if
// products of this dtype and size do not use one.
int64_t product_pack(const Device& device, const ProductPacking& packing, void* to);

// The products of ints and complex numbers, for product_run.
bool product_run_plain(const Product& product);

// The products of floats. The same code is compiled for three instruction sets. The CPU must
// support the one that is called.
void product_run_baseline(const Product& product);
void product_run_avx2(const Product& product);
void product_run_avx512(const Product& product);
// Only bf16, with instructions for it.
void product_run_bf16(const Product& product);
// Only bf16, by tiles. Returns false, and computes nothing, if product_run_bf16 is faster because
// there are few rows or columns. The layout of a packed b is the same for both.
bool product_run_amx(const Product& product);

// The same for packing; the last one only for bf16.
int64_t product_pack_baseline(const ProductPacking& packing, void* to);
int64_t product_pack_avx2(const ProductPacking& packing, void* to);
int64_t product_pack_avx512(const ProductPacking& packing, void* to);
int64_t product_pack_bf16(const ProductPacking& packing, void* to);

}  // namespace husk::host
