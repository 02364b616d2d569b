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

// How much the planner may do for a smaller plan, in units of 1 to 2 ns: a plan must come out the same everywhere, so no
// clock decides. Only a plan that is more than 1/64 over the lower bound is improved at all; tests/bench measures both.
constexpr uint64_t kPlanSoon = 1000000;   // for a new shape
constexpr uint64_t kPlanWell = 20000000;  // once a session, and when compiling

class Planner {
 public:
  // Room for plans of up to `blocks` blocks; place allocates nothing.
  Status reserve(const husk_allocator& allocator, size_t blocks, husk_error* error);

  // Writes every block's offset. Two blocks share bytes only where their lives do not meet or, if `shareable` is given,
  // where its row says that they may (row i, bit j).
  Planned place(Block* blocks, size_t count, const BitRows* shareable, uint64_t work = kPlanSoon);

 private:
  struct Life {
    uint32_t first, last;
  };
  // Of the tree over the blocks that are not placed yet, by first step.
  struct Node {
    uint64_t value;  // the largest of its blocks
    uint32_t last;   // the earliest end of a life among them; kNone: none is left
  };
  struct Choice {
    uint64_t value;
    uint32_t rank;
  };

  bool enter(Block* blocks, size_t count);
  void compress();
  uint64_t lower_bound();
  void keep();                     // remembers the blocks' offsets if they make the smallest plan so far
  uint32_t random(uint32_t n);     // below n

  // Skyline: the lowest stretch of time is filled first, with the best block that lives inside it.
  void fill_lowest(int rule);
  uint64_t value(uint32_t i, int rule) const;
  Choice choose(const Life& ranks, uint32_t last);
  void descend(uint32_t node, uint32_t low, uint32_t high, const Life& ranks, uint32_t last, Choice* best);
  void set_leaf(uint32_t rank, const Node& leaf);
  static Node join(const Node& a, const Node& b) {
    return {a.value > b.value ? a.value : b.value, a.last < b.last ? a.last : b.last};
  }
  uint64_t height(uint32_t begin) const { return heights_[leaves_ + begin]; }
  uint32_t lowest() const;
  void set_height(uint32_t begin, uint64_t height);
  void stretch(uint32_t begin, uint32_t end, uint64_t height);
  void join_left(uint32_t begin);
  void settle(uint32_t i, uint32_t begin);
  void raise(uint32_t begin);

  // Squeeze: first fit below a limit; a block that finds no gap drives out those that are cheapest to move.
  void improve(uint64_t goal, uint64_t work);
  void load(uint64_t limit);
  bool squeeze(uint64_t limit, uint64_t work);
  bool apart(uint32_t i, uint32_t j) const;
  bool find_near(uint32_t i);
  bool find_gap(uint32_t i, uint64_t limit);
  void drive_out(uint32_t i, uint64_t limit);
  uint64_t weigh(uint64_t from, uint64_t to);
  uint32_t find_placed(uint64_t offset) const;
  void insert(uint32_t i);
  void remove(uint32_t i);
  bool comes_first(uint32_t i, uint32_t j) const { return area_[i] != area_[j] ? area_[i] > area_[j] : i < j; }
  void push(uint32_t i);
  uint32_t pop();

  Block* blocks_ = nullptr;
  const BitRows* shareable_ = nullptr;
  uint64_t work_ = 0;             // done so far
  uint64_t peak_ = 0;             // of the best plan so far
  uint32_t random_ = 0;
  uint32_t ranks_ = 0, times_ = 0, leaves_ = 0, placed_count_ = 0, queued_ = 0, rival_count_ = 0;
  Array<uint64_t> best_;          // by block: its offset in that plan
  Array<uint64_t> area_;          // by block: bytes times steps
  // Lives in a time that counts only the steps at which some life begins: there they meet just where they meet in steps.
  Array<Life> lives_;             // by block
  Array<Node> tree_;              // leaves, by rank, are its second half
  Array<uint64_t> heights_;       // a tree of the least; leaves, by time: a stretch's height where it begins
  Array<uint32_t> lists_;         // all of these:
  uint32_t* ranked_ = nullptr;    // blocks that take room, by first step
  uint32_t* begin_ = nullptr;     // by time: its first rank; one more than there are times
  uint32_t* reach_ = nullptr;     // by time: the earliest begin of the lives that last until then or longer
  uint32_t *ends_ = nullptr, *begins_ = nullptr;  // of a stretch, by its first and by its last time
  uint32_t* placed_ = nullptr;    // by offset
  uint32_t* queue_ = nullptr;     // a heap of what is not placed
  uint32_t* rivals_ = nullptr;    // what is placed, by offset, and may not share with the block at hand
  uint32_t* weight_ = nullptr;    // by block: how often it was moved
};

}  // namespace husk
