// Graphs and their nodes.
#pragma once

#include "schedule.h"

namespace fake {

struct Copy {
  CUdeviceptr to, from;
  uint64_t size;
};
struct Fill {
  CUdeviceptr to;
  uint32_t value, element;
  uint64_t pitch, columns, rows;
  uint64_t extent() const { return (rows - 1) * pitch + columns * element; }
};

struct Graph;

// The action of a node. Each exec has its own copy.
struct Action {
  const char* kind = "empty";
  LaunchShape shape = {};
  Launch launch = {};
  Copy copy = {};
  Fill fill = {};
  TaskPointer recorded;          // "recorded": a task of a stream that was captured
  const Graph* child = nullptr;  // "child": a graph that belongs to the node
};

struct Node : Object {
  explicit Node(const Graph& owner) : Object("graph node", false), graph(owner) {}
  const Graph& graph;
  Action action;
  std::vector<Node*> after, early;
};

struct Graph : Object {
  explicit Graph(bool is_counted = true) : Object("graph", is_counted) {}
  std::vector<Node*> nodes;
};

}  // namespace fake
