// The largest sizes of a variant's buffers that the ranges of its inputs allow, and the plan for
// these sizes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/planner.h"

namespace husk::compiler {

// Sizes of inputs by name: "x.0" is dimension 0 of tensor input x, "n" is the int input n.
using InputSizes = std::map<std::string, int64_t>;

// Checks that every name is an input of some function of the program, and that its size is in range
// there. Returns an error text, or an empty string.
std::string check_sizes(const fb::Program& program, const InputSizes& sizes);

struct BoundedPlan {
  // Plans as a session does. `sizes` narrow the ranges of the inputs; names that are not inputs of
  // this function are ignored.
  BoundedPlan(const Code& code, const InputSizes& sizes);
  // Does not plan. `dims` are the ranges of the inputs' dimensions, as find_intervals takes them.
  BoundedPlan(const Code& code, const std::vector<Interval>& dims);

  struct ArenaBuffer {
    uint32_t row;    // among the buffers of the variant
    bool on_demand;  // its size depends on data and is unbounded: allocated during a run
    bool unbounded;  // its size depends on shapes and is unbounded: planned at each resize
  };

  const Code& code;
  std::vector<Interval> intervals;  // by register
  Array<Access> accesses;
  std::vector<ArenaBuffer> arena;  // the buffers of the arena, in the order of the variant
  std::vector<Block> blocks;       // by arena buffer
  ByDevice<Planned> planned = {};
  bool is_planned = false, out_of_memory = false;

  // Whether some step uses the arena buffer.
  bool is_used(size_t i) const { return blocks[i].first <= blocks[i].last; }
  const ArenaBuffer* first_unbounded() const;  // null if there is none
  uint32_t on_demand_count() const;
};

}  // namespace husk::compiler
