// A matrix product as the kernels take it: out = alpha * a b + beta * self.
#ifndef HUSK_HOST_PRODUCT_H
#define HUSK_HOST_PRODUCT_H

#include <husk/types.h>

namespace husk::host {

// Element (i, j) lies at data[i * row + j * column]; strides are in elements and of any sign.
struct MatrixView {
  const void* data;
  int64_t row;
  int64_t column;
};

// a is m x k, b is k x n; self and out are m x n. Checked by the caller: dtype is F16, BF16, F32 or F64, addresses are
// aligned to it. Sums are in f32, for F64 in f64, and rounded to the dtype once. A null self.data stands for beta = 0.
// Each element of out is written after the same element of self is read; a and b must not overlap out.
struct Product {
  husk_dtype dtype;
  int64_t m, n, k;
  MatrixView a, b, self;
  void* out;
  int64_t out_row, out_column;
  double alpha, beta;
};

struct Device;

// Whether product_run has a dtype.
bool product_knows(int32_t dtype);

// Any dtype but bool and f8; false for those. Ints wrap around, and are multiplied by alpha and beta as ints.
bool product_run(const Device& device, const Product& product);

// Ints and complex numbers, for product_run.
bool product_run_plain(const Product& product);

// The same code compiled for three instruction sets; the CPU must have the one that is called.
void product_run_baseline(const Product& product);
void product_run_avx2(const Product& product);
void product_run_avx512(const Product& product);

}  // namespace husk::host

#endif
