/* Kernels for programs on the fake driver. One call runs the whole grid; blocks have 128 threads.
 */
#include <fake.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define KERNEL(name, ...)                                                      \
  EXPORT const uint32_t name##_param_sizes[] = {__VA_ARGS__, FAKE_PARAMS_END}; \
  EXPORT void name(const fake_grid* grid, void** params)
#define POINTER(type, i) (*(type**)params[i])
#define VALUE(type, i) (*(const type*)params[i])

/* As on a GPU, a grid that is too small leaves elements out, so a stale grid gives wrong results.
 */
static int32_t elements(const fake_grid* grid, int32_t n) {
  const int64_t threads = (int64_t)grid->grid[0] * grid->block[0];
  return threads < n ? (int32_t)threads : n;
}

/* y[i] = x[i] * t + 0.25 */
static void scale_elements(const fake_grid* grid, void** params) {
  const float* x = POINTER(const float, 0);
  float* y = POINTER(float, 1);
  for (int32_t i = 0; i < elements(grid, VALUE(int32_t, 3)); ++i)
    y[i] = x[i] * VALUE(float, 2) + 0.25f;
}

KERNEL(scale, 8, 8, 4, 4) {
  grid->wait(grid);
  scale_elements(grid, params);
}

/* The same function without a wait. */
KERNEL(scale_careless, 8, 8, 4, 4) { scale_elements(grid, params); }

/* y[i] = x[i] * 0.5 + k */
KERNEL(shift, 8, 8, 4, 4) {
  grid->wait(grid);
  const float* x = POINTER(const float, 0);
  float* y = POINTER(float, 1);
  for (int32_t i = 0; i < elements(grid, VALUE(int32_t, 3)); ++i)
    y[i] = x[i] * 0.5f + (float)VALUE(int32_t, 2);
}

/* y[i] = a[i] - b[i] */
KERNEL(join, 8, 8, 8, 4) {
  grid->wait(grid);
  const float *a = POINTER(const float, 0), *b = POINTER(const float, 1);
  float* y = POINTER(float, 2);
  for (int32_t i = 0; i < elements(grid, VALUE(int32_t, 3)); ++i) y[i] = a[i] - b[i];
}

/* *counter += 1 */
KERNEL(count, 8) {
  grid->wait(grid);
  ++*POINTER(int64_t, 0);
}

/* y[i] = x[i] * sum, and *sum += 1, which it reads before it waits */
KERNEL(scale_and_count, 8, 8, 8, 4) {
  const float sum = *POINTER(const float, 2);
  grid->wait(grid);
  const float* x = POINTER(const float, 0);
  float* y = POINTER(float, 1);
  for (int32_t i = 0; i < elements(grid, VALUE(int32_t, 3)); ++i) y[i] = x[i] * sum;
  *POINTER(float, 2) = sum + 1;
}

/* y[i] = x[index[i]]. If an index is not in 0..rows-1, *asserts is the number of the failed assert
 * and y[i] is x[0]. */
KERNEL(pick, 8, 8, 8, 8, 8, 8) {
  grid->wait(grid);
  for (int32_t i = 0; i < elements(grid, (int32_t)VALUE(int64_t, 4)); ++i) {
    const int64_t index = POINTER(const int64_t, 1)[i];
    const uint32_t failed = index >= VALUE(int64_t, 3) ? 1 : index < 0 ? 2 : 0;
    if (failed) *POINTER(uint32_t, 5) = failed;
    POINTER(float, 2)[i] = POINTER(const float, 0)[failed ? 0 : index];
  }
}

/* *out = number of elements of x above 0 */
KERNEL(positive, 8, 8, 4) {
  grid->wait(grid);
  int64_t positive_count = 0;
  for (int32_t i = 0; i < VALUE(int32_t, 2); ++i) positive_count += POINTER(const float, 0)[i] > 0;
  *POINTER(int64_t, 1) = positive_count;
}
