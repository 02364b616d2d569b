/* The port for the CPU that the process runs on, and its pack of extern ops. C11 and C++17. */
#ifndef HUSK_PORT_HOST_H
#define HUSK_PORT_HOST_H

#include <husk/op.h>
#include <husk/port.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The port "host": one device, index 0. It works inside the call: when upload, copy, fill or launch returns, the work is
 * done, any stream (NULL too) will do, and stream_wait has nothing to wait for. Kernels run on the threads that `open`
 * was given, where there is enough to do, else, and without any, on the calling thread. With as many threads a kernel
 * adds up in the same order each time: equal inputs give equal bits. A kernel that reports a failed check makes launch
 * itself fail, with HUSK_KERNEL. Device memory is host memory from the device's allocator, aligned to 256 bytes.
 * Targets, from the worst fit to the best: "x86-64", "avx2" (with fma and f16c), "avx512" (f, bw, dq, vl); on 64-bit
 * Arm "aarch64". Images are ELF shared objects as FORMAT.md, "Images", describes; they are loaded from memory, never
 * from the disk. A kernel's grid, block and cluster are 1, its shared memory is 0.
 * Returns a constant; may be called from any thread. */
HUSK_API const husk_port* husk_port_host(void);

/* Ready threads, for applications that have none to give: `count` of them, the calling one included (0: as many as the
 * process has CPUs; at most HUSK_HOST_THREADS_MAX). `out` is for husk_engine_options or husk_port.open and holds on to
 * the pool. Idle workers look for work for some microseconds, then sleep; they have all signals blocked. `parallel` may
 * be called from several threads (sessions) at once: such calls queue, one region runs at a time, with all the threads
 * that it wants. `allocator` (NULL: the C library's) must outlive the pool; it is used here and in release only.
 * Errors: HUSK_INVALID_ARGUMENT, HUSK_OUT_OF_MEMORY (also for threads that the system does not start); `error` may be
 * NULL. May be called from any thread. */
enum { HUSK_HOST_THREADS_MAX = 1024 };
HUSK_API husk_status husk_host_threads_create(uint32_t count, const husk_allocator* allocator, husk_threads* out,
                                              husk_error* error);

/* Ends the workers and frees the pool; nothing may use it any more. Writes zeros to `threads`; NULL and zeros do
 * nothing. */
HUSK_API void husk_host_threads_release(husk_threads* threads);

/* In libhusk_ops: the ops that compute on host memory, each a row of ports/host/ops/pack.def, which lists them
 * with their arguments: those of the operator's schema in its order, then outputs, then numbers that the op gives.
 * - Operators whose result the data sizes are two ops: "NAME:sizes" gives that one size, "NAME" refuses an output
 *   of another.
 * - Operators that return views in PyTorch (permute, view_as_real, ...) copy here: their output is memory of its
 *   own.
 * - A complex scalar is two floats: its real and its imaginary part.
 * - Random ops take the generator's state as their last argument, behind the outputs: a tensor of
 *   HUSK_HOST_GENERATOR_BYTES bytes, read and written.
 * Any strides, ranks up to 16. Outputs must not overlap inputs, unless the operator writes in place; but `self` of
 * addmm and baddbmm may be `out`. Indices are checked: one that is out of range gives HUSK_INVALID_INPUT; what was
 * written before it was found stays.
 * husk_op_context.user must be the row's `user`, .device a device of this port. Products, convolutions and
 * attention work on .threads; their results do not depend on how many there are. No op allocates: each needs up to
 * 700 KB of stack, on each thread. What that does not hold is refused with HUSK_UNSUPPORTED: Fourier transforms of
 * more than 6144 points that are no power of 2, unique_dim of more than 65536 slices, attention with heads of more
 * than 256.
 * Returns `*count` constant rows, for husk_engine_add_op. May be called from any thread. */
HUSK_API const husk_op* husk_host_ops(uint32_t* count);

/* The state of the random ops' generator, which gives the numbers of PyTorch's CPU generator: bit for bit, but
 * normal numbers of f32 in tensors of 16 and more elements differ by up to 1e-6, f16 and bf16 numbers are those of
 * PyTorch 2.11 (2.15 rounds f32 ones), and on Intel's CPUs PyTorch takes bernoulli_ and exponential_ from MKL. A
 * program keeps it as its state "husk.generator", of any dtype, aligned to 8 bytes. All zeros: it seeds itself
 * with PyTorch's default seed, 67280421310721.
 * Layout, in the host's byte order: u64 seed, u32 whether it is seeded, u32 place in the words (624: used up), u32
 * whether an f32 normal number is left over, u32 whether an f64 one is, f32 that number, u32 unused, f64 that
 * number, u32[624] the words of the Mersenne Twister. */
#define HUSK_HOST_GENERATOR_BYTES 2536

/* Writes the state of a freshly seeded generator, as torch.manual_seed(seed) leaves PyTorch's. `state` has
 * HUSK_HOST_GENERATOR_BYTES bytes of any alignment; it is what husk_session_state_set then takes. In libhusk_ops. */
HUSK_API void husk_host_generator_seed(uint64_t seed, void* state);

#ifdef __cplusplus
}
#endif
#endif
