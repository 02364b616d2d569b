#include <cstring>

#include <husk/detail/struct_size.h>

#include "graph.h"
#include "ops/group.h"

namespace husk::cuda {

namespace {

husk_status create_exec(const Device& device, Exec* exec, husk_error* error) {
  const Driver& driver = device.driver;
  CUresult result = driver.cuGraphInstantiateWithFlags(&exec->exec, exec->graph->graph, 0);
  if (result != CUDA_SUCCESS) {
    return driver_fail(driver, error, result, "cuGraphInstantiateWithFlags", "graph of %u nodes",
                       exec->count);
  }
  result = driver.cuEventCreate(&exec->done, CU_EVENT_DISABLE_TIMING);
  if (result != CUDA_SUCCESS) {
    driver.cuGraphExecDestroy(exec->exec);
    return driver_fail(driver, error, result, "cuEventCreate", "graph of %u nodes", exec->count);
  }
  return HUSK_OK;
}

// Uploads the exec to the device, so that the first launch does not have to.
husk_status upload_exec(const Device& device, const Exec& exec, husk_error* error) {
  const Driver& driver = device.driver;
  if (!driver.cuGraphUpload) return HUSK_OK;
  const char* call = "cuGraphUpload";
  CUresult result = driver.cuGraphUpload(exec.exec, device.private_stream);
  if (result == CUDA_SUCCESS) {
    call = "cuStreamSynchronize";
    result = driver.cuStreamSynchronize(device.private_stream);
  }
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(driver, error, result, call, "upload of a graph of %u nodes", exec.count);
}

husk_status find_node(const Exec& exec, uint32_t number, NodeKind kind, const char* what,
                      husk_error* error) {
  if (number >= exec.count) {
    return fail(error, HUSK_INVALID_ARGUMENT, "node %u does not exist: the graph has %u", number,
                exec.count);
  }
  const NodeKind is = exec.nodes[number].kind;
  if (is == kind || (kind == NodeKind::fill && is == NodeKind::wide_fill)) return HUSK_OK;
  if (is == NodeKind::empty && kind != NodeKind::kernel) {
    return fail(
        error, HUSK_UNSUPPORTED,
        "node %u was added as a %s of 0 bytes and cannot become another: build the graph again",
        number, what);
  }
  return fail(error, HUSK_INVALID_ARGUMENT, "node %u is not a %s", number, what);
}

husk_status patch_fail(const Device& device, husk_error* error, CUresult result, const char* call,
                       uint32_t number, const char* what) {
  return driver_fail(device.driver, error, result, call, "node %u, %s", number, what);
}

CUresult set_fill(const Device& device, const Exec& exec, const Node& node, const Fill& fill) {
  const auto set = device.driver.cuGraphExecMemsetNodeSetParams;
  if (node.kind == NodeKind::fill) {
    const CUDA_MEMSET_NODE_PARAMS_v1 params = fill_params(fill);
    return set(exec.exec, node.first, &params, device.context);
  }
  const CUDA_MEMSET_NODE_PARAMS_v1 low = wide_fill_params(fill, false),
                                   high = wide_fill_params(fill, true);
  CUresult result = set(exec.exec, node.first, &low, device.context);
  if (result != CUDA_SUCCESS) return result;
  result = set(exec.exec, node.last, &high, device.context);
  if (result == CUDA_SUCCESS) return result;
  // A failed patch must leave both halves as they were.
  const CUDA_MEMSET_NODE_PARAMS_v1 before = wide_fill_params(node.fill, false);
  set(exec.exec, node.first, &before, device.context);
  return result;
}

}  // namespace

husk_status graph_instantiate(void* handle, void* pointer, void** out, husk_error* error) {
  *out = nullptr;
  const Device& device = as_device(handle);
  Graph* graph = static_cast<Graph*>(pointer);
  void* memory = allocate(device, sizeof(Exec) + graph->count * sizeof(Node), "an executable graph",
                          error);
  if (!memory) return error->code;
  Exec* exec = static_cast<Exec*>(memory);
  memset(memory, 0, sizeof(Exec));
  exec->graph = graph;
  exec->count = graph->count;
  if (graph->count) memcpy(exec->nodes, graph->nodes, graph->count * sizeof(Node));

  Current current(handle, error);
  husk_status status = current.status;
  if (status == HUSK_OK) status = create_exec(device, exec, error);
  if (status == HUSK_OK) {
    status = upload_exec(device, *exec, error);
    if (status == HUSK_OK) {
      graph->owners.fetch_add(1, std::memory_order_relaxed);
      *out = exec;
      return HUSK_OK;
    }
    device.driver.cuEventDestroy(exec->done);
    device.driver.cuGraphExecDestroy(exec->exec);
  }
  release(device, exec);
  return status;
}

husk_status exec_set_kernel(void* handle, void* pointer, uint32_t number, void* kernel_pointer,
                            const husk_launch* launch, husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_launch, launch, params, error));
  const Device& device = as_device(handle);
  const Exec& exec = *static_cast<Exec*>(pointer);
  const Kernel& kernel = as_kernel(kernel_pointer);
  HUSK_TRY(find_node(exec, number, NodeKind::kernel, "kernel", error));
  const Node& node = exec.nodes[number];
  if ((launch->cluster > 1 ? launch->cluster : 1) != node.cluster ||
      (launch->flags & HUSK_LAUNCH_COOPERATIVE) != node.flags) {
    return fail(error, HUSK_UNSUPPORTED,
                "node %u, kernel '%.60s': cluster and flags of an executable graph are fixed",
                number, kernel.symbol);
  }
  Current current(handle, error);
  HUSK_TRY(current.status);
  const CUDA_KERNEL_NODE_PARAMS_v2 params = kernel_params(kernel, *launch);
  const CUresult result = device.driver.cuGraphExecKernelNodeSetParams(exec.exec, node.first,
                                                                       &params);
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(device.driver, error, result, "cuGraphExecKernelNodeSetParams",
                     "node %u, kernel '%.50s', grid %u x %u x %u", number, kernel.symbol,
                     launch->grid[0], launch->grid[1], launch->grid[2]);
}

husk_status exec_set_copy(void* handle, void* pointer, uint32_t number, void* to, const void* from,
                          uint64_t size, husk_error* error) {
  const Device& device = as_device(handle);
  const Exec& exec = *static_cast<Exec*>(pointer);
  if (number < exec.count && exec.nodes[number].kind == NodeKind::empty && size == 0)
    return HUSK_OK;
  HUSK_TRY(find_node(exec, number, NodeKind::copy, "copy", error));
  Current current(handle, error);
  HUSK_TRY(current.status);
  const CUDA_MEMCPY3D_v2 params = copy_params(to, from, size);
  const CUresult result = device.driver.cuGraphExecMemcpyNodeSetParams(
      exec.exec, exec.nodes[number].first, &params, device.context);
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return patch_fail(device, error, result, "cuGraphExecMemcpyNodeSetParams", number, "copy");
}

husk_status exec_set_fill(void* handle, void* pointer, uint32_t number, void* to, uint64_t pattern,
                          uint32_t width, uint64_t count, husk_error* error) {
  const Device& device = as_device(handle);
  Exec& exec = *static_cast<Exec*>(pointer);
  if (number < exec.count && exec.nodes[number].kind == NodeKind::empty && count == 0)
    return HUSK_OK;
  HUSK_TRY(find_node(exec, number, NodeKind::fill, "fill", error));
  if (!is_width(width)) {
    return fail(error, HUSK_INVALID_ARGUMENT, "a fill has elements of 1, 2, 4 or 8 bytes, not %u",
                width);
  }
  Node& node = exec.nodes[number];
  const Fill fill = {as_address(to), pattern, count, width};
  const bool wide = node.kind == NodeKind::wide_fill;
  if (wide ? width != 8 : width == 8 && !has_equal_halves(fill)) {
    return fail(error, HUSK_UNSUPPORTED,
                "node %u: a fill of 8-byte elements with unequal halves needs another node: build "
                "the graph "
                "again",
                number);
  }
  Current current(handle, error);
  HUSK_TRY(current.status);
  const CUresult result = set_fill(device, exec, node, fill);
  if (result != CUDA_SUCCESS)
    return patch_fail(device, error, result, "cuGraphExecMemsetNodeSetParams", number, "fill");
  node.fill = fill;
  return HUSK_OK;
}

husk_status exec_launch(void* handle, void* pointer, void* stream, husk_error* error) {
  Device& device = as_device(handle);
  const Driver& driver = device.driver;
  Exec& exec = *static_cast<Exec*>(pointer);
  Current current(handle, error);
  HUSK_TRY(current.status);
  HUSK_TRY(check_group(device, "a graph", error));
  const NvtxRange range(device.nvtx, "husk graph");
  CUresult result = driver.cuGraphLaunch(exec.exec, as_stream(stream));
  if (result != CUDA_SUCCESS)
    return driver_fail(driver, error, result, "cuGraphLaunch", "graph of %u nodes", exec.count);
  result = driver.cuEventRecord(exec.done, as_stream(stream));
  if (result == CUDA_SUCCESS) {
    exec.launched = true;
    return check_work(device, stream, error, "a graph of %u nodes", exec.count);
  }
  let_end(device, {as_stream(stream), nullptr});  // without the event only this tells the end
  return driver_fail(driver, error, result, "cuEventRecord", "graph of %u nodes", exec.count);
}

void exec_destroy(void* handle, void* pointer) {
  if (!pointer) return;
  const Device& device = as_device(handle);
  Exec* exec = static_cast<Exec*>(pointer);
  Current current(handle);
  // The driver would let a launch in flight end after this call, but the caller may free the memory
  // that the launch uses as soon as this function returns.
  if (exec->launched) let_end(device, {nullptr, exec->done});
  device.driver.cuGraphExecDestroy(exec->exec);
  device.driver.cuEventDestroy(exec->done);
  drop_graph(device, exec->graph);
  release(device, exec);
}

}  // namespace husk::cuda
