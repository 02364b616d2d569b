// The matrix product that the kernels compute:
// out = activation(alpha * a b + beta * self) + residual.
#pragma once

#include <husk/types.h>

#include "core/activation.h"

namespace husk::host {

class Cancellation;

// A matrix whose element (i, j) lies at data[i * row + j * column]. Strides are in elements and may
// be negative.
struct MatrixView {
  const void* data;
  int64_t row;
  int64_t column;
};

// a is m x k, b is k x n, self, residual and out are m x n. The caller checks that
// product_knows(dtype) and that addresses are aligned to the dtype. Sums are in f32, for f64 in
// f64, and are rounded to the dtype once; ints and complex numbers are summed in their own type. If
// self.data is null, beta * self is left out, as residual is. Each element of out is written after
// the same elements of self and residual are read. a and b must not overlap out. Only floats have
// an activation or a residual.
struct Product {
  husk_dtype dtype;
  int64_t m, n, k;
  MatrixView a, b, self, residual;
  Activation activation;
  void* out;
  int64_t out_row, out_column;
  double alpha, beta;
  Cancellation* cancellation;  // of the calling thread; out is undefined after it has ended
};

struct Device;

// True if product_run supports the dtype.
bool product_knows(int32_t dtype);

// Computes a product. Supports all dtypes except bool and f8, and returns false for those. Ints
// wrap around; alpha and beta are converted to ints.
bool product_run(const Device& device, const Product& product);

// The products of ints and complex numbers, for product_run.
bool product_run_plain(const Product& product);

// The products of floats. The same code is compiled for three instruction sets. The CPU must
// support the one that is called.
void product_run_baseline(const Product& product);
void product_run_avx2(const Product& product);
void product_run_avx512(const Product& product);
// Only bf16, with instructions for it.
void product_run_bf16(const Product& product);

}  // namespace husk::host
