// Places buffers in the arena. The runtime plans with it, the compiler prints what it will come to.
#pragma once

#include "order.h"

namespace husk {

constexpr uint64_t kArenaAlign = 256;  // of the arena itself, and so the most that a buffer may ask for

// One buffer to place: alive from step `first` to `last`, both included. first > last: never used, takes no room.
struct Block {
  uint64_t size, align;
  uint32_t first, last;
  uint64_t offset;  // written by the planner
};

struct Planned {
  uint64_t peak = 0;         // bytes of the arena; kTooLarge where the sizes cannot be added up, and then no offset is right
  uint64_t lower_bound = 0;  // the largest sum of sizes alive at one step: no plan of the list order can be smaller
};
constexpr uint64_t kTooLarge = 1ull << 62;

// How much the planner may do for a smaller plan: it stops at 1/goal over the lower bound, or after so much work, in units of
// 1 to 2 ns. A plan must come out the same everywhere, so no clock decides. tests/bench measures both.
struct Effort {
  uint64_t work;
  uint32_t goal;
};
constexpr Effort kPlanSoon = {1500000, 64};     // when a session plans
constexpr Effort kPlanWell = {600000000, 100};  // for the order that a file carries

class Planner {
 public:
  // Room for plans of up to `blocks` blocks; place allocates nothing.
  Status reserve(const husk_allocator& allocator, size_t blocks, husk_error* error);

  // Writes every block's offset. Two blocks share bytes only where their lives do not meet or, if `shareable` is given,
  // where its row says that they may (row i, bit j). `order`, unless null, has every block once: first fit in that order is
  // tried first. In the order of the offsets of a plan it gives no larger one than that.
  Planned place(Block* blocks, size_t count, const BitRows* shareable, const uint32_t* order = nullptr,
                const Effort& effort = kPlanSoon);

 private:
  bool enter(size_t count);
  uint64_t lower_bound();
  void fill();
  void keep();                     // remembers the blocks' offsets if they make the smallest plan so far
  uint32_t random(uint32_t n);     // below n
  void improve(uint64_t goal, uint64_t work);
  void load(uint64_t limit);
  bool squeeze(uint64_t limit, uint64_t work);
  bool find_near(uint32_t i);
  bool find_gap(uint32_t i, uint64_t limit);
  void drive_out(uint32_t i, uint64_t limit);
  uint64_t weigh(uint64_t from, uint64_t to);
  uint32_t find_placed(uint64_t offset) const;
  void insert(uint32_t i);
  void remove(uint32_t i);
  void push(uint32_t i);
  uint32_t pop();

  Block* blocks_ = nullptr;
  const BitRows* shareable_ = nullptr;
  uint64_t work_ = 0;             // done so far
  uint64_t peak_ = 0;             // of the best plan so far
  uint32_t random_ = 0;
  uint32_t count_ = 0, placed_count_ = 0, rival_count_ = 0;
  uint32_t waiting_ = 0, next_ = 0;   // how many wait, and a turn before which none does
  Array<uint64_t> best_;          // by block: its offset in that plan
  Array<uint64_t> keys_;          // to sort by
  Array<uint8_t> waits_;          // by turn: 1 for a block that is not placed
  Array<uint32_t> lists_;         // all of these:
  uint32_t* ranked_ = nullptr;    // blocks that take room, by first step
  uint32_t *from_ = nullptr, *to_ = nullptr;   // by block: the ranks of those whose lives may meet its own
  uint32_t* queue_ = nullptr;     // by turn: a block
  uint32_t* turn_ = nullptr;      // by block: its turn
  uint32_t* placed_ = nullptr;    // by offset
  uint32_t* rivals_ = nullptr;    // what is placed, by offset, and may not share with the block at hand
  uint32_t* weight_ = nullptr;    // by block: how often it was moved
};

}  // namespace husk
