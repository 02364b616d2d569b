/* The port for the CPU that the process runs on, and its pack of extern ops. C11 and C++17. */
#ifndef HUSK_PORT_HOST_H
#define HUSK_PORT_HOST_H

#include <husk/op.h>
#include <husk/port.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The port "host": one device, index 0. It works on the calling thread, inside the call: when upload, copy, fill or
 * launch returns, the work is done, any stream (NULL too) will do, and stream_wait has nothing to wait for. A kernel
 * that reports a failed check makes launch itself fail, with HUSK_KERNEL. Device memory is host memory from the
 * device's allocator, aligned to 256 bytes.
 * Targets, from the worst fit to the best: "x86-64", "avx2" (with fma and f16c), "avx512" (f, bw, dq, vl); on 64-bit
 * Arm "aarch64". Images are ELF shared objects as FORMAT.md, "Images", describes; they are loaded from memory, never
 * from the disk. A kernel's grid, block and cluster are 1, its shared memory is 0.
 * Returns a constant; may be called from any thread. */
HUSK_API const husk_port* husk_port_host(void);

/* In libhusk_ops: the ops that compute on host memory: aten::mm.out, aten::addmm.out, aten::bmm.out, aten::baddbmm.out (f32, f64, and
 * f16, bf16 with sums in f32) and aten::copy_. Arguments in the order of the operator's schema:
 *   mm.out(self, mat2, out)                            bmm.out(self, mat2, out)
 *   addmm.out(self, mat1, mat2, beta, alpha, out)      baddbmm.out(self, batch1, batch2, beta, alpha, out)
 *   copy_(self, src [, non_blocking])                  self is what is written
 * Any strides are allowed. `self` of addmm and baddbmm broadcasts to `out` and may be it; other operands must not
 * overlap `out`. beta and alpha are ints or floats; with beta 0, `self` is not read, as in PyTorch.
 * husk_op_context.device is a device of this port. No op allocates; each needs up to 300 KB of stack.
 * Returns `*count` constant rows, for husk_engine_add_op. May be called from any thread. */
HUSK_API const husk_op* husk_host_ops(uint32_t* count);

#ifdef __cplusplus
}
#endif
#endif
