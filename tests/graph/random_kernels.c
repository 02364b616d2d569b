/* The kernels of random programs for the fake driver. A kernel cannot return a status, so `refuse`
 * refuses nothing. */
#include <fake.h>

#include "../compiler/random/kernels.c"

#define EXPORT __attribute__((visibility("default")))
#define KERNEL(name, ...)                                                            \
  EXPORT const uint32_t fake_##name##_param_sizes[] = {__VA_ARGS__ FAKE_PARAMS_END}; \
  EXPORT void fake_##name(const fake_grid* grid, void** params) {                    \
    grid->wait(grid);                                                                \
    (void)name(params);                                                              \
  }

KERNEL(random_mix, 8, 8, 8, 8, 8, )
KERNEL(random_change, 8, 8, 8, )
KERNEL(random_absorb, 8, 8, 8, 8, )
KERNEL(random_sum, 8, 8, 8, )
KERNEL(random_record, 8, 1, 1, 2, 4, 8, 4, 8, )
KERNEL(random_refuse, 8, )
