/** @file
 * libhusk_ops: extern ops that compute on host memory, for engines of the port "host". The library
 * calls husk_engine_add_op of libhusk, so a program links both. C11 and C++17. */
#ifndef HUSK_OPS_H
#define HUSK_OPS_H

#include <husk/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Registers all ops of the library with an engine. Call it before programs are opened.
 * @param engine an engine of the port "host"; any thread may call
 * @param error may be NULL
 * @return HUSK_OK; HUSK_INVALID_ARGUMENT if `engine` is NULL; HUSK_OUT_OF_MEMORY, after which some
 * of the ops are registered */
HUSK_API husk_status husk_ops_add_all(husk_engine* engine, husk_error* error);

/** Returns the ops of the library, for programs that register some of them only. ports/host/ops has
 * one file for each sort of op; the file library/pack.def lists all ops with their arguments: the
 * operator's arguments in the order of its schema, then the outputs, then numbers that the op
 * returns.
 *
 * - An operator whose result has a size that depends on the data is two ops: "NAME:sizes" returns
 *   the size, and "NAME" refuses an output of another size.
 * - An operator that returns a view in PyTorch (permute, view_as_real, ...) copies here: its output
 *   has memory of its own.
 * - A complex scalar is two floats: the real part and the imaginary part.
 * - The last argument of a random op, after the outputs, is the state of the generator: a tensor of
 *   HUSK_HOST_GENERATOR_BYTES bytes, which the op reads and writes.
 *
 * Tensors may have any strides, and up to 16 dimensions. Outputs must not overlap inputs, with two
 * exceptions: an operator that writes in place, and `self` of addmm and baddbmm, which may be
 * `out`. Each op has a contract (husk_op.contract), so the runtime refuses programs that break this
 * rule. Ops check indices and return HUSK_INVALID_INPUT for an index out of range; elements that
 * were written before remain written.
 *
 * husk_op_context.user must be husk_op.user of the op, and husk_op_context.device a device of the
 * port "host". Matrix products, convolutions and attention work on husk_op_context.threads; results
 * do not depend on the number of threads.
 *
 * No op allocates memory. An op needs up to 64 KB of stack on each thread, and up to 800 KB of
 * scratch memory, as husk_op.scratch_bytes says. An op returns HUSK_UNSUPPORTED if its work does
 * not fit there: unique_dim of more than 65536 slices, attention with heads of more than 256
 * elements, an inverse of more than 32768 rows, an LSTM of more than 12288 elements.
 * @param count receives the number of ops
 * @return `*count` constant ops; the stride of the array is the first op's struct_size. Any thread
 * may call. */
HUSK_API const husk_op* husk_host_ops(uint32_t* count);

/** Declares one op of libhusk_ops.a, for static programs that are to contain no other ops:
 *
 * @code
 * HUSK_HOST_OP_DECLARE(husk__linear);
 * status = husk_engine_add_op(engine, &husk_host_op_husk__linear, &error);
 * @endcode
 *
 * The argument is the name of the op with `_` for each character that is no letter or digit;
 * aten::mm.out is aten__mm_out. The op equals the one of husk_host_ops. Link with
 * `-Wl,--gc-sections`. The shared library does not have these symbols. */
#define HUSK_HOST_OP_DECLARE(name) extern const husk_op husk_host_op_##name

/** The size in bytes of the random ops' generator. The ops generate the numbers of PyTorch's CPU
 * generator, bit for bit, with these differences: f32 normal numbers in tensors of 16 and more
 * elements differ by up to 1e-6; f16 and bf16 numbers are those of PyTorch 2.11, while 2.15 rounds
 * f32 numbers; and on CPUs of Intel PyTorch takes bernoulli_ and exponential_ from MKL.
 *
 * A program keeps the generator as the state "husk.generator", of any dtype, aligned to 8 bytes. A
 * generator of zeros seeds itself with PyTorch's default seed, 67280421310721. The layout in the
 * host's byte order is:
 *
 * - u64: the seed
 * - u32: 1 if the generator is seeded
 * - u32: the index of the next word; 624 if all words are used
 * - u32: 1 if an f32 normal number is left over
 * - u32: 1 if an f64 normal number is left over
 * - f32: the f32 normal number
 * - u32: unused
 * - f64: the f64 normal number
 * - u32[624]: the words of the Mersenne Twister
 *
 * Programs of CUDA targets use the seed and a u64 in the place of the f32 normal number and the
 * unused word, which counts their draws and is 0 after seeding. A generator of zeros has the seed 0
 * there. */
#define HUSK_HOST_GENERATOR_BYTES 2536

/** Writes a seeded generator, in the state in which torch.manual_seed(seed) leaves PyTorch's.
 * husk_session_state_set takes the bytes.
 * @param seed the seed
 * @param state HUSK_HOST_GENERATOR_BYTES bytes of any alignment */
HUSK_API void husk_host_generator_seed(uint64_t seed, void* state);

#ifdef __cplusplus
}
#endif
#endif
