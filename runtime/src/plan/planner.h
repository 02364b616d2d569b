// Places buffers in the arenas. The runtime plans with it; the compiler searches for a good order
// and prints plans.
#pragma once

#include "base/align.h"
#include "plan/dependences.h"

namespace husk {

constexpr uint64_t kArenaAlign = kDeviceAlign;  // of the arena, and so the largest of a buffer

// One buffer to place. It is live from step `first` to step `last`, both included. A buffer that is
// never used has first > last and takes no memory.
struct Block {
  uint64_t size, align;
  uint32_t first, last;
  uint64_t offset;  // written by the planner
  Device device = Device::target;
};

struct Planned {
  // Bytes of the arena. kTooLarge means that the sum of the sizes overflows, and that offsets are
  // wrong.
  uint64_t peak = 0;
  // The largest sum of sizes that are live at one step. No plan for steps in order is smaller.
  uint64_t lower_bound = 0;
};
constexpr uint64_t kTooLarge = 1ull << 62;
constexpr uint64_t kOpen = UINT64_MAX;  // the offset of a block that is not placed

class Planner {
 public:
  // Allocates memory for plans of up to `blocks` blocks. place() allocates nothing.
  Status reserve(const husk_allocator& allocator, size_t blocks, husk_error* error);

  // Writes the offset of every block of one device. Two blocks share bytes only if their live
  // ranges do not overlap; with `shareable`, if it has bit j of row i. If `order` is not null it
  // has every block once, those of other devices too, and first fit in that order is tried first.
  // First fit in the order of a plan's offsets gives no larger plan.
  Planned place(Block* blocks, size_t count, const BitRows* shareable,
                const uint32_t* order = nullptr, Device device = Device::target);

 protected:
  // Returns false if the sum of the sizes overflows.
  bool enter(Block* blocks, size_t count, Device device);
  uint64_t lower_bound();
  void order_as_given(const uint32_t* order, size_t count);  // fills the queue
  void order_by_size();
  void fill();          // places the blocks in the order of the queue
  void keep();          // remembers the offsets if the plan is the smallest so far
  void restore_best();  // gives the blocks the offsets of the smallest plan
  bool find_gap(uint32_t i, uint64_t limit);
  void insert(uint32_t i);
  uint32_t find_placed(uint64_t offset) const;
  uint32_t random(uint32_t n);  // returns a number below n

  Block* blocks_ = nullptr;
  const BitRows* shareable_ = nullptr;
  uint64_t work_ = 0;  // done so far, in units of 1 to 2 ns
  uint64_t peak_ = 0;  // of the best plan so far
  Device device_ = Device::target;
  uint32_t random_ = 0;
  uint32_t count_ = 0, placed_count_ = 0, conflicting_count_ = 0;
  Array<uint64_t> best_;        // by block: its offset in that plan
  Array<uint64_t> keys_;        // the keys of a sort
  Array<uint32_t> lists_;       // the memory of the lists below
  uint32_t* ranked_ = nullptr;  // blocks that take memory, sorted by first step
  // By block: the ranks of the blocks whose live ranges may overlap its own.
  uint32_t *from_ = nullptr, *to_ = nullptr;
  uint32_t* queue_ = nullptr;   // blocks in the order in which they are placed
  uint32_t* placed_ = nullptr;  // placed blocks, sorted by offset
  // Placed blocks that may not share memory with the block that find_gap looks at, sorted by
  // offset.
  uint32_t* conflicting_ = nullptr;

 private:
  bool takes_room(const Block& block) const {
    return block.device == device_ && block.first <= block.last && block.size != 0;
  }
  void bring_forward();
  bool find_near(uint32_t i);
};

// Returns the first number below `n` for which `before` is false, or `n`. `before` must be true for
// all smaller numbers, and false for all larger ones.
template <class Before>
uint32_t partition(uint32_t n, Before before) {
  uint32_t low = 0;
  while (low < n) {
    const uint32_t middle = low + (n - low) / 2;
    if (before(middle))
      low = middle + 1;
    else
      n = middle;
  }
  return low;
}

// Sorts by keys; items with equal keys are sorted by number.
void sort(uint32_t* items, size_t n, const uint64_t* keys);

}  // namespace husk
