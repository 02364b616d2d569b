#include "planner.h"

#include <cstdlib>

namespace husk {
namespace {

uint64_t align_up(uint64_t value, uint64_t align) { return (value + align - 1) & ~(align - 1); }

bool lives_meet(const Block& a, const Block& b) { return a.first <= b.last && b.first <= a.last; }

// Heap sort: no allocation, no worst case, and the same result with every standard library.
template <class Less>
void sort(uint32_t* items, size_t n, Less less) {
  auto sift = [&](size_t root, size_t end) {
    for (size_t child; (child = 2 * root + 1) < end; root = child) {
      if (child + 1 < end && less(items[child], items[child + 1])) ++child;
      if (!less(items[root], items[child])) return;
      uint32_t old = items[root];
      items[root] = items[child];
      items[child] = old;
    }
  };
  for (size_t i = n / 2; i-- > 0;) sift(i, n);
  for (size_t end = n; end-- > 1;) {
    uint32_t old = items[0];
    items[0] = items[end];
    items[end] = old;
    sift(0, end);
  }
}

uint64_t lower_bound(const Block* blocks, size_t count, uint64_t* live, size_t steps) {
  for (size_t s = 0; s <= steps; ++s) live[s] = 0;
  for (size_t i = 0; i < count; ++i)
    if (blocks[i].first <= blocks[i].last) {
      const uint64_t size = align_up(blocks[i].size, blocks[i].align);
      live[blocks[i].first] += size;  // differences, summed below; they wrap and unwrap
      live[blocks[i].last + 1] -= size;
    }
  uint64_t sum = 0, most = 0;
  for (size_t s = 0; s <= steps; ++s) {
    sum += live[s];
    if (sum > most) most = sum;
  }
  return most;
}

}  // namespace

Status Planner::reserve(const husk_allocator& allocator, size_t blocks, size_t steps, husk_error* error) {
  HUSK_TRY(order_.allocate(allocator, blocks, error));
  HUSK_TRY(placed_.allocate(allocator, blocks, error));
  HUSK_TRY(best_.allocate(allocator, blocks, error));
  return live_.allocate(allocator, steps + 1, error);
}

// First fit among what is placed already and may not share; placed_ is sorted by offset.
uint64_t Planner::place_in_order(Block* blocks, size_t count, const BitRows* shareable) {
  uint64_t peak = 0;
  size_t placed = 0;
  for (size_t n = 0; n < count; ++n) {
    const uint32_t i = order_[n];
    Block& block = blocks[i];
    block.offset = 0;
    if (block.first > block.last || block.size == 0) continue;
    uint64_t at = 0;
    for (size_t k = 0; k < placed; ++k) {
      const uint32_t j = placed_[k];
      const Block& other = blocks[j];
      const bool apart = shareable ? shareable->test(i, j) : !lives_meet(block, other);
      if (apart || other.offset + other.size <= at) continue;
      if (other.offset >= at + block.size) break;  // sorted by offset: the gap before `other` is wide enough
      at = align_up(other.offset + other.size, block.align);
    }
    block.offset = at;
    if (at + block.size > peak) peak = at + block.size;
    size_t k = placed++;
    for (; k > 0 && blocks[placed_[k - 1]].offset > at; --k) placed_[k] = placed_[k - 1];
    placed_[k] = i;
  }
  return peak;
}

Planned Planner::place(Block* blocks, size_t count, const BitRows* shareable) {
  Planned planned;
  planned.lower_bound = lower_bound(blocks, count, live_.data(), live_.size() ? live_.size() - 1 : 0);
  // No one order is best: large blocks first wins most often, first come first served on chains, long lives first where
  // a few outlive the rest.
  uint64_t best = UINT64_MAX;
  for (int attempt = 0; attempt < 3 && best > planned.lower_bound; ++attempt) {
    for (uint32_t i = 0; i < count; ++i) order_[i] = i;
    sort(order_.data(), count, [&](uint32_t a, uint32_t b) {
      const Block &x = blocks[a], &y = blocks[b];
      if (attempt == 0 && x.size != y.size) return x.size > y.size;
      if (attempt == 2 && x.last - x.first != y.last - y.first) return x.last - x.first > y.last - y.first;
      if (x.first != y.first) return x.first < y.first;
      return x.size != y.size ? x.size > y.size : a < b;
    });
    const uint64_t peak = place_in_order(blocks, count, shareable);
    if (peak >= best) continue;
    best = peak;
    for (size_t i = 0; i < count; ++i) best_[i] = blocks[i].offset;
  }
  for (size_t i = 0; i < count; ++i) blocks[i].offset = best_[i];
  planned.peak = count ? best : 0;
  return planned;
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
