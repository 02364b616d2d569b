// Capturing the work of a stream.
#include "graph.h"

namespace husk::cuda {

// The mode is that of the thread: what other threads call does not matter to the capture, and they
// may call everything.
husk_status capture_begin(void* handle, void* stream, husk_error* error) {
  const Driver& driver = as_device(handle).driver;
  Current current(handle, error);
  HUSK_TRY(current.status);
  const CUresult result = driver.cuStreamBeginCapture(as_stream(stream),
                                                      CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(driver, error, result, "cuStreamBeginCapture", "stream %p", stream);
}

husk_status capture_end(void* handle, void* stream, void** captured, husk_error* error) {
  *captured = nullptr;
  const Driver& driver = as_device(handle).driver;
  Current current(handle);  // the capture must not stay open
  CUgraph graph = nullptr;
  const CUresult result = driver.cuStreamEndCapture(as_stream(stream), &graph);
  if (result == CUDA_SUCCESS) {
    *captured = graph;
    return HUSK_OK;
  }
  return driver_fail(driver, error, result, "cuStreamEndCapture", "stream %p", stream);
}

void captured_destroy(void* handle, void* captured) {
  if (!captured) return;
  Current current(handle);
  as_device(handle).driver.cuGraphDestroy(static_cast<CUgraph>(captured));
}

// The default stream cannot capture. The driver fails for it while a stream captures that waits for
// the default one, though the two calls have nothing to do with each other.
husk_status stream_capturing(void* handle, void* stream, int32_t* capturing, husk_error* error) {
  *capturing = 0;
  if (!stream) return HUSK_OK;
  const Driver& driver = as_device(handle).driver;
  Current current(handle, error);
  HUSK_TRY(current.status);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver.cuStreamIsCapturing(as_stream(stream), &status);
  if (result != CUDA_SUCCESS)
    return driver_fail(driver, error, result, "cuStreamIsCapturing", "stream %p", stream);
  *capturing = status != CU_STREAM_CAPTURE_STATUS_NONE;
  return HUSK_OK;
}

}  // namespace husk::cuda
