// A function's body as an explicit graph of the device: edges from the accesses, patched from run to run.
#pragma once

#include "order.h"

#include <husk/port.h>

namespace husk {

struct Frame;

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Builds and instantiates for the frame's registers and addresses. A function that no graph can hold (extern ops, reads,
  // an empty grid now) is left without one, which is no error.
  Status build(Frame& frame, husk_error* error);
  // Patches what changed and launches. `same`: no argument was written since the last run. `*done` is false where the
  // driver refused a patch: run the list instead.
  Status run(Frame& frame, void* stream, bool same, bool* done, husk_error* error);
  // Says that a run went by without the graph: what it holds may be older than the frame's last arguments.
  void fall_behind() { current_ = false; }
  void reset(const Frame& frame);

  bool exists() const { return exec_ != nullptr; }
  // Edges hold for this layout and plan only.
  bool fits(uint64_t plan_hash) const { return exec_ && plan_hash_ == plan_hash; }
  static uint64_t hash_plan(const Frame& frame);

  uint32_t nodes = 0, edges = 0, programmatic_edges = 0;
  uint64_t patched = 0;

 private:
  Status add_nodes(Frame& frame, void* graph, const Order& order, husk_error* error);
  Status patch(Frame& frame, uint32_t step, husk_error* error);
  bool changed(const Frame& frame, uint32_t step) const;
  void remember(const Frame& frame, uint32_t step);

  void* exec_ = nullptr;
  uint64_t plan_hash_ = 0;
  bool current_ = false;         // holds the frame's arguments as they were last written
  Array<uint64_t> values_;       // what the exec holds: by argument
  Array<uint32_t> grids_;        // three a step
};

}  // namespace husk
