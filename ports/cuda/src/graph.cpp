#include "graph.h"

#include <cstring>
#include <new>

#include <husk/detail/struct_size.h>

#include "ops/group.h"

namespace husk::cuda {

CUDA_KERNEL_NODE_PARAMS_v2 kernel_params(const Kernel& kernel, const husk_launch& launch) {
  CUDA_KERNEL_NODE_PARAMS_v2 params = {};
  params.func = kernel.function;
  params.gridDimX = launch.grid[0];
  params.gridDimY = launch.grid[1];
  params.gridDimZ = launch.grid[2];
  params.blockDimX = launch.block[0];
  params.blockDimY = launch.block[1];
  params.blockDimZ = launch.block[2];
  params.sharedMemBytes = launch.shared_bytes;
  params.kernelParams = launch.params;
  return params;
}

CUDA_MEMCPY3D_v2 copy_params(void* to, const void* from, uint64_t size) {
  CUDA_MEMCPY3D_v2 params = {};
  params.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  params.srcDevice = as_address(from);
  params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  params.dstDevice = as_address(to);
  params.WidthInBytes = size;
  params.Height = 1;
  params.Depth = 1;
  return params;
}

CUDA_MEMSET_NODE_PARAMS_v1 fill_params(const Fill& fill) {
  CUDA_MEMSET_NODE_PARAMS_v1 params = {};
  const uint32_t width = fill.width == 8 ? 4 : fill.width;
  params.dst = fill.to;
  params.value = static_cast<uint32_t>(width == 4 ? fill.pattern
                                                  : fill.pattern & ((1u << 8 * width) - 1));
  params.elementSize = width;
  params.width = fill.count * (fill.width / width);
  params.height = 1;
  return params;
}

CUDA_MEMSET_NODE_PARAMS_v1 wide_fill_params(const Fill& fill, bool high) {
  CUDA_MEMSET_NODE_PARAMS_v1 params = {};
  params.dst = fill.to + (high ? 4 : 0);
  params.pitch = 8;
  params.value = static_cast<uint32_t>(high ? fill.pattern >> 32 : fill.pattern);
  params.elementSize = 4;
  params.width = 1;
  params.height = fill.count;
  return params;
}

void drop_graph(const Device& device, Graph* graph) {
  if (graph->owners.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  device.driver.cuGraphDestroy(graph->graph);
  if (graph->nodes) release(device, graph->nodes);
  release(device, graph);
}

namespace {

// The edges into a new node in the driver's form.
class Edges {
 public:
  explicit Edges(const Device& device) : device_(device) {}
  ~Edges() {
    if (nodes != nodes_) release(device_, nodes);
  }
  Edges(const Edges&) = delete;
  Edges& operator=(const Edges&) = delete;

  husk_status collect(const Graph& graph, const husk_graph_edge* edges, uint32_t edge_count,
                      NodeKind to, husk_error* error) {
    if (edge_count > kInline) {
      void* memory = allocate(device_, edge_count * (sizeof *nodes + sizeof *data),
                              "the edges of a node", error);
      if (!memory) return error->code;
      nodes = static_cast<CUgraphNode*>(memory);
      data = reinterpret_cast<CUgraphEdgeData*>(nodes + edge_count);
    }
    count = edge_count;
    for (uint32_t i = 0; i < edge_count; ++i) {
      if (edges[i].from >= graph.count) {
        return fail(error, HUSK_INVALID_ARGUMENT,
                    "edge %u of node %u comes from node %u, which is not there yet", i, graph.count,
                    edges[i].from);
      }
      const Node& from = graph.nodes[edges[i].from];
      nodes[i] = from.last;
      data[i] = {};
      // Programmatic edges exist between two kernels only; any other edge is a full one.
      if (!edges[i].programmatic || to != NodeKind::kernel || from.kind != NodeKind::kernel)
        continue;
      data[i].from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
      data[i].type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
      programmatic = true;
    }
    return HUSK_OK;
  }

 private:
  static constexpr uint32_t kInline = 32;
  const Device& device_;
  CUgraphNode nodes_[kInline];
  CUgraphEdgeData data_[kInline];

 public:
  CUgraphNode* nodes = nodes_;
  CUgraphEdgeData* data = data_;
  uint32_t count = 0;
  bool programmatic = false;
};

// Makes room for one more node before the driver adds it, so that a node of the driver is always
// recorded.
husk_status reserve(const Device& device, Graph* graph, husk_error* error) {
  if (graph->count < graph->capacity) return HUSK_OK;
  const uint32_t capacity = graph->capacity ? graph->capacity * 2 : 64;
  void* memory = allocate(device, capacity * sizeof(Node), "the nodes of a graph", error);
  if (!memory) return error->code;
  if (graph->nodes) {
    memcpy(memory, graph->nodes, graph->count * sizeof(Node));
    release(device, graph->nodes);
  }
  graph->nodes = static_cast<Node*>(memory);
  graph->capacity = capacity;
  return HUSK_OK;
}

// `name` is that of the kernel, for an error.
husk_status add_kernel_node(const Device& device, const Graph& graph, const char* name,
                            const CUDA_KERNEL_NODE_PARAMS_v2& kernel, const Edges& edges,
                            CUgraphNode* node, husk_error* error) {
  const Driver& driver = device.driver;
  CUresult result;
  const char* call;
  if (edges.programmatic && driver.cuGraphAddNode) {
    call = "cuGraphAddNode";
    CUgraphNodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_KERNEL;
    params.kernel = kernel;
    result = driver.cuGraphAddNode(node, graph.graph, edges.nodes, edges.data, edges.count,
                                   &params);
  } else {  // cuGraphAddNode came with CUDA 12.3; without it programmatic edges become full ones
    call = "cuGraphAddKernelNode";
    result = driver.cuGraphAddKernelNode(node, graph.graph, edges.nodes, edges.count, &kernel);
  }
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(driver, error, result, call, "node %u, kernel '%.50s', grid %u x %u x %u",
                     graph.count, name, kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ);
}

husk_status set_node_attributes(const Device& device, const Graph& graph, const Kernel& kernel,
                                const husk_launch& launch, CUgraphNode node, husk_error* error) {
  CUlaunchAttribute attributes[2];
  const unsigned int count = launch_attributes(launch, attributes);
  for (unsigned int i = 0; i < count; ++i) {
    const CUresult result = device.driver.cuGraphKernelNodeSetAttribute(node, attributes[i].id,
                                                                        &attributes[i].value);
    if (result == CUDA_SUCCESS) continue;
    device.driver.cuGraphDestroyNode(node);
    return driver_fail(
        device.driver, error, result, "cuGraphKernelNodeSetAttribute",
        "node %u, kernel '%.50s', %s", graph.count, kernel.symbol,
        attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE ? "cooperative" : "cluster");
  }
  return HUSK_OK;
}

husk_status graph_create(void* handle, void** out, husk_error* error) {
  *out = nullptr;
  const Device& device = as_device(handle);
  void* memory = allocate(device, sizeof(Graph), "a graph", error);
  if (!memory) return error->code;
  Graph* graph = new (memory) Graph();
  graph->owners.store(1, std::memory_order_relaxed);
  Current current(handle, error);
  if (current.status == HUSK_OK) {
    const CUresult result = device.driver.cuGraphCreate(&graph->graph, 0);
    if (result == CUDA_SUCCESS) {
      *out = graph;
      return HUSK_OK;
    }
    driver_fail(device.driver, error, result, "cuGraphCreate", "graph of device %d", device.index);
  }
  release(device, graph);
  return error->code;
}

husk_status graph_add_kernel(void* handle, void* pointer, void* kernel_pointer,
                             const husk_launch* launch, const husk_graph_edge* from,
                             uint32_t edge_count, husk_error* error) {
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_launch, launch, params, error));
  const Device& device = as_device(handle);
  Graph* graph = static_cast<Graph*>(pointer);
  const Kernel& kernel = as_kernel(kernel_pointer);
  Current current(handle, error);
  HUSK_TRY(current.status);
  Edges edges(device);
  HUSK_TRY(edges.collect(*graph, from, edge_count, NodeKind::kernel, error));
  HUSK_TRY(reserve(device, graph, error));
  Node node = {};
  HUSK_TRY(add_kernel_node(device, *graph, kernel.symbol, kernel_params(kernel, *launch), edges,
                           &node.first, error));
  HUSK_TRY(set_node_attributes(device, *graph, kernel, *launch, node.first, error));
  node.last = node.first;
  node.kind = NodeKind::kernel;
  node.cluster = launch->cluster > 1 ? launch->cluster : 1;
  node.flags = launch->flags & HUSK_LAUNCH_COOPERATIVE;
  graph->nodes[graph->count++] = node;
  return HUSK_OK;
}

// A copy or fill of 0 bytes is an empty node, so that it keeps its number and its edges.
husk_status add_empty(const Device& device, Graph* graph, const Edges& edges, husk_error* error) {
  Node node = {};
  node.kind = NodeKind::empty;
  const CUresult result = device.driver.cuGraphAddEmptyNode(&node.first, graph->graph, edges.nodes,
                                                            edges.count);
  if (result != CUDA_SUCCESS) {
    return driver_fail(device.driver, error, result, "cuGraphAddEmptyNode", "node %u",
                       graph->count);
  }
  node.last = node.first;
  graph->nodes[graph->count++] = node;
  return HUSK_OK;
}

husk_status graph_add_copy(void* handle, void* pointer, void* to, const void* from, uint64_t size,
                           const husk_graph_edge* from_nodes, uint32_t edge_count,
                           husk_error* error) {
  const Device& device = as_device(handle);
  Graph* graph = static_cast<Graph*>(pointer);
  Current current(handle, error);
  HUSK_TRY(current.status);
  Edges edges(device);
  HUSK_TRY(edges.collect(*graph, from_nodes, edge_count, NodeKind::copy, error));
  HUSK_TRY(reserve(device, graph, error));
  if (size == 0) return add_empty(device, graph, edges, error);
  Node node = {};
  node.kind = NodeKind::copy;
  const CUDA_MEMCPY3D_v2 params = copy_params(to, from, size);
  const CUresult result = device.driver.cuGraphAddMemcpyNode(&node.first, graph->graph, edges.nodes,
                                                             edges.count, &params, device.context);
  if (result != CUDA_SUCCESS) {
    return driver_fail(device.driver, error, result, "cuGraphAddMemcpyNode",
                       "node %u, copy of %llu bytes to %p", graph->count,
                       static_cast<unsigned long long>(size), to);
  }
  node.last = node.first;
  graph->nodes[graph->count++] = node;
  return HUSK_OK;
}

husk_status add_fill_node(const Device& device, const Graph& graph,
                          const CUDA_MEMSET_NODE_PARAMS_v1& params, const CUgraphNode* from,
                          uint32_t count, CUgraphNode* node, husk_error* error) {
  const CUresult result = device.driver.cuGraphAddMemsetNode(node, graph.graph, from, count,
                                                             &params, device.context);
  if (result == CUDA_SUCCESS) return HUSK_OK;
  return driver_fail(device.driver, error, result, "cuGraphAddMemsetNode",
                     "node %u, fill of %zu x %zu elements", graph.count, params.width,
                     params.height);
}

husk_status graph_add_fill(void* handle, void* pointer, void* to, uint64_t pattern, uint32_t width,
                           uint64_t count, const husk_graph_edge* from, uint32_t edge_count,
                           husk_error* error) {
  const Device& device = as_device(handle);
  Graph* graph = static_cast<Graph*>(pointer);
  if (!is_width(width)) {
    return fail(error, HUSK_INVALID_ARGUMENT, "a fill has elements of 1, 2, 4 or 8 bytes, not %u",
                width);
  }
  Current current(handle, error);
  HUSK_TRY(current.status);
  Edges edges(device);
  HUSK_TRY(edges.collect(*graph, from, edge_count, NodeKind::fill, error));
  HUSK_TRY(reserve(device, graph, error));
  if (count == 0) return add_empty(device, graph, edges, error);
  Node node = {};
  node.fill = {as_address(to), pattern, count, width};
  node.kind = width < 8 || has_equal_halves(node.fill) ? NodeKind::fill : NodeKind::wide_fill;
  const bool wide = node.kind == NodeKind::wide_fill;
  HUSK_TRY(add_fill_node(device, *graph,
                         wide ? wide_fill_params(node.fill, false) : fill_params(node.fill),
                         edges.nodes, edges.count, &node.first, error));
  node.last = node.first;
  if (wide) {
    const husk_status status = add_fill_node(device, *graph, wide_fill_params(node.fill, true),
                                             &node.first, 1, &node.last, error);
    if (status != HUSK_OK) {
      device.driver.cuGraphDestroyNode(node.first);
      return status;
    }
  }
  graph->nodes[graph->count++] = node;
  return HUSK_OK;
}

void graph_destroy(void* handle, void* graph) {
  if (!graph) return;
  const Device& device = as_device(handle);
  Current current(handle);
  drop_graph(device, static_cast<Graph*>(graph));
}

// Whether captured work, a graph of one node, is a launch of the kernel with which ranks exchange
// tensors. That can be a node of the graph itself, and have programmatic edges.
bool read_exchange(const Device& device, CUgraph captured, CUDA_KERNEL_NODE_PARAMS_v2* launch) {
  const Driver& driver = device.driver;
  CUgraphNode node = nullptr;
  size_t count = 1;
  return device.group && driver.cuGraphKernelNodeGetParams &&
         driver.cuGraphGetNodes(captured, &node, &count) == CUDA_SUCCESS &&
         driver.cuGraphKernelNodeGetParams(node, launch) == CUDA_SUCCESS &&
         is_exchange(device, *launch);
}

husk_status add_exchange(const Device& device, Graph* graph,
                         const CUDA_KERNEL_NODE_PARAMS_v2& launch, const husk_graph_edge* from,
                         uint32_t edge_count, husk_error* error) {
  Edges edges(device);
  HUSK_TRY(edges.collect(*graph, from, edge_count, NodeKind::kernel, error));
  HUSK_TRY(reserve(device, graph, error));
  Node node = {};
  HUSK_TRY(add_kernel_node(device, *graph, "husk_exchange", launch, edges, &node.first, error));
  node.last = node.first;
  node.kind = NodeKind::kernel;
  graph->nodes[graph->count++] = node;
  return HUSK_OK;
}

}  // namespace

husk_status graph_add_captured(void* handle, void* pointer, void* captured,
                               const husk_graph_edge* from, uint32_t edge_count,
                               husk_error* error) {
  const Device& device = as_device(handle);
  const Driver& driver = device.driver;
  Graph* graph = static_cast<Graph*>(pointer);
  CUgraph child = static_cast<CUgraph>(captured);
  Current current(handle, error);
  HUSK_TRY(current.status);
  size_t nodes = 0;
  const char* call = "cuGraphGetNodes";
  CUresult result = driver.cuGraphGetNodes(child, nullptr, &nodes);
  CUDA_KERNEL_NODE_PARAMS_v2 exchange = {};
  if (result == CUDA_SUCCESS && nodes == 1 && read_exchange(device, child, &exchange))
    return add_exchange(device, graph, exchange, from, edge_count, error);
  Edges edges(device);
  HUSK_TRY(edges.collect(*graph, from, edge_count, NodeKind::captured, error));
  HUSK_TRY(reserve(device, graph, error));
  if (result == CUDA_SUCCESS && nodes == 0) return add_empty(device, graph, edges, error);
  Node node = {};
  node.kind = NodeKind::captured;
  if (result == CUDA_SUCCESS) {
    call = "cuGraphAddChildGraphNode";
    result = driver.cuGraphAddChildGraphNode(&node.first, graph->graph, edges.nodes, edges.count,
                                             child);
  }
  if (result != CUDA_SUCCESS) {
    return driver_fail(driver, error, result, call, "node %u, captured work of %zu nodes",
                       graph->count, nodes);
  }
  node.last = node.first;
  graph->nodes[graph->count++] = node;
  return HUSK_OK;
}

const husk_port_graphs kGraphs = {
    sizeof(husk_port_graphs),
    graph_create,
    graph_add_kernel,
    graph_add_copy,
    graph_add_fill,
    graph_instantiate,
    graph_destroy,
    exec_set_kernel,
    exec_set_copy,
    exec_set_fill,
    exec_launch,
    exec_destroy,
    capture_begin,
    capture_end,
    graph_add_captured,
    captured_destroy,
};

}  // namespace husk::cuda
