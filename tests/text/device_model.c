/* The kernels of language_model.c in the form that the fake driver runs. One that returns an error
 * stops the device, as a trap does. */
#include <fake.h>

#include "language_model.c"

#define KERNEL(name, ...)                                                        \
  const uint32_t device_##name##_param_sizes[] = {__VA_ARGS__, FAKE_PARAMS_END}; \
  void device_##name(const fake_grid* grid, void** params) {                     \
    if (name(params)) grid->trap(grid, 719); /* CUDA_ERROR_LAUNCH_FAILED */      \
  }
#define SIX 8, 8, 8, 8, 8, 8

KERNEL(prefill, SIX, 8, 8)
KERNEL(prefill_logged, SIX, 8, 8)
KERNEL(prefill_paged, SIX, 8, 8, 8)
KERNEL(prefill_held_paged, SIX, 8, 8, 8, 8)
KERNEL(decode, SIX, 8)
KERNEL(decode_logged, SIX, 8)
KERNEL(decode_paged, SIX, 8, 8)
KERNEL(decode_held_paged, SIX, 8, 8, 8)
KERNEL(decode_single, SIX, 8, 8)
KERNEL(decode_logged_single, SIX, 8, 8)
KERNEL(decode_paged_single, SIX, 8, 8, 8)
KERNEL(decode_held_paged_single, SIX, 8, 8, 8, 8)
KERNEL(verify, SIX, 8, 8)
KERNEL(verify_paged, SIX, 8, 8, 8)
KERNEL(copy, SIX)
KERNEL(copy_logged, SIX)
KERNEL(copy_paged, 8, 8, 8, 8)
KERNEL(copy_rows_paged, SIX, 8, 8)
KERNEL(adjust, SIX, 8, 8, 8, 8, 8)
KERNEL(rank, SIX)
KERNEL(sample, SIX, 8, 8, 8, 8)
KERNEL(sample_many, SIX, 8, 8, 8, 8)
KERNEL(sample_few, SIX, 8, 8, 8, 8)
