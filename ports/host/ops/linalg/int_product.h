// The product of matrices of i8, summed in i32: the kernels and their choice.
#pragma once

#include "cpu.h"
#include "linalg/product.h"

namespace husk::host {

// out = a b, for a of m x k and b of k x n. Sums wrap around. Each function is compiled for a set
// of features, which the CPU must support.
struct IntProduct {
  int64_t m, n, k;
  MatrixView a, b;
  PackedMatrix packed;  // of b, by product_pack_codes
  int32_t* out;
  int64_t out_row, out_column;
  Cancellation* cancellation;  // of the calling thread; out is undefined after it has ended
  void* scratch;               // kProductScratch bytes of the calling thread
};

using IntProductRun = void (*)(const IntProduct& product);

void int_product_baseline(const IntProduct& product);
void int_product_avx2(const IntProduct& product);
void int_product_avx512(const IntProduct& product);
void int_product_avx_vnni(const IntProduct& product);
void int_product_avx512_vnni(const IntProduct& product);
void int_product_amx(const IntProduct& product);
void int_product_dotprod(const IntProduct& product);
void int_product_i8mm(const IntProduct& product);

}  // namespace husk::host
