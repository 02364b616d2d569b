#include "module.h"

namespace husk::cuda {

unsigned int launch_attributes(const husk_launch& launch, CUlaunchAttribute* attributes) {
  unsigned int count = 0;
  if (launch.cluster > 1) {
    attributes[count] = {};
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[count].value.clusterDim = {launch.cluster, 1, 1};
    ++count;
  }
  if (launch.flags & HUSK_LAUNCH_COOPERATIVE) {
    attributes[count] = {};
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[count].value.cooperative = 1;
    ++count;
  }
  return count;
}

static CUresult launch_with(const Driver& driver, CUfunction function, CUstream stream, const husk_launch& launch,
                            CUlaunchAttribute* attributes, unsigned int count) {
  CUlaunchConfig config = {launch.grid[0],  launch.grid[1],  launch.grid[2],      launch.block[0], launch.block[1],
                           launch.block[2], launch.shared_bytes, stream, attributes, count};
  return driver.cuLaunchKernelEx(&config, function, launch.params, nullptr);
}

husk_status launch(void* handle, void* stream, void* pointer, const husk_launch* launch, husk_error* error) {
  const Device& device = as_device(handle);
  const Driver& driver = device.driver;
  const Kernel& kernel = as_kernel(pointer);
  Current current(device, error);
  HUSK_TRY(current.status);
  CUresult result;
  const bool plain = launch->cluster <= 1 && !(launch->flags & HUSK_LAUNCH_COOPERATIVE);
  if (plain) {
    result = driver.cuLaunchKernel(kernel.function, launch->grid[0], launch->grid[1], launch->grid[2],
                                   launch->block[0], launch->block[1], launch->block[2], launch->shared_bytes,
                                   as_stream(stream), launch->params, nullptr);
  } else {
    CUlaunchAttribute attributes[2];
    const unsigned int count = launch_attributes(*launch, attributes);
    result = launch_with(driver, kernel.function, as_stream(stream), *launch, attributes, count);
  }
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(driver, error, result, plain ? "cuLaunchKernel" : "cuLaunchKernelEx",
                     "kernel '%.50s', grid %u x %u x %u, block %u x %u x %u", kernel.symbol, launch->grid[0],
                     launch->grid[1], launch->grid[2], launch->block[0], launch->block[1], launch->block[2]);
}

}  // namespace husk::cuda
