// A matrix product as cuBLASLt wants it, made of the arguments of "husk::matmul".
#ifndef HUSK_CUDA_PRODUCT_H
#define HUSK_CUDA_PRODUCT_H

#include <husk/op.h>

#include "blas.h"

namespace husk::cuda {

// Of matrices that lie column by column: D[m, n] = A[m, k] B[k, n] + C[m, n] or + bias[m], `batch` times. All that decides
// which kernel is best, and nothing else; no byte of it is padding, for it is compared as bytes.
struct Product {
  int64_t m, n, k, batch;
  int64_t ld[4];        // of A, B, C, D: elements from one column to the next
  int64_t stride[4];    // elements from one of the batch to the next
  uint64_t workspace;   // bytes that there are
  uint16_t align[4];    // bytes, a power of two, at most 256; D's is its bias's too
  int32_t dtype;        // husk_dtype
  uint8_t transposed[2];   // A, B lie row by row
  uint8_t has_bias;
  uint8_t fast;         // f32: products in tf32
};

// One call of it.
struct Operands {
  Product product;
  const void *a, *b, *c, *bias;
  void *d, *workspace;
  double alpha, beta;
  uint64_t zeros;       // over nothing: so many bytes of the result are zeroed, and there is no product
  bool is_empty() const { return product.m == 0 || product.n == 0 || product.k == 0 || product.batch == 0; }
};

// HUSK_INVALID_ARGUMENT for other arguments than the op has, HUSK_UNSUPPORTED for memory that cuBLASLt cannot take as it lies.
[[nodiscard]] husk_status read_operands(const husk_op_arg* args, uint32_t count, Operands* out, husk_error* error);

// "f16 2 x [128 x 768] [768 x 64] with a bias", as PyTorch would say it.
struct ProductText {
  explicit ProductText(const husk_op_arg* args);
  char text[100];
};

}  // namespace husk::cuda
#endif
