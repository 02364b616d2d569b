// "husk::matmul": a product of matrices by cuBLASLt.
//
// Arguments: two factors, [m, k] and [k, n] or batches of them; a bias, one row or as large as the result, or none; alpha and beta
// of alpha * product + beta * bias; 1 where f32 may be multiplied as tf32; the result; bytes of workspace.
#ifndef HUSK_CUDA_MATMUL_H
#define HUSK_CUDA_MATMUL_H

#include <pthread.h>

#include "device.h"
#include "product.h"

namespace husk::cuda {

// What the library chose for a product.
struct Plan {
  Product product;
  cublasLtMatmulAlgo_t algo;
  uint64_t workspace;   // bytes of it that the algorithm uses
  uint64_t used;        // larger is later; 0: nothing is kept here
};

// cuBLASLt on one device, with the plans that were chosen so far. Of more plans than there is room for those go that were not
// used longest: run chooses one without allocating.
struct Products {
  static constexpr uint32_t kSets = 128, kWays = 8;
  Cublas cublas;
  pthread_mutex_t mutex;   // guards what follows
  uint64_t clock;
  Plan plans[kSets][kWays];
};

// port.h; opens the library at the first call.
husk_status find_op(void* device, const char* name, husk_op* op, husk_error* error);

// The context is current. Null does nothing.
void close_products(const Device& device, Products* products);

}  // namespace husk::cuda
#endif
