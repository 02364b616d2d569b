// Modules (a loaded library of the driver) and the kernels in them.
#pragma once

#include <atomic>

#include "device.h"

namespace husk::cuda {

// A kernel that kernel_get returned. The module owns it; it does not change after kernel_get.
struct Kernel {
  CUfunction function;
  Kernel* next;
  char symbol[1];  // the name; the allocation has room for all of it
};

struct Module {
  CUlibrary library;
  std::atomic<Kernel*> kernels;  // a list; threads push, module_unload releases all
  char log[256];  // messages of the PTX compiler; the driver keeps the address until it compiles
  char name[1];   // the image's name; the allocation has room for all of it
};

inline const Kernel& as_kernel(const void* kernel) { return *static_cast<const Kernel*>(kernel); }

husk_status module_load(void* device, const husk_port_image* image, void** module,
                        husk_error* error);
void module_unload(void* device, void* module);
husk_status kernel_get(void* device, void* module, const husk_port_kernel* desc, void** kernel,
                       husk_error* error);

// prefetch.cpp: has the driver prepare the first launch of a kernel now.
husk_status prefetch(void* device, void* kernel, const husk_port_kernel& desc, husk_error* error);

// launch.cpp
husk_status launch(void* device, void* stream, void* kernel, const husk_launch* launch,
                   husk_error* error);

// Writes the attributes that a launch has both on a stream and in a graph. Returns their number, at
// most 2.
unsigned int launch_attributes(const husk_launch& launch, CUlaunchAttribute* attributes);

}  // namespace husk::cuda
