// Before a kernel's first launch the driver prepares more than its code: local memory and the
// device's records of launches. A graph of the one kernel that is uploaded to the device and never
// launched has this done while a program is opened.
#include "graph.h"

namespace husk::cuda {

husk_status prefetch(void* handle, void* kernel, const husk_port_kernel& desc, husk_error* error) {
  const Device& device = as_device(handle);
  uint64_t zero[2] = {0, 0};  // as large as the largest parameter
  void** params = static_cast<void**>(
      allocate(device, (desc.param_count + 1) * sizeof(void*), "parameters", error));
  if (!params) return error->code;
  for (uint32_t i = 0; i < desc.param_count; ++i) params[i] = zero;
  const uint32_t cluster = desc.cluster > 1 ? desc.cluster : 1;
  const husk_launch launch = {
      sizeof(launch), {cluster, 1, 1}, {desc.threads, 1, 1}, desc.shared_bytes, cluster, 0, params};
  void *graph = nullptr, *exec = nullptr;
  husk_status status = kGraphs.graph_create(handle, &graph, error);
  if (status == HUSK_OK)
    status = kGraphs.graph_add_kernel(handle, graph, kernel, &launch, nullptr, 0, error);
  if (status == HUSK_OK) status = kGraphs.graph_instantiate(handle, graph, &exec, error);
  if (exec) kGraphs.exec_destroy(handle, exec);
  if (graph) kGraphs.graph_destroy(handle, graph);
  release(device, params);
  return status;
}

}  // namespace husk::cuda
