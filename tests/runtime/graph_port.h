// The port of the host with graphs of copies, fills and kernels, which run in any order that their
// edges allow.
#pragma once

#include <cstring>
#include <vector>

#include <husk/port_host.h>

namespace husk::test {

struct HostGraph {
  struct Node {
    void* to;
    const void* from;  // null for a fill
    uint64_t pattern, count;
    uint32_t width;
    std::vector<uint32_t> next;             // the nodes that wait for this one
    uint32_t before = 0;                    // the number of nodes that this one waits for
    void* kernel = nullptr;                 // null for a copy and a fill
    husk_launch launch = HUSK_LAUNCH_INIT;  // whose parameters are the session's, which stay
  };
  std::vector<Node> nodes;

  void add(Node node, const husk_graph_edge* edges, uint32_t count) {
    const auto index = static_cast<uint32_t>(nodes.size());
    for (uint32_t e = 0; e < count; ++e) nodes[edges[e].from].next.push_back(index);
    node.before = count;
    nodes.push_back(std::move(node));
  }
  // Runs the node that became ready last, so that nodes without an edge between them seldom run in
  // the order of their steps.
  void run(const husk_port* port, void* device) const {
    std::vector<uint32_t> ready, waits;
    for (uint32_t n = 0; n < nodes.size(); ++n) {
      waits.push_back(nodes[n].before);
      if (waits[n] == 0) ready.push_back(n);
    }
    husk_error error = {};
    while (!ready.empty()) {
      const Node& node = nodes[ready.back()];
      ready.pop_back();
      if (node.kernel)
        port->launch(device, nullptr, node.kernel, &node.launch, &error);
      else if (node.from)
        port->copy(device, nullptr, node.to, node.from, node.count, &error);
      else
        port->fill(device, nullptr, node.to, node.pattern, node.width, node.count, &error);
      for (const uint32_t n : node.next)
        if (--waits[n] == 0) ready.push_back(n);
    }
  }
};

inline const husk_port* graph_port() {
  static const husk_port_graphs graphs = [] {
    husk_port_graphs g = {};
    g.struct_size = sizeof(g);
    g.graph_create = [](void*, void** graph, husk_error*) {
      *graph = new HostGraph();
      return husk_status{HUSK_OK};
    };
    g.graph_add_kernel = [](void*, void* graph, void* kernel, const husk_launch* launch,
                            const husk_graph_edge* edges, uint32_t count, husk_error*) {
      HostGraph::Node node = {};
      node.kernel = kernel;
      node.launch = *launch;
      static_cast<HostGraph*>(graph)->add(std::move(node), edges, count);
      return husk_status{HUSK_OK};
    };
    g.exec_set_kernel = [](void*, void* exec, uint32_t node, void* kernel,
                           const husk_launch* launch, husk_error*) {
      HostGraph::Node& n = static_cast<HostGraph*>(exec)->nodes[node];
      n.kernel = kernel;
      n.launch = *launch;
      return husk_status{HUSK_OK};
    };
    g.graph_add_copy = [](void*, void* graph, void* to, const void* from, uint64_t size,
                          const husk_graph_edge* edges, uint32_t count, husk_error*) {
      static_cast<HostGraph*>(graph)->add({to, from, 0, size, 1, {}}, edges, count);
      return husk_status{HUSK_OK};
    };
    g.graph_add_fill = [](void*, void* graph, void* to, uint64_t pattern, uint32_t width,
                          uint64_t n, const husk_graph_edge* edges, uint32_t count, husk_error*) {
      static_cast<HostGraph*>(graph)->add({to, nullptr, pattern, n, width, {}}, edges, count);
      return husk_status{HUSK_OK};
    };
    g.graph_instantiate = [](void*, void* graph, void** exec, husk_error*) {
      *exec = new HostGraph(*static_cast<HostGraph*>(graph));
      return husk_status{HUSK_OK};
    };
    g.graph_destroy = [](void*, void* graph) { delete static_cast<HostGraph*>(graph); };
    g.exec_set_copy = [](void*, void* exec, uint32_t node, void* to, const void* from,
                         uint64_t size, husk_error*) {
      HostGraph::Node& n = static_cast<HostGraph*>(exec)->nodes[node];
      n.to = to;
      n.from = from;
      n.count = size;
      return husk_status{HUSK_OK};
    };
    g.exec_set_fill = [](void*, void* exec, uint32_t node, void* to, uint64_t pattern,
                         uint32_t width, uint64_t count, husk_error*) {
      HostGraph::Node& n = static_cast<HostGraph*>(exec)->nodes[node];
      n.to = to;
      n.pattern = pattern;
      n.width = width;
      n.count = count;
      return husk_status{HUSK_OK};
    };
    g.exec_launch = [](void* device, void* exec, void*, husk_error*) {
      static_cast<HostGraph*>(exec)->run(husk_port_host(), device);
      return husk_status{HUSK_OK};
    };
    g.exec_destroy = [](void*, void* exec) { delete static_cast<HostGraph*>(exec); };
    return g;
  }();
  static const husk_port port = [] {
    husk_port p = *husk_port_host();
    p.graphs = &graphs;
    return p;
  }();
  return &port;
}

}  // namespace husk::test
