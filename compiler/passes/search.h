// Searches long for a small arena, so that a file carries a good order of placement.
#pragma once

#include <vector>

#include "planner.h"

namespace husk::compiler {

// It stops at 1/goal over the lower bound, or after so much work, in units of 1 to 2 ns.
struct Effort {
  uint64_t work;
  uint32_t goal;
};
constexpr Effort kPlanWell = {600000000, 100};

class Search : private Planner {
 public:
  // Room for plans of up to `blocks` blocks.
  Status reserve(size_t blocks);

  // Writes every block's offset. Two blocks share bytes only where their lives do not meet.
  Planned place(Block* blocks, size_t count, const Effort& effort = kPlanWell);

 private:
  void improve(uint64_t goal, uint64_t work);
  void load(uint64_t limit);
  bool squeeze(uint64_t limit, uint64_t work);
  void drive_out(uint32_t i, uint64_t limit);
  uint64_t weigh(uint64_t from, uint64_t to);
  void remove(uint32_t i);
  void push(uint32_t i);
  uint32_t pop();

  uint32_t waiting_ = 0, next_ = 0;   // how many wait, and a turn before which none does
  std::vector<uint8_t> waits_;        // by turn: 1 for a block that is not placed
  std::vector<uint32_t> turn_;        // by block: its turn in the queue
  std::vector<uint32_t> weight_;      // by block: how often it was moved
};

}  // namespace husk::compiler
