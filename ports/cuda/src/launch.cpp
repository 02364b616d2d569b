#include <husk/detail/struct_size.h>

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

static CUresult launch_with(const Driver& driver, CUfunction function, CUstream stream,
                            const husk_launch& launch, CUlaunchAttribute* attributes,
                            unsigned int count) {
  CUlaunchConfig config = {
      launch.grid[0],  launch.grid[1],      launch.grid[2], launch.block[0], launch.block[1],
      launch.block[2], launch.shared_bytes, stream,         attributes,      count};
  return driver.cuLaunchKernelEx(&config, function, launch.params, nullptr);
}

// A launch without attributes uses the shorter call.
static CUresult launch_plain(const Driver& driver, CUfunction function, CUstream stream,
                             const husk_launch& launch) {
  return driver.cuLaunchKernel(function, launch.grid[0], launch.grid[1], launch.grid[2],
                               launch.block[0], launch.block[1], launch.block[2],
                               launch.shared_bytes, stream, launch.params, nullptr);
}

husk_status launch(void* handle, void* stream, void* pointer, const husk_launch* launch,
                   husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_launch, launch, params, error));
  Device& device = as_device(handle);
  const Driver& driver = device.driver;
  const Kernel& kernel = as_kernel(pointer);
  Current current(handle, error);
  HUSK_TRY(current.status);
  const NvtxRange range(device.nvtx, kernel.symbol);
  // launch_attributes writes at most two: the cluster and the cooperative launch. The third is the
  // programmatic one below.
  CUlaunchAttribute attributes[3];
  unsigned int count = launch_attributes(*launch, attributes);
  // Kernels for devices before 9.0 have no instruction to wait with.
  if (launch->flags & HUSK_LAUNCH_PROGRAMMATIC && device.major >= 9) {
    attributes[count] = {};
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[count].value.programmaticStreamSerializationAllowed = 1;
    ++count;
  }
  const CUresult result = count ? launch_with(driver, kernel.function, as_stream(stream), *launch,
                                              attributes, count)
                                : launch_plain(driver, kernel.function, as_stream(stream), *launch);
  if (result == CUDA_SUCCESS)
    return check_work(device, stream, error, "kernel '%.50s'", kernel.symbol);
  return driver_fail(driver, error, result, count ? "cuLaunchKernelEx" : "cuLaunchKernel",
                     "kernel '%.50s', grid %u x %u x %u, block %u x %u x %u", kernel.symbol,
                     launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0],
                     launch->block[1], launch->block[2]);
}

}  // namespace husk::cuda
