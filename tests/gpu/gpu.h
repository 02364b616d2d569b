// What the programs for a GPU share: the driver for what Husk is compared with, and a Husk program on it.
#pragma once

#include <cuda.h>
#include <husk/husk.h>
#include <husk/port_cuda.h>

#include "../values.h"

#include <cstdint>
#include <string>
#include <vector>

namespace husk::gpu {

// Ends the program with the text where `status` is not 0.
void require(CUresult status, const char* what);
void require(husk_status status, const husk_error& error);
[[noreturn]] void give_up(const std::string& text);

// The driver's functions that the comparison needs, from libcuda.so.1.
struct Driver {
  Driver();
#define HUSK_GPU_CALLS(CALL)                                                                                       \
  CALL(cuInit) CALL(cuDeviceGet) CALL(cuDevicePrimaryCtxRetain) CALL(cuCtxSetCurrent) CALL(cuModuleLoadData)        \
  CALL(cuModuleGetFunction) CALL(cuLaunchKernel) CALL(cuStreamCreate) CALL(cuStreamSynchronize) CALL(cuMemAlloc_v2) \
  CALL(cuMemFree_v2)                                                                                               \
  CALL(cuMemcpyHtoD_v2) CALL(cuMemcpyDtoH_v2) CALL(cuMemsetD8_v2) CALL(cuGraphCreate)                              \
  CALL(cuGraphAddKernelNode_v2) CALL(cuGraphAddNode_v2) CALL(cuGraphInstantiateWithFlags) CALL(cuGraphLaunch)      \
  CALL(cuGraphExecKernelNodeSetParams_v2)
#define CALL(name) decltype(&::name) name##_ = nullptr;
  HUSK_GPU_CALLS(CALL)
#undef CALL
  CUstream stream = nullptr;
  CUdeviceptr alloc(size_t bytes);
};

// An artifact on the GPU, with a session in the given mode.
struct Loaded {
  explicit Loaded(const char* path);
  ~Loaded();
  husk_session* session(int mode, bool full_edges);
  uint32_t function(const char* name);
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
};

// A vector of floats on the device, as a value.
struct Vector {
  Vector(CUdeviceptr memory, int64_t n);
  husk_value value();
  int64_t size;
  DLTensor tensor;
};

std::vector<char> read_file(const std::string& path);
double now();  // microseconds
double median(std::vector<double> values);

}  // namespace husk::gpu
