// Plans of convolutions: the engine that cuDNN chose for a convolution, kept for later calls.
#pragma once

#include <pthread.h>

#include "ops/convolution_operands.h"

namespace husk::cuda {

struct ConvolutionPlan {
  ConvolutionKey key;
  uint64_t last_used;  // the cache's clock at the last use; 0 if this entry is free
  uint64_t workspace;  // bytes of the workspace that the engine uses
  // cuDNN's descriptors: the plan, and the configuration that it was made of.
  cudnnBackendDescriptor_t plan, config;
};

// The plans of one device and their execution. The table has a fixed size; a new plan replaces the
// one whose last use is oldest. One lock guards everything: a handle of cuDNN has one stream, which
// each call sets.
class ConvolutionPlanCache {
 public:
  // A cache begins as memory that is all zeros.
  void init() { pthread_mutex_init(&mutex_, nullptr); }
  void destroy(const Cudnn& cudnn);

  // Has a plan made for the operands if there is none. `args` names the convolution in errors.
  husk_status prepare(const Cudnn& cudnn, const ConvolutionOperands& operands,
                      const husk_op_arg* args, husk_error* error);
  // Enqueues the convolution, with a plan that it makes if there is none.
  husk_status execute(const Cudnn& cudnn, const ConvolutionOperands& operands, CUstream stream,
                      const husk_op_arg* args, husk_error* error);

 private:
  static constexpr uint32_t kPlans = 256;

  // The lock is held.
  husk_status get(const Cudnn& cudnn, const ConvolutionKey& key, const husk_op_arg* args,
                  const ConvolutionPlan** out, husk_error* error);

  pthread_mutex_t mutex_;  // guards the members below, and the handle
  uint64_t clock_;
  uint64_t hashes_[kPlans];  // of the keys, side by side, so that a search reads little memory
  ConvolutionPlan plans_[kPlans];
};

}  // namespace husk::cuda
