// Plans of Fourier transforms, kept for later calls.
#pragma once

#include <pthread.h>

#include "device.h"
#include "ops/fourier.h"
#include "ops/plan_table.h"

namespace husk::cuda {

// Everything that a plan depends on. Keys are compared as bytes, so the struct has no padding.
struct FftKey {
  int32_t type;      // cufftType
  int32_t rank;      // the number of transformed dimensions
  int64_t sizes[3];  // those of the transformed dimensions on the real or the longer side
  int64_t batch;
};

struct FftPlan {
  FftKey key;
  cufftHandle plan;
  size_t work_bytes;
  uint64_t last_used;
  CUevent used;  // recorded after the last use; null if there was none
};

// The plans of one device. The use of a plan has to end before another one takes its place. A plan
// has one stream and one work area, so a caller holds `mutex` from the look-up until the transform
// is queued.
class FftPlanCache {
 public:
  // A cache begins as memory that is all zeros.
  void init() { pthread_mutex_init(&mutex, nullptr); }
  // The context is current.
  void destroy(const Device& device, const Cufft& cufft);

  // The plan for `key`, which is made at the first call. `thing` names the transform in errors.
  husk_status get(const Device& device, const Cufft& cufft, const FftKey& key, const char* thing,
                  FftPlan** out, husk_error* error);

  pthread_mutex_t mutex;

 private:
  husk_status make(const Cufft& cufft, const FftKey& key, const char* thing, FftPlan* out,
                   husk_error* error);
  // Destroys a plan after the work that uses it has ended.
  husk_status drop(const Device& device, const Cufft& cufft, FftPlan* plan, husk_error* error);

  PlanTable<FftPlan, 1, 64> plans_;
};

}  // namespace husk::cuda
