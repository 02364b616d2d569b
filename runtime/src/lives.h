// From when to when each buffer of the arena holds something.
#pragma once

#include "planner.h"

namespace husk {

// Writes first and last of every block: its first and last access, and all of a loop that it is used in and outside of.
// Blocks are the arena buffers, numbered by `block_of` (kNone for others).
void find_lives(const Code& code, const Array<Access>& accesses, const uint32_t* block_of, Block* blocks, size_t count);

}  // namespace husk
