/* A libcuda.so.1 for tests. It runs host shared objects in place of cubins, and aborts with a clear
 * text at every use that a real driver leaves undefined: dead handles, memory that pending work
 * uses, accesses out of bounds, no current context.
 *
 * A program loads it if LD_LIBRARY_PATH names its folder. Work is queued and runs at
 * synchronisation points only, in a random order that streams and graph edges allow. A kernel after
 * a programmatic edge starts before its predecessor, on its own thread, and stops at grid->wait
 * until the predecessor is done.
 *
 * The environment can change the settings: FAKE_CUDA_CAPABILITY=8.7, FAKE_CUDA_VERSION=12040,
 * FAKE_CUDA_DEVICES=0, FAKE_CUDA_SEED=7, FAKE_CUDA_EAGER=30. */
#pragma once

#include <stdint.h>

#define FAKE_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* The grid that a kernel of the fake driver sees. A kernel runs once for the whole grid. An image
 * is a shared object with these symbols of C linkage for each kernel NAME:
 *
 * - void NAME(const fake_grid* grid, void** params): the kernel; params[i] points at parameter i.
 * - const uint32_t NAME_param_sizes[]: the bytes of each parameter, then FAKE_PARAMS_END.
 * - const uint32_t NAME_max_threads: the largest number of threads in a block; 1024 if it is
 *   missing. */
typedef struct fake_grid {
  uint32_t grid[3];
  uint32_t block[3];
  void (*wait)(const struct fake_grid*);               /* griddepcontrol.wait */
  void (*launch_dependents)(const struct fake_grid*);  /* no effect */
  void (*trap)(const struct fake_grid*, int32_t code); /* fake_break(code) */
} fake_grid;
#define FAKE_PARAMS_END 0xFFFFFFFFu

/* Resets settings and counters to their initial values; objects and queued work stay. */
FAKE_API void fake_reset(void);

/* The n-th driver call from now (1: the next one) returns `code` and has no effect, except that
 * functions that release something still do so. 0: no call fails. fake_fail_call counts the calls
 * of one function only. */
FAKE_API void fake_fail_at(uint64_t n, int32_t code);
FAKE_API void fake_fail_call(const char* name, uint64_t n, int32_t code);
FAKE_API int32_t fake_failed(void); /* 1 once the failing call was made */

/* Counters since the last reset: calls of a function (of all functions if `name` is NULL), launches
 * of kernels that were not loaded before, kernels that began before a predecessor ended. */
FAKE_API uint64_t fake_calls(const char* name);
FAKE_API uint64_t fake_lazy_loads(void);
FAKE_API uint64_t fake_early_starts(void);
/* How often the host has waited for a stream or an event, and nothing was queued any more when the
 * wait was over: until the host queues work again, a device would have nothing to do. */
FAKE_API uint64_t fake_idle_waits(void);

/* The numbers of live objects (retained contexts, allocations, streams, events, libraries, graphs)
 * and of queued tasks. */
FAKE_API uint64_t fake_live_objects(void);
FAKE_API uint64_t fake_pending(void);

/* Sets the seed of all random choices, and in how many of 100 queueing calls some work runs at
 * once. */
FAKE_API void fake_schedule(uint64_t seed, uint32_t eager_percent);

FAKE_API void fake_set_capability(int32_t major, int32_t minor);
FAKE_API void fake_set_driver_version(int32_t version); /* 12040: later symbols are missing */
FAKE_API void fake_set_devices(int32_t count);          /* at most 8 */
FAKE_API void fake_set_memory(uint64_t bytes);          /* of all devices together */
/* Makes the device integrated; `registers_read_only` is 1 if it registers read-only host memory. */
FAKE_API void fake_set_integrated(int32_t integrated, int32_t registers_read_only);
/* From now on every function that needs a context returns `code`, as after a kernel failed; 0 ends
 * this. Functions that release something still do so. */
FAKE_API void fake_break(int32_t code);
FAKE_API void fake_hide(const char* name); /* cuGetProcAddress does not find `name` */
/* Marks host memory as pinned, so that copies read it late; size 0 ends this. */
FAKE_API void fake_pin(const void* memory, uint64_t size);

/* The functions below are for fakes of libraries that use the driver, such as cublas.cpp. */
typedef struct fake_range {
  const void* address;
  uint64_t size;
} fake_range;
/* Counts a call as one of the driver. Returns the code with which the call is to fail, or 0. With
 * in_context a context must be current. */
FAKE_API int32_t fake_enter(const char* name, int32_t in_context);
/* Counts a call like fake_enter, and queues work in a stream as a launch does. `work` gets a copy
 * of the data; all ranges must be live memory. */
FAKE_API int32_t fake_queue(const char* name, void* stream, void (*work)(const void* data),
                            const void* data, uint64_t size, const fake_range* ranges,
                            uint32_t count);
/* The same for work that may be unable to end. `state` gets the data: 0: the work can run, 1: it
 * stays where it is, and a call that waits for it is a violation, since it would never return; 2:
 * it waits for what another thread does; -1: a graph may not launch it any more. */
FAKE_API int32_t fake_queue_endless(const char* name, void* stream, void (*work)(const void* data),
                                    int32_t (*state)(const void* data), const void* data,
                                    uint64_t size, const fake_range* ranges, uint32_t count);
/* How much work of libraries executable graphs have whose data `is_of` recognizes. */
FAKE_API uint64_t fake_captured_work(int32_t (*is_of)(const void* data, const void* user),
                                     const void* user);
/* Adds `change` (1 or -1) to the number of live objects. */
FAKE_API void fake_hold(int32_t change);

#ifdef __cplusplus
}
#endif
