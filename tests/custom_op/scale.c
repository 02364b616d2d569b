/* The kernel of examples/custom-op-cuda/scale.cu for the fake driver. */
#include <fake.h>

#define EXPORT __attribute__((visibility("default")))

/* y[i] = factor * x[i] for i < n. Parameters: x, factor, y, n as (ptr, f32, ptr, i32). */
EXPORT void scale(const fake_grid* grid, void** params);
extern EXPORT const uint32_t scale_param_sizes[];
const uint32_t scale_param_sizes[] = {8, 4, 8, 4, FAKE_PARAMS_END};

void scale(const fake_grid* grid, void** params) {
  const float* x = *(const float**)params[0];
  float factor = *(const float*)params[1], *y = *(float**)params[2];
  const int32_t threads = (int32_t)(grid->grid[0] * grid->block[0]), n = *(const int32_t*)params[3];
  for (int32_t i = 0; i < n && i < threads; i++) y[i] = factor * x[i];
}
