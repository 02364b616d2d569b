// Common parts of the programs for a GPU: the driver's functions for comparisons, and a Husk
// program on the GPU.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <husk/husk.h>
#include <husk/port_cuda.h>

#include "../values.h"

namespace husk::gpu {

// Ends the program with the text if `status` is not 0.
void require(CUresult status, const char* what);
void require(husk_status status, const husk_error& error);
[[noreturn]] void give_up(const std::string& text);

// The driver's functions that the comparisons need, from libcuda.so.1.
struct Driver {
  Driver();
  // clang-format off
#define HUSK_GPU_CALLS(CALL) \
  CALL(cuInit) CALL(cuDeviceGet) CALL(cuDevicePrimaryCtxRetain) CALL(cuCtxSetCurrent) \
  CALL(cuModuleLoadData) CALL(cuModuleGetFunction) CALL(cuLaunchKernel) CALL(cuStreamCreate) \
  CALL(cuStreamSynchronize) CALL(cuMemAlloc_v2) CALL(cuMemFree_v2) CALL(cuMemcpyHtoD_v2) \
  CALL(cuMemcpyDtoH_v2) CALL(cuMemsetD8_v2) CALL(cuGraphCreate) CALL(cuGraphAddKernelNode_v2) \
  CALL(cuGraphAddNode_v2) CALL(cuGraphInstantiateWithFlags) CALL(cuGraphLaunch) \
  CALL(cuGraphExecKernelNodeSetParams_v2) CALL(cuMemAllocHost_v2) CALL(cuMemFreeHost) \
  CALL(cuStreamBeginCapture_v2) CALL(cuStreamEndCapture) CALL(cuGraphDestroy) \
  CALL(cuGraphExecDestroy) CALL(cuMemHostRegister_v2) CALL(cuMemHostUnregister) \
  CALL(cuMemcpyHtoDAsync_v2)
// clang-format on
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

extern const husk_allocator process_memory;

// A device through the port alone, from any thread: memory, streams, an engine. A call that fails
// ends the program.
struct Place {
  explicit Place(int index, const husk_cuda_options* options = nullptr);
  ~Place();
  Place(const Place&) = delete;
  void* alloc(size_t bytes);                                              // freed with the Place
  void* stream();                                                         // freed with the Place
  void upload(void* stream, void* to, const void* from, size_t bytes);    // waits for the stream
  void download(void* stream, void* to, const void* from, size_t bytes);  // waits for the stream
  husk_program* open(const char* path);
  static bool exists(int index, husk_error* error);
  husk_port port;
  int index;
  void* device = nullptr;
  husk_engine* engine = nullptr;
  std::mutex mutex;
  std::vector<void*> memory, streams;
};

// A vector of floats on a device, as a value.
struct Vector {
  Vector(CUdeviceptr memory, int64_t n, int device = 0);
  husk_value value();
  int64_t size;
  DLTensor tensor;
};

std::vector<char> read_file(const std::string& path);
double now();  // microseconds
double median(std::vector<double> values);

}  // namespace husk::gpu
