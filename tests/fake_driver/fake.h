/* A libcuda.so.1 for tests: runs host shared objects where a GPU would run cubins, and aborts with a clear text at
 * every use that a real driver leaves undefined: dead handles, memory that pending work uses, bounds, no context.
 *
 * Put its folder into LD_LIBRARY_PATH. Work is queued and runs at synchronisation points only, in a random order that
 * streams and graph edges allow; a kernel behind a programmatic edge starts before its predecessor, on a thread of its
 * own, and stops at grid->wait until the predecessor is done.
 *
 * The settings can be given by the environment too: FAKE_CUDA_CAPABILITY=8.7, FAKE_CUDA_VERSION=12040,
 * FAKE_CUDA_DEVICES=0, FAKE_CUDA_SEED=7, FAKE_CUDA_EAGER=30. */
#ifndef HUSK_FAKE_DRIVER_H
#define HUSK_FAKE_DRIVER_H

#include <stdint.h>

#define FAKE_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* What a kernel of the fake driver sees. Its image is a shared object with, for each kernel NAME,
 *   extern "C" void NAME(const fake_grid* grid, void** params);             params[i] points at parameter i
 *   extern "C" const uint32_t NAME_param_sizes[];                           bytes of each, then FAKE_PARAMS_END
 *   extern "C" const uint32_t NAME_max_threads;                             optional, threads of a block; else 1024
 * A kernel runs once for the whole grid. */
typedef struct fake_grid {
  uint32_t grid[3];
  uint32_t block[3];
  void (*wait)(const struct fake_grid*);                /* griddepcontrol.wait */
  void (*launch_dependents)(const struct fake_grid*);   /* griddepcontrol.launch_dependents: does nothing here */
  void (*trap)(const struct fake_grid*, int32_t code);  /* the device is lost with this error, as by fake_break */
} fake_grid;
#define FAKE_PARAMS_END 0xFFFFFFFFu

/* Settings and counters as at the start; objects and queued work stay. */
FAKE_API void fake_reset(void);

/* The n-th driver call from now (1: the next one) comes back with `code` and does nothing, but that calls that release
 * something do that. 0: none. The second form counts the calls of one function only. */
FAKE_API void fake_fail_at(uint64_t n, int32_t code);
FAKE_API void fake_fail_call(const char* name, uint64_t n, int32_t code);
FAKE_API int32_t fake_failed(void);   /* 1 once that call has come */

/* Counters since the last reset: calls of a function (NULL: of all), launches of kernels that were not loaded before,
 * kernels that began before a predecessor of theirs ended. */
FAKE_API uint64_t fake_calls(const char* name);
FAKE_API uint64_t fake_lazy_loads(void);
FAKE_API uint64_t fake_early_starts(void);

/* What is there now: retained contexts, allocations, streams, events, libraries, graphs; pieces of queued work. */
FAKE_API uint64_t fake_live_objects(void);
FAKE_API uint64_t fake_pending(void);

/* The seed of every random choice, and how often (in 100 queueing calls) some work runs at once. */
FAKE_API void fake_schedule(uint64_t seed, uint32_t eager_percent);

FAKE_API void fake_set_capability(int32_t major, int32_t minor);
FAKE_API void fake_set_driver_version(int32_t version);   /* 12040: symbols of later versions are missing */
FAKE_API void fake_set_devices(int32_t count);            /* at most 8 */
FAKE_API void fake_set_memory(uint64_t bytes);            /* of all devices together */
/* An integrated device, and whether it takes host memory that may only be read. */
FAKE_API void fake_set_integrated(int32_t integrated, int32_t registers_read_only);
/* From now on whatever needs a context comes back with `code`, as after a kernel that went wrong; 0: mended. Calls that
 * release something still do that. */
FAKE_API void fake_break(int32_t code);
FAKE_API void fake_hide(const char* name);                /* cuGetProcAddress does not find it */
FAKE_API void fake_pin(const void* memory, uint64_t size);   /* host memory that copies read late; size 0: no longer */

/* For fakes of libraries over the driver, as cublas.cpp is. fake_enter counts a call as one of the driver's and gives the code
 * that it is to fail with, or 0; in_context: one must be current. fake_queue does too, and queues work in a stream as a launch does:
 * `work` gets a copy of the data, and all ranges must be live memory. fake_hold counts a library's objects among the live ones: 1 or -1. */
typedef struct fake_range {
  const void* address;
  uint64_t size;
} fake_range;
FAKE_API int32_t fake_enter(const char* name, int32_t in_context);
FAKE_API int32_t fake_queue(const char* name, void* stream, void (*work)(const void* data), const void* data, uint64_t size,
                            const fake_range* ranges, uint32_t count);
FAKE_API void fake_hold(int32_t change);

#ifdef __cplusplus
}
#endif
#endif
