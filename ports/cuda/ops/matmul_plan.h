// Plans of matrix products: the algorithm that cuBLASLt chose for a product, kept for later calls.
#pragma once

#include <pthread.h>

#include "ops/matmul_operands.h"

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
  uint64_t last_used;  // the cache's clock at the last use; 0 if this entry is free
};

// The plans of one device, a set-associative table of fixed size: a run at a shape that was not
// prepared chooses a plan without allocating. A full set drops the plan whose last use is oldest.
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
  static constexpr uint32_t kSets = 128, kWays = 8;

  MatmulPlan* set_of(const MatmulKey& key);
  bool find(const MatmulKey& key, MatmulPlan* out);
  void keep(const MatmulPlan& plan);

  pthread_mutex_t mutex_;  // guards the members below
  uint64_t clock_;
  MatmulPlan plans_[kSets][kWays];
};

}  // namespace husk::cuda
