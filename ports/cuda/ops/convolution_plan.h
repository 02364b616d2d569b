// Plans of convolutions: the engine that cuDNN chose for a convolution, kept for later calls.
#pragma once

#include <pthread.h>

#include "ops/convolution_operands.h"
#include "ops/plan_table.h"

namespace husk::cuda {

struct ConvolutionPlan {
  ConvolutionKey key;
  uint64_t last_used;
  uint64_t workspace;  // bytes of the workspace that the engine uses
  // cuDNN's descriptors: the plan, and the configuration that it was made of.
  cudnnBackendDescriptor_t plan, config;
};

// The plans of one device and their execution. One lock guards everything: a handle of cuDNN has
// one stream, which each call sets.
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
  // The lock is held.
  husk_status get(const Cudnn& cudnn, const ConvolutionKey& key, const husk_op_arg* args,
                  const ConvolutionPlan** out, husk_error* error);

  pthread_mutex_t mutex_;  // guards the plans and the handle
  PlanTable<ConvolutionPlan, 1, 256> plans_;
};

}  // namespace husk::cuda
