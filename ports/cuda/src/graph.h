// Explicit graphs. Each node of the port is one node of the driver, except a fill of eight bytes
// with unequal halves, which is two: edges to the node end in the first, edges from it begin at the
// last.
#pragma once

#include <atomic>

#include "module.h"

namespace husk::cuda {

enum class NodeKind : uint32_t {
  kernel,
  copy,
  fill,
  wide_fill,
  captured,
  empty  // a copy or fill of 0 bytes, or captured work that is none
};

struct Fill {
  CUdeviceptr to;
  uint64_t pattern;
  uint64_t count;
  uint32_t width;
};

struct Node {
  CUgraphNode first, last;
  NodeKind kind;
  uint32_t cluster, flags;  // kernel nodes: the attributes, which an exec cannot change
  Fill fill;                // fill nodes: the current parameters
};

// The driver identifies the nodes of an exec by the handles of the graph that it was instantiated
// from, so a graph lives as long as its execs.
struct Graph {
  CUgraph graph;
  std::atomic<uint32_t> owners;  // the caller of graph_create and each exec
  Node* nodes;
  uint32_t count, capacity;
};

struct Exec {
  CUgraphExec exec;
  Graph* graph;
  CUevent done;  // recorded after each launch
  bool launched;
  uint32_t count;
  Node nodes[1];  // the allocation has room for `count`
};

// Gives up one ownership; the last one destroys the graph.
void drop_graph(const Device& device, Graph* graph);

// The driver's parameters of a node.
CUDA_KERNEL_NODE_PARAMS_v2 kernel_params(const Kernel& kernel, const husk_launch& launch);
CUDA_MEMCPY3D_v2 copy_params(void* to, const void* from, uint64_t size);
CUDA_MEMSET_NODE_PARAMS_v1 fill_params(const Fill& fill);
CUDA_MEMSET_NODE_PARAMS_v1 wide_fill_params(const Fill& fill, bool high);

inline bool has_equal_halves(const Fill& fill) {
  return static_cast<uint32_t>(fill.pattern) == static_cast<uint32_t>(fill.pattern >> 32);
}
inline bool is_width(uint32_t width) {
  return width == 1 || width == 2 || width == 4 || width == 8;
}

// The functions below are for the table of the port; husk/port.h says what each does. Captured work
// is the driver's graph of it.
husk_status capture_begin(void* device, void* stream, husk_error* error);
husk_status capture_end(void* device, void* stream, void** captured, husk_error* error);
husk_status graph_add_captured(void* device, void* graph, void* captured,
                               const husk_graph_edge* edges, uint32_t edge_count,
                               husk_error* error);
void captured_destroy(void* device, void* captured);
husk_status graph_instantiate(void* device, void* graph, void** exec, husk_error* error);
husk_status exec_set_kernel(void* device, void* exec, uint32_t node, void* kernel,
                            const husk_launch* launch, husk_error* error);
husk_status exec_set_copy(void* device, void* exec, uint32_t node, void* to, const void* from,
                          uint64_t size, husk_error* error);
husk_status exec_set_fill(void* device, void* exec, uint32_t node, void* to, uint64_t pattern,
                          uint32_t width, uint64_t count, husk_error* error);
husk_status exec_launch(void* device, void* exec, void* stream, husk_error* error);
void exec_destroy(void* device, void* exec);

extern const husk_port_graphs kGraphs;

}  // namespace husk::cuda
