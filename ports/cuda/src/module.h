// Modules (a loaded library of the driver) and the kernels in them.
#ifndef HUSK_CUDA_MODULE_H
#define HUSK_CUDA_MODULE_H

#include <atomic>

#include "device.h"

namespace husk::cuda {

// One kernel as it was asked for. Lives in its module's list, is never changed after kernel_get.
struct Kernel {
  CUfunction function;
  Kernel* next;
  char symbol[1];   // as long as the name is
};

struct Module {
  CUlibrary library;
  std::atomic<Kernel*> kernels;   // threads push, module_unload takes all
  char log[256];                  // the compiler's, of PTX: the driver keeps the address until it compiles
  char name[1];
};

inline const Kernel& as_kernel(const void* kernel) { return *static_cast<const Kernel*>(kernel); }

husk_status module_load(void* device, const husk_port_image* image, void** module, husk_error* error);
void module_unload(void* device, void* module);
husk_status kernel_get(void* device, void* module, const husk_port_kernel* desc, void** kernel, husk_error* error);

// prefetch.cpp: makes a kernel ready to be launched.
husk_status prefetch(void* device, void* kernel, const husk_port_kernel& desc, husk_error* error);

// launch.cpp
husk_status launch(void* device, void* stream, void* kernel, const husk_launch* launch, husk_error* error);

// The attributes that a launch has in a graph too; returns how many, at most 2.
unsigned int launch_attributes(const husk_launch& launch, CUlaunchAttribute* attributes);

}  // namespace husk::cuda
#endif
