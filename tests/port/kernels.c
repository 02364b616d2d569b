/* The kernels of the suite. With HUSK_FAKE_ABI they have the calling convention of
 * tests/fake_driver, otherwise that of a host image (FORMAT.md, "Images"). kernels.ptx and
 * waits.ptx contain the same kernels for a GPU. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

#ifdef HUSK_FAKE_ABI
#include <fake.h>
#define KERNEL(name, ...)                                                      \
  EXPORT const uint32_t name##_param_sizes[] = {__VA_ARGS__, FAKE_PARAMS_END}; \
  EXPORT void name(const fake_grid* grid, void** params)
#define END (void)grid
/* One thread for each element: as on a GPU, a grid that is too small leaves elements out. */
#define COUNT(n) threads_of(grid, n)
#define WAIT grid->wait(grid)
#define GRID(i) grid->grid[i]
#define BLOCK(i) grid->block[i]

static int32_t threads_of(const fake_grid* grid, int32_t n) {
  const int64_t threads = (int64_t)grid->grid[0] * grid->block[0];
  return threads < n ? (int32_t)threads : n;
}
#else
#define KERNEL(name, ...) EXPORT int32_t name(void** params)
#define END return 0
#define COUNT(n) (n)
#define WAIT
#define GRID(i) 1
#define BLOCK(i) 1
#endif

#define POINTER(type, i) (*(type**)params[i])
#define INT(i) (*(const int32_t*)params[i])

/* out[i] = in[i] + value */
KERNEL(add_scalar, 8, 8, 4, 4) {
  int32_t* out = POINTER(int32_t, 0);
  const int32_t* in = POINTER(const int32_t, 1);
  for (int32_t i = 0; i < COUNT(INT(3)); ++i) out[i] = in[i] + INT(2);
  END;
}

/* out[i] = in[i] * factor, without and with a wait for the preceding kernels */
KERNEL(scale_careless, 8, 8, 4, 4) {
  int32_t* out = POINTER(int32_t, 0);
  const int32_t* in = POINTER(const int32_t, 1);
  for (int32_t i = 0; i < COUNT(INT(3)); ++i) out[i] = in[i] * INT(2);
  END;
}
KERNEL(scale_wait, 8, 8, 4, 4) {
  WAIT;
  int32_t* out = POINTER(int32_t, 0);
  const int32_t* in = POINTER(const int32_t, 1);
  for (int32_t i = 0; i < COUNT(INT(3)); ++i) out[i] = in[i] * INT(2);
  END;
}

/* out[i] = in[i] + sum of weights[0 .. count); the weights are read before the wait */
KERNEL(add_weights, 8, 8, 8, 4, 4) {
  const int32_t* weights = POINTER(const int32_t, 2);
  int32_t sum = 0;
  for (int32_t i = 0; i < INT(3); ++i) sum += weights[i];
  WAIT;
  int32_t* out = POINTER(int32_t, 0);
  const int32_t* in = POINTER(const int32_t, 1);
  for (int32_t i = 0; i < COUNT(INT(4)); ++i) out[i] = in[i] + sum;
  END;
}

/* Parameters of every width, written as 8-byte words: u8, u16, u32, u64 zero-extended, the bits of
 * f32 and f64. */
KERNEL(widths, 8, 1, 2, 4, 8, 4, 8) {
  uint64_t* out = POINTER(uint64_t, 0);
  memset(out, 0, 6 * sizeof *out);
  memcpy(&out[0], params[1], 1);
  memcpy(&out[1], params[2], 2);
  memcpy(&out[2], params[3], 4);
  memcpy(&out[3], params[4], 8);
  memcpy(&out[4], params[5], 4);
  memcpy(&out[5], params[6], 8);
  END;
}

/* Writes the grid and then the block that the kernel sees. */
KERNEL(shape, 8) {
  uint32_t* out = POINTER(uint32_t, 0);
  for (int i = 0; i < 3; ++i) {
    out[i] = GRID(i);
    out[3 + i] = BLOCK(i);
  }
  END;
}

/* Writes value to the last four of `bytes` bytes of dynamic shared memory and reads it back into
 * out[0]. */
KERNEL(shared_last, 8, 4, 4) {
  POINTER(int32_t, 0)[0] = INT(2);
  END;
}

/* The device is lost if `code` is not 0; otherwise out[0] = 1. */
#ifdef HUSK_FAKE_ABI
#define TRAP(code) grid->trap(grid, code)
#else
#define TRAP(code) (void)(code)
#endif
KERNEL(trap_if, 8, 4) {
  if (INT(1))
    TRAP(INT(1));
  else
    POINTER(int32_t, 0)[0] = 1;
  END;
}

/* A kernel that runs with at most 64 threads in a block. */
#ifdef HUSK_FAKE_ABI
EXPORT const uint32_t narrow_max_threads = 64;
#endif
KERNEL(narrow, 8) {
  POINTER(int32_t, 0)[0] = 64;
  END;
}
