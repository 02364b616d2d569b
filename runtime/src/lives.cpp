#include "lives.h"

namespace husk {

void find_lives(const Code& code, const Array<Access>& accesses, const uint32_t* block_of, Block* blocks, size_t count) {
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
  // Inner loops end first, and what lives through an inner loop is seen by the outer one as used there.
  for (const fb::Segment& segment : code.segments) {
    if (segment.back() == kNone) continue;
    const uint32_t begin = code.segments[segment.back()].step_begin(), end = segment.step_end();
    for (size_t i = 0; i < count && begin < end; ++i) {
      Block& block = blocks[i];
      if (block.first > block.last || block.last < begin || block.first >= end) continue;   // unused, before, behind
      if (block.first >= begin && block.last < end) continue;                               // inside
      if (block.first > begin) block.first = begin;
      if (block.last < end - 1) block.last = end - 1;
    }
  }
}

Status find_shareable(const Order& order, const Array<Access>& accesses, const uint32_t* block_of, size_t blocks,
                      const husk_allocator& allocator, BitRows* out, husk_error* error) {
  const size_t words = order.ancestors.words();
  BitRows users, before;  // of each block: its steps; the steps that all of these wait for
  HUSK_TRY(users.allocate(allocator, blocks, words * 64, error));
  HUSK_TRY(before.allocate(allocator, blocks, words * 64, error));
  HUSK_TRY(out->allocate(allocator, blocks, blocks, error));
  for (size_t i = 0; i < blocks; ++i)
    for (size_t w = 0; w < words; ++w) before.row(i)[w] = ~0ull;
  for (const Access& access : accesses) {
    const uint32_t i = block_of[access.buffer];
    if (i == kNone) continue;
    users.set(i, access.step);
    for (size_t w = 0; w < words; ++w) before.row(i)[w] &= order.ancestors.row(access.step)[w];
  }
  for (size_t i = 0; i < blocks; ++i)
    for (size_t j = 0; j < blocks; ++j) {
      bool inside = i != j;
      for (size_t w = 0; inside && w < words; ++w) inside = (users.row(i)[w] & ~before.row(j)[w]) == 0;
      if (!inside) continue;
      out->set(i, j);
      out->set(j, i);
    }
  return Status::ok;
}

}  // namespace husk
