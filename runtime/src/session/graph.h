// The steps of a function as graphs of the device, one for each segment whose steps can be nodes.
// Edges come from the accesses of the steps; runs patch the arguments that change.
#pragma once

#include <husk/port.h>

#include "plan/dependences.h"
#include "session/scratch.h"

namespace husk::runtime {

struct Frame;
struct MemoryPlan;

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Builds the graphs for the frame's plan and arguments. A segment with steps that a graph cannot
  // have (a read, an op that cannot be captured, a grid that is empty at this shape) gets none,
  // which is not an error. The session's work must be done.
  Status build(Frame& frame, husk_error* error);
  // Patches the nodes of a segment whose arguments changed, and launches. `nothing_changed` means
  // that no argument was written since the last run. `*launched` is false if the segment has no
  // graph for these arguments, or the driver rejected a patch.
  Status run(Frame& frame, uint32_t segment, void* stream, bool nothing_changed, bool* launched,
             husk_error* error);
  // Notes that a run used the list of a segment's steps, so that the graph may have older arguments
  // than the frame.
  void fall_behind(uint32_t segment) {
    if (segment < segments_.size()) segments_[segment].current = false;
  }
  // Destroys the graphs.
  void reset(const Frame& frame);
  // Gives device memory back too. The session's work must be done.
  void release(const Frame& frame);

  // The first step of a segment that its graph does not have. Steps with results for the host are
  // the last ones of their segment, and no part of a graph.
  uint32_t step_end(uint32_t segment) const { return segments_[segment].step_end; }
  // Returns whether the graphs are for the plan with this hash. Edges are right for one plan only.
  bool is_for(uint64_t plan_hash) const { return plan_hash_ == plan_hash; }
  // Returns whether another build would change nothing but arguments that runs patch.
  bool fits(const Frame& frame) const;
  static uint64_t hash_plan(const MemoryPlan& memory);

  uint32_t nodes = 0, edges = 0, programmatic_edges = 0;
  uint64_t patched = 0;

 private:
  // The entries of a segment in each list begin where those of the segment before it end.
  struct SegmentGraph {
    void* exec;         // null if the segment has no graph
    bool current;       // the graph has the arguments that the frame wrote last
    uint32_t step_end;  // the first step after those of the graph
    uint32_t registers_end, buffers_end, staged_end;
  };
  // A step in the graph: the number of its node, and the amount of its work: the grid of a launch,
  // the length of a copy or fill. kUnknown as the length means that the node has arguments that no
  // run has.
  struct StepNode {
    uint32_t number;
    uint32_t last;  // the node that later steps wait for
    uint32_t grid[3];
    uint64_t length;
  };
  static constexpr uint64_t kUnknown = UINT64_MAX;
  // A captured call is right as long as these registers and addresses are what they were.
  struct UsedRegister {
    uint32_t index;
    int64_t value;
  };
  struct UsedBuffer {
    uint32_t index;
    const uint8_t* base;
  };
  // An operand of a captured call in memory of the caller. The call works on a copy in `staging_`;
  // copy nodes before and after the call have the caller's address.
  struct StagedOperand {
    uint32_t argument, step;
    bool is_read, is_written;
    uint32_t before, after;  // the numbers of the copy nodes, or kNone
    uint64_t offset, length;
    uint8_t* address;
  };
  class Builder;

  uint32_t begin_of(uint32_t segment, uint32_t SegmentGraph::*end) const {
    return segment ? segments_[segment - 1].*end : 0;
  }
  bool has_same_calls(const Frame& frame, uint32_t segment) const;
  bool changed(const Frame& frame, uint32_t step) const;
  void remember(const Frame& frame, uint32_t step);
  Status patch(Frame& frame, uint32_t segment, uint32_t step, husk_error* error);
  Status patch_staged(Frame& frame, uint32_t segment, husk_error* error);
  Status patch_all(Frame& frame, uint32_t segment, husk_error* error);

  uint64_t plan_hash_ = 0;  // 0: no build has succeeded
  bool complete_ = false;   // no segment lacks a graph for a reason that depends on shapes
  Array<SegmentGraph> segments_;
  Array<uint64_t> values_;  // the arguments in the graphs
  Array<StepNode> steps_;
  List<UsedRegister> registers_;
  List<UsedBuffer> buffers_;
  List<StagedOperand> staged_;
  ScratchBuffer staging_ = {};
};

}  // namespace husk::runtime
