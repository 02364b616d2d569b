// A long search for a small arena. The compiler stores the resulting placement order in the
// file, since a session has no time for such a search.
#pragma once

#include <vector>

#include "plan/planner.h"

namespace husk::compiler {

// When the search stops.
struct Effort {
  uint64_t work;  // most work to do; a unit takes 1 to 2 ns
  uint32_t goal;  // a plan of at most (1 + 1/goal) times the lower bound is good enough
};
constexpr Effort kPlanWell = {600000000, 100};

class Search : private Planner {
 public:
  // Allocates memory for plans of up to `blocks` blocks.
  Status reserve(size_t blocks);

  // Writes the offset of every block of one device. Two blocks share bytes only if their lives do
  // not overlap.
  Planned place(Block* blocks, size_t count, const Effort& effort = kPlanWell,
                Device device = Device::target);

 private:
  void improve(uint64_t goal, uint64_t work);
  void load_best(uint64_t limit);
  bool place_waiting(uint64_t limit, uint64_t work);
  void place_by_eviction(uint32_t i, uint64_t limit);
  uint64_t eviction_cost(uint64_t from, uint64_t to);
  void evict(uint32_t i);
  void push(uint32_t i);
  uint32_t pop();

  // A block that is not placed waits in a queue of fixed order; its turn is its position there.
  uint32_t waiting_ = 0;          // number of waiting blocks
  uint32_t next_ = 0;             // no block with an earlier turn waits
  std::vector<uint8_t> waits_;    // by turn: 1 if the block waits
  std::vector<uint32_t> turn_;    // by block
  std::vector<uint32_t> weight_;  // by block: 1 + number of its moves, the cost of evicting it
};

}  // namespace husk::compiler
