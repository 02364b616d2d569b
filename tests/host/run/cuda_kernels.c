/* A kernel for the fake driver. */
#include "fake.h"

#define EXPORT __attribute__((visibility("default")))

/* y[i] = total[i] += x[i] for i < n. Parameters: x, total, y, n as (ptr, ptr, ptr, i32). */
EXPORT void accumulate(const fake_grid* grid, void** params);
extern EXPORT const uint32_t accumulate_param_sizes[];
const uint32_t accumulate_param_sizes[] = {8, 8, 8, 4, FAKE_PARAMS_END};

void accumulate(const fake_grid* grid, void** params) {
  const float* x = *(const float**)params[0];
  float *total = *(float**)params[1], *y = *(float**)params[2];
  (void)grid;
  for (int32_t i = 0; i < *(const int32_t*)params[3]; i++) y[i] = total[i] += x[i];
}
