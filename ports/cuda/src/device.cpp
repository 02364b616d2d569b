#include "device.h"

#include <stdio.h>
#include <string.h>

namespace husk::cuda {

Current::Current(const Device& device, husk_error* error) : status(HUSK_OK), device_(device) {
  const CUresult result = device.driver.cuCtxPushCurrent(device.context);
  if (result != CUDA_SUCCESS) {
    status = driver_fail(device.driver, error, result, "cuCtxPushCurrent", "device %d", device.index);
  }
}

Current::~Current() {
  CUcontext popped;
  if (status == HUSK_OK) device_.driver.cuCtxPopCurrent(&popped);
}

void* allocate(const Device& device, size_t size, const char* thing, husk_error* error) {
  void* memory = device.allocator->allocate(device.allocator->user, size, alignof(max_align_t));
  if (!memory) fail(error, HUSK_OUT_OF_MEMORY, "no host memory for %s (%zu bytes)", thing, size);
  return memory;
}

void release(const Device& device, void* memory) { device.allocator->release(device.allocator->user, memory); }

namespace {

husk_status find_device(Device* device, husk_error* error) {
  const Driver& driver = device->driver;
  CUresult result = driver.cuInit(0);
  if (result != CUDA_SUCCESS) return driver_fail(driver, error, result, "cuInit", "no CUDA device can be used");
  int count = 0;
  result = driver.cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS) return driver_fail(driver, error, result, "cuDeviceGetCount", "CUDA devices");
  if (count == 0) {
    return fail(error, HUSK_UNSUPPORTED, "the driver shows no CUDA device: check nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  if (device->index < 0 || device->index >= count) {
    return fail(error, HUSK_INVALID_ARGUMENT, "CUDA device %d does not exist: the driver shows %d, numbered from 0",
                device->index, count);
  }
  result = driver.cuDeviceGet(&device->device, device->index);
  if (result != CUDA_SUCCESS) return driver_fail(driver, error, result, "cuDeviceGet", "device %d", device->index);
  return HUSK_OK;
}

husk_status read_attributes(Device* device, husk_error* error) {
  const Driver& driver = device->driver;
  const struct {
    CUdevice_attribute attribute;
    int* value;
  } wanted[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &device->major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &device->minor},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &device->shared_optin},
  };
  for (const auto& row : wanted) {
    const CUresult result = driver.cuDeviceGetAttribute(row.value, row.attribute, device->device);
    if (result != CUDA_SUCCESS) {
      return driver_fail(driver, error, result, "cuDeviceGetAttribute", "attribute %d of device %d", row.attribute,
                         device->index);
    }
  }
  const CUresult result = driver.cuDeviceGetName(device->name, sizeof device->name, device->device);
  if (result != CUDA_SUCCESS) return driver_fail(driver, error, result, "cuDeviceGetName", "device %d", device->index);
  return HUSK_OK;
}

husk_status create_private_stream(Device* device, husk_error* error) {
  Current current(*device, error);
  HUSK_TRY(current.status);
  const CUresult result = device->driver.cuStreamCreate(&device->private_stream, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(device->driver, error, result, "cuStreamCreate", "private stream of device %d", device->index);
}

husk_status retain_context(Device* device, husk_error* error) {
  const Driver& driver = device->driver;
  const CUresult result = driver.cuDevicePrimaryCtxRetain(&device->context, device->device);
  if (result != CUDA_SUCCESS) {
    return driver_fail(driver, error, result, "cuDevicePrimaryCtxRetain", "device %d", device->index);
  }
  const husk_status status = create_private_stream(device, error);
  if (status != HUSK_OK) driver.cuDevicePrimaryCtxRelease(device->device);
  return status;
}

}  // namespace

husk_status open(void*, int32_t index, const husk_allocator* allocator, const husk_threads*, void** out,
                 husk_error* error) {
  *out = nullptr;
  void* memory = allocator->allocate(allocator->user, sizeof(Device), alignof(Device));
  if (!memory) return fail(error, HUSK_OUT_OF_MEMORY, "no host memory for CUDA device %d", index);
  memset(memory, 0, sizeof(Device));
  Device* device = static_cast<Device*>(memory);
  device->allocator = allocator;
  device->index = index;

  husk_status status = load_driver(&device->driver, error);
  if (status == HUSK_OK) {
    status = find_device(device, error);
    if (status == HUSK_OK) status = read_attributes(device, error);
    if (status == HUSK_OK) status = retain_context(device, error);
    if (status != HUSK_OK) unload_driver(&device->driver);
  }
  if (status != HUSK_OK) {
    allocator->release(allocator->user, device);
    return status;
  }
  *out = device;
  return HUSK_OK;
}

void close(void* handle) {
  if (!handle) return;
  Device& device = as_device(handle);
  stream_destroy(handle, device.private_stream);
  device.driver.cuDevicePrimaryCtxRelease(device.device);
  unload_driver(&device.driver);
  release(device, &device);
}

void properties(void* handle, husk_port_properties* out) {
  const Device& device = as_device(handle);
  memset(out, 0, sizeof *out);
  snprintf(out->name, sizeof out->name, "%s", device.name);
  // From 9.0 on, code for exactly this device may use its own features: the suffix says that it runs here.
  snprintf(out->arch, sizeof out->arch, "sm_%d%d%s", device.major, device.minor, device.major >= 9 ? "a" : "");
  out->dl_device_type = 2;   // kDLCUDA
  out->device_index = device.index;
  out->host_memory = 0;      // also where memory is integrated: addresses of cuMemAlloc are the device's alone
  size_t bytes = 0;
  if (device.driver.cuDeviceTotalMem(&bytes, device.device) == CUDA_SUCCESS) out->memory_bytes = bytes;
}

}  // namespace husk::cuda
