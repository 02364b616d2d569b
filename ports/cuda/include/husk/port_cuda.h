/** @file
 * The port for NVIDIA GPUs, by the CUDA driver API. `open` loads libcuda.so.1 at run time, so a
 * program with this port also starts on a machine without a GPU; there `open` returns
 * HUSK_UNSUPPORTED and names what is missing.
 *
 * The driver must support CUDA 12.0 or later. Before CUDA 12.3 programmatic edges of graphs become
 * full edges. From CUDA 12.4 on the port compares the parameters of kernels with those in the
 * image, and kernels are loaded before their first launch.
 *
 * Device memory, streams and kernels belong to the device's primary context. The port retains it
 * while the device is open and makes it current only inside its functions. Pointers and streams of
 * other libraries on that context (PyTorch, the CUDA runtime) are valid arguments of every
 * function. C11 and C++17. */
#ifndef HUSK_PORT_CUDA_H
#define HUSK_PORT_CUDA_H

#include <husk/port.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Options of the port. The application copies the port's table and sets `user` to the options; the
 * copy and the options must outlive the engine. The port reads the options when it opens a device.
 * Minimum size: through `check_each`.
 *
 * @code
 * husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
 * options.check_each = 1;
 * husk_port port = *husk_port_cuda();
 * port.user = &options;
 * @endcode
 */
typedef struct husk_cuda_options {
  uint32_t struct_size; /**< The size of this struct, set by whoever provides it. */
  /** 1: for debugging, each launch, copy, fill and graph waits until its work is done, and reports
   * a failure of that work. */
  int32_t check_each;
  /** The path of a library with nvtxRangePushA and nvtxRangePop, such as "libnvtx3interop.so.1" or,
   * up to CUDA 12, "libnvToolsExt.so.1". Launches, graphs and uploads then appear as ranges of the
   * host in profiles. `open` fails if the library cannot be opened. NULL: no ranges. */
  const char* nvtx;
  /** The size in bytes of one staging buffer of large uploads; 0: 2 MiB. Large uploads go through
   * pinned memory, which is freed after each; uploads of up to 64 buffers' size do not. */
  uint64_t staging_bytes;
  /** The number of threads of large uploads, at most 16; 0: six. The threads of husk_engine_options
   * are used if there are any. */
  int32_t load_threads;
  /** The number of staging buffers of each thread, at most four; 0: two. */
  int32_t load_buffers;
  /** The path of a libcublasLt of CUDA 12 or later, for programs that were exported with
   * `gemm="cublaslt"`. NULL: the newest that the dynamic linker finds and the driver can run. The
   * library is opened with the first such program, and never if there is none. */
  const char* cublas;
  /** 1: opening a program also does the work that the driver otherwise puts off to the first launch
   * of each kernel, so opening takes longer and the first run of a launch list takes no longer than
   * later runs. In any case opening loads the kernels, once per device for all sessions. */
  int32_t prefetch;
  /** 1: for debugging, device memory is filled with 0xFF before it is returned to the driver, so
   * that a later read sees NaNs. husk_session_options.poison_memory does so for the arena. */
  int32_t poison_memory;
  /** As `cublas`: a libcudnn of version 9, for `conv="cudnn"`. */
  const char* cudnn;
  /** As `cublas`: a libcufft of CUDA 12 or later, for `fft="cufft"`. */
  const char* cufft;
  /** As `cublas`: a libcusolver of CUDA 12 or later, for `linalg="cusolver"`. */
  const char* cusolver;
  /** As `cublas`: a libnccl of version 2, for programs of several ranks. NULL: "libnccl.so.2", and
   * if there is none, ranks of one machine whose devices reach each other's memory do without. */
  const char* nccl;
  /** NULL; or an ncclComm_t of the application, which the port uses in place of one of its own. It
   * must outlive the engine, and its rank and size must be those of husk_engine_options, whose
   * `group` may point to zeros then. If a wait takes longer than
   * husk_engine_options.group_timeout_ms, the call fails, and the application aborts the
   * communicator. */
  void* nccl_comm;
  /** 1: ranks never exchange tensors through memory of each other's. By default they do so in
   * kernels of the port's own, if there are at most eight of them on one machine whose devices
   * reach each other's memory: two ranks with tensors of any size, more with those of up to 1 MiB.
   * This takes 4 MiB of a device for each rank, and 16 MiB more if there are two. Of all ranks of a
   * group, each has the same value. */
  int32_t no_peer_memory;
  /** 1, for husk_group_id_create: all ranks of the group are on one machine. They meet without NCCL
   * then, and open it together when an op is prepared that needs it. NCCL takes hundreds of MB of
   * each device. */
  int32_t one_machine;
} husk_cuda_options;
/** The initial value of a husk_cuda_options. */
#define HUSK_CUDA_OPTIONS_INIT \
  {sizeof(husk_cuda_options), 0, NULL, 0, 0, 0, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 0}

/** Returns the port "cuda": a static table, never NULL, also on a machine without a driver. Any
 * thread may call. */
HUSK_API const husk_port* husk_port_cuda(void);

#ifdef __cplusplus
}
#endif
#endif
