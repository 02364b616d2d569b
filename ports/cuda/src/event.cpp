#include "device.h"
#include "ops/group.h"

namespace husk::cuda {

static CUevent as_event(void* event) { return static_cast<CUevent>(event); }

husk_status event_create(void* handle, void** event, husk_error* error) {
  *event = nullptr;
  const Device& device = as_device(handle);
  Current current(handle, error);
  HUSK_TRY(current.status);
  CUevent created = nullptr;
  const CUresult result = device.driver.cuEventCreate(&created, CU_EVENT_DEFAULT);
  if (result != CUDA_SUCCESS)
    return driver_fail(device.driver, error, result, "cuEventCreate", "event of device %d",
                       device.index);
  *event = created;
  return HUSK_OK;
}

void event_destroy(void* handle, void* event) {
  if (!event) return;
  Current current(handle);
  if (current.status == HUSK_OK) as_device(handle).driver.cuEventDestroy(as_event(event));
}

husk_status event_record(void* handle, void* event, void* stream, husk_error* error) {
  const Device& device = as_device(handle);
  Current current(handle, error);
  HUSK_TRY(current.status);
  const CUresult result = device.driver.cuEventRecord(as_event(event), as_stream(stream));
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(device.driver, error, result, "cuEventRecord",
                     "event on stream %p of device %d", stream, device.index);
}

// The event has the work that its stream had when it was recorded, and cuEventSynchronize returns
// when that is done, whatever the stream got since (CUDA Driver API, "Event Management"). A copy to
// pinned memory before the event is done then: its bytes are in the host's memory. An event that a
// stream has captured cannot be waited for, and the attempt makes the capture invalid, so
// husk_session_mark refuses such streams. The event takes the time too (no
// CU_EVENT_DISABLE_TIMING), which matters to no wait.
husk_status event_wait(void* handle, void* event, husk_error* error) {
  const Device& device = as_device(handle);
  Current current(handle, error);
  HUSK_TRY(current.status);
  if (device.group) return group_wait(device, {nullptr, as_event(event)}, true, error);
  const CUresult result = device.driver.cuEventSynchronize(as_event(event));
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(device.driver, error, result, "cuEventSynchronize", "event of device %d",
                     device.index);
}

husk_status event_elapsed(void* handle, void* begin, void* end, uint64_t* nanoseconds,
                          husk_error* error) {
  *nanoseconds = 0;
  const Device& device = as_device(handle);
  Current current(handle, error);
  HUSK_TRY(current.status);
  float milliseconds = 0;
  const CUresult result = device.driver.cuEventElapsedTime(&milliseconds, as_event(begin),
                                                           as_event(end));
  if (result != CUDA_SUCCESS)
    return driver_fail(device.driver, error, result, "cuEventElapsedTime",
                       "time between two events of device %d", device.index);
  if (milliseconds > 0)
    *nanoseconds = static_cast<uint64_t>(static_cast<double>(milliseconds) * 1e6 + 0.5);
  return HUSK_OK;
}

}  // namespace husk::cuda
