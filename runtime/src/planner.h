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
constexpr uint64_t kOpen = UINT64_MAX;   // the offset of a block that is not placed

class Planner {
 public:
  // Room for plans of up to `blocks` blocks; place allocates nothing.
  Status reserve(const husk_allocator& allocator, size_t blocks, husk_error* error);

  // Writes every block's offset. Two blocks share bytes only where their lives do not meet or, if `shareable` is given,
  // where its row says that they may (row i, bit j). `order`, unless null, has every block once: first fit in that order is
  // tried first. In the order of the offsets of a plan it gives no larger one than that.
  Planned place(Block* blocks, size_t count, const BitRows* shareable, const uint32_t* order = nullptr);

 protected:
  bool enter(Block* blocks, size_t count);   // false if the sizes are too large to be added up
  uint64_t lower_bound();
  void queue_given(const uint32_t* order, size_t count);   // what takes room, in that order
  void queue_by_area();
  void fill();                     // first fit in the order of the queue
  void keep();                     // remembers the blocks' offsets if they make the smallest plan so far
  void take_best();                // gives the blocks the offsets of that plan
  bool find_gap(uint32_t i, uint64_t limit);
  void insert(uint32_t i);
  uint32_t find_placed(uint64_t offset) const;
  uint32_t random(uint32_t n);     // below n

  Block* blocks_ = nullptr;
  const BitRows* shareable_ = nullptr;
  uint64_t work_ = 0;             // done so far, in units of 1 to 2 ns
  uint64_t peak_ = 0;             // of the best plan so far
  uint32_t random_ = 0;
  uint32_t count_ = 0, placed_count_ = 0, rival_count_ = 0;
  Array<uint64_t> best_;          // by block: its offset in that plan
  Array<uint64_t> keys_;          // to sort by
  Array<uint32_t> lists_;         // all of these:
  uint32_t* ranked_ = nullptr;    // blocks that take room, by first step
  uint32_t *from_ = nullptr, *to_ = nullptr;   // by block: the ranks of those whose lives may meet its own
  uint32_t* queue_ = nullptr;     // by turn: a block
  uint32_t* placed_ = nullptr;    // by offset
  uint32_t* rivals_ = nullptr;    // what is placed, by offset, and may not share with the block at hand

 private:
  void bring_forward();
  bool find_near(uint32_t i);
};

// By their keys, and where these are equal by number.
void sort(uint32_t* items, size_t n, const uint64_t* keys);

}  // namespace husk
