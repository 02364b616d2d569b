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
  uint64_t peak = 0;         // bytes of the arena
  uint64_t lower_bound = 0;  // the largest sum of sizes alive at one step: no plan of the list order can be smaller
};

class Planner {
 public:
  // Room for plans of up to `blocks` blocks over `steps` steps; place allocates nothing.
  Status reserve(const husk_allocator& allocator, size_t blocks, size_t steps, husk_error* error);

  // Writes every block's offset. Two blocks share bytes only where their lives do not meet or, if `shareable` is given,
  // where its row says that they may (row i, bit j).
  Planned place(Block* blocks, size_t count, const BitRows* shareable);

 private:
  uint64_t place_in_order(Block* blocks, size_t count, const BitRows* shareable);

  Array<uint32_t> order_, placed_;
  Array<uint64_t> best_, live_;
};

// Row i, bit j: every step of buffer i comes before every step of buffer j, or the other way round, in `order`. Blocks are
// the arena buffers, numbered by `block_of` (kNone for others).
Status find_shareable(const Order& order, const Array<Access>& accesses, const uint32_t* block_of, size_t blocks,
                      const husk_allocator& allocator, BitRows* out, husk_error* error);

}  // namespace husk
