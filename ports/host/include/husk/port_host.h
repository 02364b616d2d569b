/** @file
 * The port for the CPU on which the process runs. <husk/ops.h> declares the extern ops for it. C11
 * and C++17. */
#ifndef HUSK_PORT_HOST_H
#define HUSK_PORT_HOST_H

#include <husk/port.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Returns the port "host". Any thread may call.
 *
 * - Device: there is one, with index 0. Device memory is host memory from the device's allocator,
 *   aligned to 256 bytes.
 * - Streams: the port works inside the call. The work is done when upload, copy, fill or launch
 *   returns, every stream (also NULL) is accepted, and stream_wait returns at once.
 * - Threads: a kernel with enough work runs on the threads that `open` received, other kernels on
 *   the calling thread. Equal inputs and an equal number of threads give equal bits.
 * - Targets, from the lowest to the highest rank: "x86-64", "avx2" (with fma and f16c) and "avx512"
 *   (f, bw, dq, vl); on 64-bit Arm "aarch64".
 * - Tiles: on a CPU with AMX, `open` asks Linux for the permission of the process to use them. If
 * it is granted, an alternate signal stack needs AT_MINSIGSTKSZ bytes (sigaltstack fails
 * otherwise).
 * - Images are ELF shared objects; FORMAT.md describes them under "Images". The port loads them
 * from memory and never writes them to the disk. The grid, the block and the cluster of a kernel
 * are 1 and its shared memory is 0.
 * - Groups: engines of one machine, in processes or on threads, communicate by POSIX shared memory,
 *   256 KiB for each of at most 64 ranks; <husk/ops.h> has the operators. Numbers are added in the
 *   order of the ranks, so equal inputs give equal bits, on all ranks. The name of the memory goes
 *   when the first rank leaves; if all processes are killed at once, `/dev/shm/husk-*` stays.
 * - Checks: if a check inside a kernel fails, launch returns HUSK_KERNEL. */
HUSK_API const husk_port* husk_port_host(void);

/** Returns the port "host" without a loader of images, for programs that link their kernels. It
 * equals husk_port_host(), but refuses each image that is not code of the process already. A
 * program that calls this function, and not husk_port_host, gets neither dlopen nor memfd_create
 * from the static library. The port has no groups of ranks. Any thread may call.
 *
 * `huskc --emit=obj` writes the object file of such a program from an artifact that was exported
 * with `--linkable`. The process has a linked image once: engines that use it at the same time must
 * have the same husk_threads. */
HUSK_API const husk_port* husk_port_host_linked(void);

/** The largest number of threads of husk_host_threads_create. */
enum { HUSK_HOST_THREADS_MAX = 1024 };

/** Starts a pool of threads, for applications that have none of their own. Idle threads look for
 * work for 200 microseconds and then sleep. All signals are blocked on them, and each has a stack
 * of 1 MiB. Several threads (sessions) may call `parallel` at the same time: the calls run one
 * after another, each with all the threads that it asks for.
 * @param count number of threads, the calling thread included; 0: one for each CPU of the process
 * @param allocator memory for the pool; must outlive it; NULL: the C library's. Only this call and
 * husk_host_threads_release use it.
 * @param out receives the table for husk_engine_options or husk_port.open; it refers to the pool
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT; HUSK_OUT_OF_MEMORY, also if the system starts no more
 * threads. Any thread may call. */
HUSK_API husk_status husk_host_threads_create(uint32_t count, const husk_allocator* allocator,
                                              husk_threads* out, husk_error* error);

/** Ends the threads of a pool and frees it. Nothing may use the pool any more. The call writes
 * zeros to `threads`; NULL and a table of zeros are accepted. */
HUSK_API void husk_host_threads_release(husk_threads* threads);

#ifdef __cplusplus
}
#endif
#endif
