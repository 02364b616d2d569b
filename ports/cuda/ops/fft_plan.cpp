#include "ops/fft_plan.h"

#include "ops/group.h"

namespace husk::cuda {

void FftPlanCache::destroy(const Device& device, const Cufft& cufft) {
  plans_.each([&](FftPlan& plan) {
    husk_error ignored;
    // If the wait fails, the device is lost, and no work uses the plan.
    if (plan.last_used && drop(device, cufft, &plan, &ignored) != HUSK_OK)
      cufft.cufftDestroy(plan.plan);
    if (plan.used) device.driver.cuEventDestroy(plan.used);
  });
  pthread_mutex_destroy(&mutex);
}

husk_status FftPlanCache::get(const Device& device, const Cufft& cufft, const FftKey& key,
                              const char* thing, FftPlan** out, husk_error* error) {
  const uint64_t hash = hash_of(key);
  *out = plans_.find(key, hash);
  if (*out) return HUSK_OK;
  FftPlan* place = plans_.place(hash);
  if (place->last_used) HUSK_TRY(drop(device, cufft, place, error));
  HUSK_TRY(make(cufft, key, thing, place, error));
  plans_.keep(place, hash);
  *out = place;
  return HUSK_OK;
}

husk_status FftPlanCache::make(const Cufft& cufft, const FftKey& key, const char* thing,
                               FftPlan* out, husk_error* error) {
  long long sizes[3];
  for (int32_t d = 0; d < key.rank; ++d) sizes[d] = key.sizes[d];
  cufftHandle plan = -1;
  const char* call = "cufftCreate";
  cufftResult result = cufft.cufftCreate(&plan);
  if (result != CUFFT_SUCCESS) return cufft_fail(error, result, call, thing);
  call = "cufftSetAutoAllocation";
  result = cufft.cufftSetAutoAllocation(plan, 0);
  size_t work_bytes = 0;
  if (result == CUFFT_SUCCESS) {
    call = "cufftMakePlanMany64";
    // Without the embedding sizes the tensors are dense.
    result = cufft.cufftMakePlanMany64(plan, key.rank, sizes, nullptr, 1, 0, nullptr, 1, 0,
                                       static_cast<cufftType>(key.type), key.batch, &work_bytes);
  }
  if (result != CUFFT_SUCCESS) {
    cufft.cufftDestroy(plan);
    return cufft_fail(error, result, call, thing);
  }
  out->key = key;
  out->plan = plan;
  out->work_bytes = work_bytes;
  return HUSK_OK;
}

husk_status FftPlanCache::drop(const Device& device, const Cufft& cufft, FftPlan* plan,
                               husk_error* error) {
  if (plan->used) {
    husk_status of_group = HUSK_OK;
    const CUresult result = synchronize(device, {nullptr, plan->used}, &of_group, error);
    HUSK_TRY(of_group);
    if (result != CUDA_SUCCESS)
      return driver_fail(device.driver, error, result, "cuEventSynchronize",
                         "a plan of a Fourier transform");
  }
  cufft.cufftDestroy(plan->plan);
  plan->last_used = 0;
  return HUSK_OK;
}

}  // namespace husk::cuda
