// The matrix product that a call of "husk::matmul" asks for, in the form that cuBLASLt takes.
#pragma once

#include <husk/op.h>

#include "ops/blas.h"

namespace husk::cuda {

// The husk_op.contract of husk::matmul.
constexpr char kMatmulContract[] = "a b bias alpha beta fast out:w workspace:w";

// Everything that decides which algorithm is best for D[m, n] = A[m, k] B[k, n] + C[m, n], or
// + bias[m], computed `batch` times on matrices that lie column by column. Keys are compared as
// bytes, so the struct has no padding.
struct MatmulKey {
  int64_t m, n, k, batch;
  int64_t ld[4];          // leading dimensions of A, B, C, D: elements from one column to the next
  int64_t stride[4];      // elements from one matrix of the batch to the next
  uint64_t workspace;     // bytes of the workspace that the algorithm may use
  uint16_t align[4];      // bytes, a power of two, at most 256; D's covers the bias
  int32_t dtype;          // husk_dtype
  uint8_t transposed[2];  // 1 if A or B lies row by row
  uint8_t has_bias;
  uint8_t fast;  // f32: 1 if the product may be computed in tf32
};

// The operands of one call.
struct Operands {
  MatmulKey key;
  const void *a, *b, *c, *bias;
  void *d, *workspace;
  double alpha, beta;
  uint64_t zeros;  // bytes of the result to zero if k is 0, when there is nothing to multiply
  bool is_empty() const { return key.m == 0 || key.n == 0 || key.k == 0 || key.batch == 0; }
};

// Reads the arguments of a call. HUSK_INVALID_ARGUMENT if they are not those of the op,
// HUSK_UNSUPPORTED if cuBLASLt cannot take the memory layout of a tensor.
[[nodiscard]] husk_status read_operands(const husk_op_arg* args, uint32_t count, Operands* out,
                                        husk_error* error);

// Names a product in error texts: "husk::matmul f16 2 x [128, 768] [768, 64] and a bias".
struct MatmulText {
  explicit MatmulText(const husk_op_arg* args);
  char text[100];
};

}  // namespace husk::cuda
