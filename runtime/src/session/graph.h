// The steps of a function as a graph of the device. Its edges come from the accesses of the steps;
// runs patch the arguments that change.
#pragma once

#include <husk/port.h>

#include "plan/dependences.h"

namespace husk::runtime {

struct Frame;
struct MemoryPlan;

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Builds a graph for the frame's plan and arguments. A function with steps that a graph cannot
  // have (extern ops, reads, a grid that is empty at this shape) gets no graph, which is not an
  // error.
  Status build(Frame& frame, husk_error* error);
  // Patches the nodes whose arguments changed, and launches. `nothing_changed` means that no
  // argument was written since the last run. `*launched` is false if the driver rejected a patch.
  Status run(Frame& frame, void* stream, bool nothing_changed, bool* launched, husk_error* error);
  // Notes that a run used the list of steps, so that the graph may have older arguments than the
  // frame.
  void fall_behind() { current_ = false; }
  // Destroys the graph.
  void reset(const Frame& frame);

  bool exists() const { return exec_ != nullptr; }
  // Returns whether there is a graph for the plan with this hash. Edges are right for one plan
  // only.
  bool fits(uint64_t plan_hash) const { return exec_ && plan_hash_ == plan_hash; }
  static uint64_t hash_plan(const MemoryPlan& memory);

  uint32_t nodes = 0, edges = 0, programmatic_edges = 0;
  uint64_t patched = 0;

 private:
  // The amount of work of a node: the grid of a launch, the length of a copy or fill.
  struct NodeSize {
    uint32_t grid[3];
    uint64_t length;
  };

  Status add_nodes(Frame& frame, void* graph, const Dependences& dependences, husk_error* error);
  Status patch(Frame& frame, uint32_t step, husk_error* error);
  bool changed(const Frame& frame, uint32_t step) const;
  void remember(const Frame& frame, uint32_t step);

  void* exec_ = nullptr;
  uint64_t plan_hash_ = 0;
  bool current_ = false;    // the graph has the arguments that the frame wrote last
  Array<uint64_t> values_;  // the arguments in the graph
  Array<NodeSize> sizes_;   // by step, as in the graph
};

}  // namespace husk::runtime
