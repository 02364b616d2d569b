// Streams that capture their work in a graph. Calls that a capture does not allow return the
// driver's error and make the capture invalid. The driver allows copies between host and device in
// a capture, this one does not.
#include <algorithm>

#include "graph.h"

namespace fake {

struct Capture {
  CUstreamCaptureMode mode;
  std::thread::id thread;
  Graph* graph;
  std::vector<Node*> tail = {};  // the nodes that the next one waits for
  bool valid = true;
};

namespace {

std::vector<Capture*>& captures() {
  static auto* const all = new std::vector<Capture*>;
  return *all;
}

Capture* capture_of(const Call& call, CUstream handle) {
  return handle ? call.object<Stream>(handle, "stream").capture : nullptr;
}

}  // namespace

bool is_capturing(const Call& call, CUstream stream) { return capture_of(call, stream); }

void record(Stream& stream, const TaskPointer& task, bool programmatic) {
  Capture& capture = *stream.capture;
  Node* node = make<Node>(*capture.graph);
  node->action.kind = "recorded";
  node->action.recorded = task;
  for (Node* before : capture.tail) {
    const bool early = programmatic && before->action.recorded->launch;
    (early ? node->early : node->after).push_back(before);
  }
  capture.graph->nodes.push_back(node);
  capture.tail = {node};
}

CUresult refuse_captured(const Call& call, CUstream stream) {
  Capture* capture = capture_of(call, stream);
  if (!capture) return CUDA_SUCCESS;
  capture->valid = false;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult refuse_while_capturing() {
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : captures()) {
    if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    if (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
        capture->thread != std::this_thread::get_id())
      continue;
    capture->valid = false;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  Call call("cuStreamBeginCapture");
  if (call.fault) return call.fault;
  call.context();
  if (!handle) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Stream& stream = call.object<Stream>(handle, "stream");
  if (stream.capture) return CUDA_ERROR_ILLEGAL_STATE;
  stream.capture = new Capture{mode, std::this_thread::get_id(), make<Graph>()};
  captures().push_back(stream.capture);
  return CUDA_SUCCESS;
}

// Ends the capture even if the call is to fail, except in another thread.
CUresult cuStreamEndCapture(CUstream handle, CUgraph* out) {
  Call call("cuStreamEndCapture");
  call.context();
  *out = nullptr;
  Capture* capture = capture_of(call, handle);
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture->thread != std::this_thread::get_id())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  call.object<Stream>(handle, "stream").capture = nullptr;
  std::erase(captures(), capture);
  const std::unique_ptr<Capture> ended(capture);
  const CUresult result = call.fault     ? call.fault
                          : ended->valid ? CUDA_SUCCESS
                                         : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (result == CUDA_SUCCESS) {
    *out = reinterpret_cast<CUgraph>(ended->graph);
    return CUDA_SUCCESS;
  }
  ended->graph->end();
  for (Node* node : ended->graph->nodes) node->end();
  return result;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  Call call("cuStreamIsCapturing");
  if (call.fault) return call.fault;
  const Capture* capture = capture_of(call, handle);
  *status = !capture         ? CU_STREAM_CAPTURE_STATUS_NONE
            : capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                             : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  return CUDA_SUCCESS;
}

}  // namespace fake
