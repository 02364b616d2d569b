// Plans of Fourier transforms, kept for later calls.
#pragma once

#include <pthread.h>

#include "device.h"
#include "ops/fourier.h"

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
  uint64_t last_used;  // the cache's clock at the last use; 0 if this entry is free
  CUevent used;        // recorded after the last use; null if there was none
};

// The plans of one device, a table of fixed size. A full table replaces the plan whose last use is
// oldest, which may have to end first. A plan has one stream and one work area, so a caller holds
// `mutex` from the look-up until the transform is queued.
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
  static constexpr uint32_t kPlans = 64;

  husk_status make(const Cufft& cufft, const FftKey& key, const char* thing, FftPlan* out,
                   husk_error* error);
  // Destroys a plan after the work that uses it has ended.
  husk_status drop(const Device& device, const Cufft& cufft, FftPlan* plan, husk_error* error);

  uint64_t clock_;
  FftPlan plans_[kPlans];
};

}  // namespace husk::cuda
