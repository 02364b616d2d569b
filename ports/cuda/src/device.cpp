#include "matmul.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

namespace husk::cuda {

Current::Current(void* handle, husk_error* error) : status(HUSK_OK), handle_(*static_cast<Handle*>(handle)) {
  if (handle_.entered) return;
  const Device& device = *handle_.device;
  const CUresult result = device.driver.cuCtxPushCurrent(device.context);
  if (result != CUDA_SUCCESS) {
    status = driver_fail(device.driver, error, result, "cuCtxPushCurrent", "device %d", device.index);
  }
}

Current::~Current() {
  CUcontext popped;
  if (status == HUSK_OK && !handle_.entered) handle_.device->driver.cuCtxPopCurrent(&popped);
}

husk_status check_work(Device& device, void* stream, husk_error* error, const char* format, ...) {
  if (!device.options.check_each) return HUSK_OK;
  const CUresult result = device.driver.cuStreamSynchronize(as_stream(stream));
  char thing[80], finished[sizeof device.finished];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(thing, sizeof thing, format, arguments);
  va_end(arguments);
  pthread_mutex_lock(&device.mutex);
  snprintf(finished, sizeof finished, "%s", device.finished);
  if (result == CUDA_SUCCESS) snprintf(device.finished, sizeof device.finished, "%s", thing);
  pthread_mutex_unlock(&device.mutex);
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(device.driver, error, result, "cuStreamSynchronize", "in %s; last known to have finished: %s", thing,
                     *finished ? finished : "none");
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
      {CU_DEVICE_ATTRIBUTE_INTEGRATED, &device->integrated},
      {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, &device->registers_read_only},
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
  Current current(&device->plain, error);
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

// What a caller of an older header does not have stays 0.
void read_options(const husk_cuda_options* given, husk_cuda_options* out) {
  memcpy(out, given, given->struct_size < sizeof *out ? given->struct_size : sizeof *out);
}

}  // namespace

husk_status open(void* user, int32_t index, const husk_allocator* allocator, const husk_threads* threads, void** out,
                 husk_error* error) {
  *out = nullptr;
  void* memory = allocator->allocate(allocator->user, sizeof(Device), alignof(Device));
  if (!memory) return fail(error, HUSK_OUT_OF_MEMORY, "no host memory for CUDA device %d", index);
  memset(memory, 0, sizeof(Device));
  Device* device = static_cast<Device*>(memory);
  device->plain = {device, false};
  device->entered = {device, true};
  device->allocator = allocator;
  device->threads = threads;
  device->index = index;
  if (user) read_options(static_cast<const husk_cuda_options*>(user), &device->options);

  husk_status status = open_ranges(device->options.nvtx, &device->ranges, error);
  if (status == HUSK_OK) status = load_driver(&device->driver, error);
  if (status == HUSK_OK) status = find_device(device, error);
  if (status == HUSK_OK) status = read_attributes(device, error);
  if (status == HUSK_OK) status = retain_context(device, error);
  if (status == HUSK_OK) {
    pthread_mutex_init(&device->mutex, nullptr);
    *out = &device->plain;
    return HUSK_OK;
  }
  if (device->driver.library) unload_driver(&device->driver);
  close_ranges(&device->ranges);
  release(*device, device);
  return status;
}

void close(void* handle) {
  if (!handle) return;
  Device& device = as_device(handle);
  if (device.products) {
    Ignored ignored;
    Current current(handle, &ignored.error);
    close_products(device, device.products);
  }
  pthread_mutex_destroy(&device.mutex);
  stream_destroy(handle, device.private_stream);
  device.driver.cuDevicePrimaryCtxRelease(device.device);
  unload_driver(&device.driver);
  close_ranges(&device.ranges);
  release(device, &device);
}

husk_status enter(void* handle, void** entered, husk_error* error) {
  *entered = nullptr;
  Device& device = as_device(handle);
  const CUresult result = device.driver.cuCtxPushCurrent(device.context);
  if (result != CUDA_SUCCESS) {
    return driver_fail(device.driver, error, result, "cuCtxPushCurrent", "device %d", device.index);
  }
  *entered = &device.entered;
  return HUSK_OK;
}

void leave(void* entered) {
  CUcontext popped;
  as_device(entered).driver.cuCtxPopCurrent(&popped);
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
