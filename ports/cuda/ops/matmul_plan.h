// Plans of matrix products: the algorithm that cuBLASLt chose for a product, kept for later calls.
#pragma once

#include <pthread.h>

#include "ops/matmul_operands.h"
#include "ops/plan_table.h"

namespace husk::cuda {

// cuBLASLt's description of a product. Written for each call, on the stack: writing takes
// less time than looking up and guarding a kept description.
struct LtDescriptors {
  Descriptor desc, layouts[4];  // layouts of A, B, C, D

  cublasStatus_t write(const Cublas& cublas, const Operands& operands);
};

struct MatmulPlan {
  MatmulKey key;
  cublasLtMatmulAlgo_t algo;
  uint64_t workspace;  // bytes of the workspace that the algorithm uses
  uint64_t last_used;
};

// The plans of one device.
class MatmulPlanCache {
 public:
  // A cache begins as memory that is all zeros.
  void init() { pthread_mutex_init(&mutex_, nullptr); }
  void destroy() { pthread_mutex_destroy(&mutex_); }

  // Returns the plan for `key`, asking cuBLASLt for one at the first call. Two threads that miss
  // at the same time both ask. `args` names the product in errors.
  husk_status get(const Cublas& cublas, const MatmulKey& key, LtDescriptors* descriptors,
                  const husk_op_arg* args, MatmulPlan* out, husk_error* error);

 private:
  pthread_mutex_t mutex_;  // guards the plans
  PlanTable<MatmulPlan, 128, 8> plans_;
};

}  // namespace husk::cuda
