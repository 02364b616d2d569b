// From when to when each buffer of the arena holds something, and which may share bytes whatever the order.
#pragma once

#include "planner.h"

namespace husk {

// Writes first and last of every block: its first and last access, and all of a loop that it is used in and outside of.
// Blocks are the arena buffers, numbered by `block_of` (kNone for others).
void find_lives(const Code& code, const Array<Access>& accesses, const uint32_t* block_of, Block* blocks, size_t count);

// Row i, bit j: every step of buffer i comes before every step of buffer j, or the other way round, in `order`. Blocks are
// the arena buffers, numbered by `block_of` (kNone for others).
Status find_shareable(const Order& order, const Array<Access>& accesses, const uint32_t* block_of, size_t blocks,
                      const husk_allocator& allocator, BitRows* out, husk_error* error);

}  // namespace husk
