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

/* The table of the port; static, the same at every call, from any thread. Never NULL, also without a driver. */
HUSK_API const husk_port* husk_port_cuda(void);

#ifdef __cplusplus
}
#endif
#endif
