// Live ranges of the buffers of the arena. In this file a block is such a buffer; `block_of` has
// the index of each buffer's block, or kNone.
#pragma once

#include "plan/planner.h"

namespace husk {

// Writes the first and last step of every block: its first and last access. A block that is used
// inside and outside of a loop is live during all of the loop.
Status find_live_ranges(const Code& code, const Array<Access>& accesses, const uint32_t* block_of,
                        Block* blocks, size_t count, const husk_allocator& allocator,
                        husk_error* error);

// Sets bit j of row i if all steps of block i come before all steps of block j by `dependences`, or
// the other way round. Such blocks may share bytes in every order of steps that keeps the
// dependences, which must be no chain. If there are too many blocks and accesses, `out` stays
// empty.
Status find_shareable(const Dependences& dependences, const Array<Access>& accesses,
                      const uint32_t* block_of, size_t blocks, const husk_allocator& allocator,
                      BitRows* out, husk_error* error);

}  // namespace husk
