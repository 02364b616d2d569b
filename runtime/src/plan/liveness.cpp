#include "plan/liveness.h"

namespace husk {

void find_live_ranges(const Code& code, const Array<Access>& accesses, const uint32_t* block_of,
                      Block* blocks, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    blocks[i].first = UINT32_MAX;
    blocks[i].last = 0;
  }
  for (const Access& access : accesses) {
    if (block_of[access.buffer] == kNone) continue;
    Block& block = blocks[block_of[access.buffer]];
    if (access.step < block.first) block.first = access.step;
    if (access.step > block.last) block.last = access.step;
  }
  // An inner loop comes before the outer one, which then sees the ranges that the inner one
  // extended.
  for (const fb::Segment& segment : code.segments) {
    if (segment.back() == kNone) continue;
    const uint32_t begin = code.segments[segment.back()].step_begin(), end = segment.step_end();
    for (size_t i = 0; i < count && begin < end; ++i) {
      Block& block = blocks[i];
      if (block.first > block.last || block.last < begin || block.first >= end)
        continue;                                              // not used in the loop
      if (block.first >= begin && block.last < end) continue;  // used in the loop only
      if (block.first > begin) block.first = begin;
      if (block.last < end - 1) block.last = end - 1;
    }
  }
}

Status find_shareable(const Dependences& dependences, const Array<Access>& accesses,
                      const uint32_t* block_of, size_t blocks, const husk_allocator& allocator,
                      BitRows* out, husk_error* error) {
  const size_t words = dependences.ancestors.words();
  BitRows users;   // by block: the steps that use it
  BitRows before;  // by block: the steps that all of its users wait for
  HUSK_TRY(users.allocate(allocator, blocks, words * 64, error));
  HUSK_TRY(before.allocate(allocator, blocks, words * 64, error));
  HUSK_TRY(out->allocate(allocator, blocks, blocks, error));
  for (size_t i = 0; i < blocks; ++i)
    for (size_t w = 0; w < words; ++w) before.row(i)[w] = ~0ull;
  for (const Access& access : accesses) {
    const uint32_t i = block_of[access.buffer];
    if (i == kNone) continue;
    users.set(i, access.step);
    for (size_t w = 0; w < words; ++w)
      before.row(i)[w] &= dependences.ancestors.row(access.step)[w];
  }
  for (size_t i = 0; i < blocks; ++i)
    for (size_t j = 0; j < blocks; ++j) {
      bool inside = i != j;
      for (size_t w = 0; inside && w < words; ++w)
        inside = (users.row(i)[w] & ~before.row(j)[w]) == 0;
      if (!inside) continue;
      out->set(i, j);
      out->set(j, i);
    }
  return Status::ok;
}

}  // namespace husk
