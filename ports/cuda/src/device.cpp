#include "device.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <husk/detail/struct_size.h>

#include "ops/group.h"

namespace husk::cuda {

Current::Current(void* handle, husk_error* error)
    : status(HUSK_OK), handle_(*static_cast<Handle*>(handle)) {
  if (handle_.entered) return;
  const Device& device = *handle_.device;
  const CUresult result = device.driver.cuCtxPushCurrent(device.context);
  if (result != CUDA_SUCCESS) {
    status = driver_fail(device.driver, error, result, "cuCtxPushCurrent", "device %d",
                         device.index);
  }
}

Current::Current(void* handle) : status(HUSK_OK), handle_(*static_cast<Handle*>(handle)) {
  if (handle_.entered) return;
  const Device& device = *handle_.device;
  if (device.driver.cuCtxPushCurrent(device.context) == CUDA_SUCCESS ||
      device.driver.cuCtxPushCurrent(device.context) == CUDA_SUCCESS)
    return;
  status = HUSK_DEVICE;
}

Current::~Current() {
  CUcontext popped;
  if (status == HUSK_OK && !handle_.entered) handle_.device->driver.cuCtxPopCurrent(&popped);
}

husk_status check_work(Device& device, void* stream, husk_error* error, const char* format, ...) {
  if (!device.options.check_each) return HUSK_OK;
  CUstreamCaptureStatus captures = CU_STREAM_CAPTURE_STATUS_NONE;
  if (stream) device.driver.cuStreamIsCapturing(as_stream(stream), &captures);
  if (captures != CU_STREAM_CAPTURE_STATUS_NONE) return HUSK_OK;  // nothing runs
  husk_status of_group = HUSK_OK;
  const CUresult result = synchronize(device, {as_stream(stream), nullptr}, &of_group, error);
  char thing[80], finished[sizeof device.finished];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(thing, sizeof thing, format, arguments);
  va_end(arguments);
  {
    const Lock lock(&device.mutex);
    snprintf(finished, sizeof finished, "%s", device.finished);
    if (result == CUDA_SUCCESS && of_group == HUSK_OK)
      snprintf(device.finished, sizeof device.finished, "%s", thing);
  }
  if (of_group != HUSK_OK) {
    const husk_error cause = *error;
    return fail(error, of_group, "in %s: %s", thing, cause.text);
  }
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(device.driver, error, result, "cuStreamSynchronize",
                     "in %s; last known to have finished: %s", thing,
                     *finished ? finished : "none");
}

void* allocate(const Device& device, size_t size, const char* thing, husk_error* error) {
  void* memory = device.allocator->allocate(device.allocator->user, size, alignof(max_align_t));
  if (!memory) fail(error, HUSK_OUT_OF_MEMORY, "no host memory for %s (%zu bytes)", thing, size);
  return memory;
}

void release(const Device& device, void* memory) {
  device.allocator->release(device.allocator->user, memory);
}

namespace {

husk_status find_device(Device* device, husk_error* error) {
  const Driver& driver = device->driver;
  CUresult result = driver.cuInit(0);
  if (result != CUDA_SUCCESS)
    return driver_fail(driver, error, result, "cuInit", "no CUDA device can be used");
  int count = 0;
  result = driver.cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS)
    return driver_fail(driver, error, result, "cuDeviceGetCount", "CUDA devices");
  if (count == 0) {
    return fail(error, HUSK_UNSUPPORTED,
                "the driver shows no CUDA device: check nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  if (device->index < 0 || device->index >= count) {
    return fail(error, HUSK_INVALID_ARGUMENT,
                "CUDA device %d does not exist: the driver shows %d, numbered from 0",
                device->index, count);
  }
  result = driver.cuDeviceGet(&device->device, device->index);
  if (result != CUDA_SUCCESS)
    return driver_fail(driver, error, result, "cuDeviceGet", "device %d", device->index);
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
      return driver_fail(driver, error, result, "cuDeviceGetAttribute", "attribute %d of device %d",
                         row.attribute, device->index);
    }
  }
  const CUresult result = driver.cuDeviceGetName(device->name, sizeof device->name, device->device);
  if (result != CUDA_SUCCESS)
    return driver_fail(driver, error, result, "cuDeviceGetName", "device %d", device->index);
  return HUSK_OK;
}

husk_status create_private_stream(Device* device, husk_error* error) {
  Current current(&device->plain, error);
  HUSK_TRY(current.status);
  const CUresult result = device->driver.cuStreamCreate(&device->private_stream,
                                                        CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(device->driver, error, result, "cuStreamCreate", "private stream of device %d",
                     device->index);
}

husk_status retain_context(Device* device, husk_error* error) {
  const Driver& driver = device->driver;
  const CUresult result = driver.cuDevicePrimaryCtxRetain(&device->context, device->device);
  if (result != CUDA_SUCCESS) {
    return driver_fail(driver, error, result, "cuDevicePrimaryCtxRetain", "device %d",
                       device->index);
  }
  const husk_status status = create_private_stream(device, error);
  if (status != HUSK_OK) driver.cuDevicePrimaryCtxRelease(device->device);
  return status;
}

}  // namespace

husk_status open(void* user, int32_t index, const husk_allocator* allocator,
                 const husk_threads* threads, void** out, husk_error* error) {
  *out = nullptr;
  const auto* options = static_cast<const husk_cuda_options*>(user);
  if (options) HUSK_TRY(HUSK_CHECK_STRUCT(husk_cuda_options, options, check_each, error));
  void* memory = allocator->allocate(allocator->user, sizeof(Device), alignof(Device));
  if (!memory) return fail(error, HUSK_OUT_OF_MEMORY, "no host memory for CUDA device %d", index);
  memset(memory, 0, sizeof(Device));
  Device* device = static_cast<Device*>(memory);
  device->plain = {device, false};
  device->entered = {device, true};
  device->allocator = allocator;
  device->threads = threads;
  device->index = index;
  if (options) detail::read_struct(*options, &device->options);

  husk_status status = open_nvtx(device->options.nvtx, &device->nvtx, error);
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
  close_nvtx(&device->nvtx);
  release(*device, device);
  return status;
}

void close(void* handle) {
  if (!handle) return;
  Device& device = as_device(handle);
  for (const OpLibrary& library : device.libraries) {
    if (!library.state) continue;
    Current current(handle);
    library.close(device, library.state);
  }
  group_close(handle);
  pthread_mutex_destroy(&device.mutex);
  stream_destroy(handle, device.private_stream);
  device.driver.cuDevicePrimaryCtxRelease(device.device);
  unload_driver(&device.driver);
  close_nvtx(&device.nvtx);
  release(device, &device);
}

husk_status enter(void* handle, void** entered, husk_error* error) {
  *entered = nullptr;
  Device& device = as_device(handle);
  const CUresult result = device.driver.cuCtxPushCurrent(device.context);
  if (result != CUDA_SUCCESS)
    return driver_fail(device.driver, error, result, "cuCtxPushCurrent", "device %d", device.index);
  *entered = &device.entered;
  return HUSK_OK;
}

void leave(void* entered) {
  CUcontext popped;
  as_device(entered).driver.cuCtxPopCurrent(&popped);
}

void properties(void* handle, husk_port_properties* out) {
  const Device& device = as_device(handle);
  husk_port_properties full = HUSK_PORT_PROPERTIES_INIT;
  snprintf(full.name, sizeof full.name, "%s", device.name);
  // From 9.0 on a device runs code with the suffix 'a', which may use features of this version
  // only.
  snprintf(full.arch, sizeof full.arch, "sm_%d%d%s", device.major, device.minor,
           device.major >= 9 ? "a" : "");
  full.dl_device_type = 2;  // kDLCUDA
  full.device_index = device.index;
  // The host cannot access memory of cuMemAlloc, even on an integrated device.
  full.host_memory = 0;
  size_t bytes = 0;
  if (device.driver.cuDeviceTotalMem(&bytes, device.device) == CUDA_SUCCESS)
    full.memory_bytes = bytes;
  detail::write_struct(full, out);
}

}  // namespace husk::cuda
