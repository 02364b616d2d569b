#include "plan/liveness.h"

namespace husk {
namespace {

// The smallest of a range of numbers, in logarithmic time.
class Smallest {
 public:
  Status allocate(const husk_allocator& allocator, uint32_t numbers, husk_error* error) {
    first_ = numbers;
    return tree_.allocate(allocator, 2 * size_t{numbers}, error);
  }
  uint32_t& operator[](uint32_t i) { return tree_[size_t{first_} + i]; }
  void build() {
    for (size_t i = first_; i-- > 1;) tree_[i] = lower(tree_[2 * i], tree_[2 * i + 1]);
  }
  uint32_t in(uint32_t begin, uint32_t end) const {
    uint32_t least = UINT32_MAX;
    for (size_t i = size_t{first_} + begin, j = size_t{first_} + end; i < j; i /= 2, j /= 2) {
      if (i & 1) least = lower(least, tree_[i++]);
      if (j & 1) least = lower(least, tree_[--j]);
    }
    return least;
  }

 private:
  static uint32_t lower(uint32_t a, uint32_t b) { return a < b ? a : b; }
  Array<uint32_t> tree_;  // node i has the children 2i and 2i+1; the numbers are the last half
  uint32_t first_ = 0;
};

uint32_t segment_of_step(const Code& code, uint32_t step) {
  return partition(code.segments.size,
                   [&](uint32_t s) { return code.segments[s].step_end() <= step; });
}

// Extends each block that is used inside and outside of a loop to all of the loop.
Status extend_over_loops(const Code& code, Block* blocks, size_t count,
                         const husk_allocator& allocator, husk_error* error) {
  const uint32_t n = code.segments.size;
  Smallest begins;  // by segment: the first step of the loop that ends with it
  Smallest ends;    // by segment: the complement of the last step of the loops that begin with it
  HUSK_TRY(begins.allocate(allocator, n, error));
  HUSK_TRY(ends.allocate(allocator, n, error));
  for (uint32_t s = 0; s < n; ++s) begins[s] = ends[s] = UINT32_MAX;
  for (uint32_t s = 0; s < n; ++s) {
    const uint32_t back = code.segments[s].back();
    if (back == kNone || code.segments[back].step_begin() == code.segments[s].step_end()) continue;
    begins[s] = code.segments[back].step_begin();
    ends[back] = ~(code.segments[s].step_end() - 1);  // a later loop is the larger one
  }
  begins.build();
  ends.build();
  // Loops are nested or disjoint. A loop that has the first step of a block and not the last one
  // ends in a segment from that of the first step to the one before that of the last step; other
  // loops that end there begin after the first step. The same is true of the other end.
  for (size_t i = 0; i < count; ++i) {
    Block& block = blocks[i];
    if (block.first > block.last) continue;
    const uint32_t first = segment_of_step(code, block.first),
                   last = segment_of_step(code, block.last);
    const uint32_t begin = begins.in(first, last), end = ~ends.in(first + 1, last + 1);
    if (begin < block.first) block.first = begin;
    if (first < last && end > block.last) block.last = end;
  }
  return Status::ok;
}

}  // namespace

Status find_live_ranges(const Code& code, const Array<Access>& accesses, const uint32_t* block_of,
                        Block* blocks, size_t count, const husk_allocator& allocator,
                        husk_error* error) {
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
  for (const fb::Segment& segment : code.segments)
    if (segment.back() != kNone) return extend_over_loops(code, blocks, count, allocator, error);
  return Status::ok;
}

Status find_shareable(const Dependences& dependences, const Array<Access>& accesses,
                      const uint32_t* block_of, size_t blocks, const husk_allocator& allocator,
                      BitRows* out, husk_error* error) {
  if (uint64_t{blocks} * (blocks + accesses.size()) > kMaxOrderWork) return Status::ok;
  const size_t words = dependences.ancestors.words();
  BitRows before;         // one row: the steps that all users of a block wait for
  Array<uint32_t> users;  // the steps that use a block, one block after the other
  Array<uint32_t> ends;   // by block: the end of its users; their begin while they are collected
  HUSK_TRY(before.allocate(allocator, 1, words * 64, error));
  HUSK_TRY(users.allocate(allocator, accesses.size(), error));
  HUSK_TRY(ends.allocate(allocator, blocks + 1, error));
  HUSK_TRY(out->allocate(allocator, blocks, blocks, error));
  for (const Access& access : accesses)
    if (block_of[access.buffer] != kNone) ++ends[block_of[access.buffer] + size_t{1}];
  for (size_t i = 1; i <= blocks; ++i) ends[i] += ends[i - 1];
  for (const Access& access : accesses)
    if (block_of[access.buffer] != kNone) users[ends[block_of[access.buffer]]++] = access.step;
  uint64_t* waited = before.row(0);
  for (size_t j = 0, begin_j = 0; j < blocks; begin_j = ends[j++]) {
    for (size_t w = 0; w < words; ++w) waited[w] = ~0ull;
    for (size_t u = begin_j; u < ends[j]; ++u)
      for (size_t w = 0; w < words; ++w) waited[w] &= dependences.ancestors.row(users[u])[w];
    for (size_t i = 0, u = 0; i < blocks; u = ends[i++]) {
      while (u < ends[i] && before.test(0, users[u])) ++u;
      if (i == j || u < ends[i]) continue;
      out->set(i, j);
      out->set(j, i);
    }
  }
  return Status::ok;
}

}  // namespace husk
