/* The port over the CUDA driver API. libcuda.so.1 is opened by `open`, never linked: a program that holds this port
 * starts on a machine without a GPU, and `open` says what is missing (HUSK_UNSUPPORTED).
 *
 * Needs a driver of CUDA 12.0 or later. From 12.3 on programmatic edges of graphs are what they say, before that full
 * edges; from 12.4 on parameters of kernels are checked against the image, and kernels are loaded before their first
 * launch.
 *
 * Device memory, streams and kernels belong to the device's primary context, which is retained while the device is
 * open and current only inside the port's functions. Pointers of other libraries on that context (PyTorch, the CUDA
 * runtime) and their streams may be given to every function. */
#ifndef HUSK_PORT_CUDA_H
#define HUSK_PORT_CUDA_H

#include <husk/port.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What `user` of a copy of the table may point to, read when a device is opened; zero is every option's default:
 *   husk_cuda_options options = {sizeof options, 1};
 *   husk_port port = *husk_port_cuda();  port.user = &options;
 * The copy must outlive the engine. */
typedef struct husk_cuda_options {
  uint32_t struct_size;
  /* 1: debug; each launch, copy, fill and graph waits until its work is done, and says what went wrong in it. */
  int32_t check_each;
  /* A library with nvtxRangePushA and nvtxRangePop, as "libnvtx3interop.so.1" and, to CUDA 12, "libnvToolsExt.so.1" are:
   * launches, graphs and loads are ranges of a profile on the host's side. Refused where it cannot be opened. NULL: none. */
  const char* nvtx;
  /* Large loads go through pinned memory, which is freed behind each: bytes of one buffer, 0 is 2 MiB; threads, 0 is six, at
   * most 16; buffers for each of them, 0 is two, at most four. The caller's threads of husk_engine_options are taken where it
   * gave any. Up to 64 buffers' bytes go without. */
  uint64_t staging_bytes;
  int32_t load_threads;
  int32_t load_buffers;
  /* The library that programs exported with libraries call: the path of a libcublasLt of CUDA 12 or later. NULL: the newest that
   * the dynamic linker finds and the driver can run. Opened where the first such program is, and nowhere else. */
  const char* cublas;
  /* Kernels are loaded when a program is opened, once a device for all of its sessions. 1: what the driver puts off to the first
   * launch of each is done then too, so opening takes longer and the first run of a launch list is like later ones. */
  int32_t prefetch;
  /* 1: debug; memory is filled with 0xFF before it is given back to the driver, so that whoever still reads it finds NaNs. The
   * arena between runs: husk_session_options.fill_freed. */
  int32_t fill_freed;
} husk_cuda_options;

/* The table of the port; static, the same at every call, from any thread. Never NULL, also without a driver. */
HUSK_API const husk_port* husk_port_cuda(void);

#ifdef __cplusplus
}
#endif
#endif
