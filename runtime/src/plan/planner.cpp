// First fit in an order of the blocks. Plans are the same on every machine, because nothing here
// depends on time, addresses or the standard library. tests/bench measures the planner.
#include "plan/planner.h"

#include <cstring>

namespace husk {
namespace {

// The effort for a smaller plan: it ends at 1/kGoal above the lower bound, or after kWork units of
// work. A unit takes 1 to 2 ns; no clock is used, because plans must be the same on every machine.
constexpr uint64_t kWork = 500000, kGoal = 64;
// The most work for one order of the blocks. It is enough for 100,000 buffers of a usual program;
// the blocks that are left are placed one above the other.
constexpr uint64_t kMaxFillWork = 1ull << 27;

constexpr uint32_t kMovedPerUnit = 32;  // entries of a list that are moved by memmove

}  // namespace

// Heap sort allocates nothing and has no slow case. Its result does not depend on the standard
// library.
void sort(uint32_t* items, size_t n, const uint64_t* keys) {
  auto less = [&](uint32_t a, uint32_t b) {
    return keys[a] != keys[b] ? keys[a] < keys[b] : a < b;
  };
  size_t sorted = 1;
  while (sorted < n && !less(items[sorted], items[sorted - 1])) ++sorted;
  if (sorted >= n) return;
  for (size_t begin = n / 2, end = n; end > 1;) {
    if (begin > 0) {
      --begin;
    } else {
      const uint32_t largest = items[0];
      items[0] = items[--end];
      items[end] = largest;
    }
    size_t root = begin;
    const uint32_t sunk = items[root];
    for (size_t child; (child = 2 * root + 1) < end; root = child) {
      if (child + 1 < end && less(items[child], items[child + 1])) ++child;
      if (!less(sunk, items[child])) break;
      items[root] = items[child];
    }
    items[root] = sunk;
  }
}

Status Planner::reserve(const husk_allocator& allocator, size_t blocks, husk_error* error) {
  HUSK_TRY(best_.allocate(allocator, blocks, error));
  HUSK_TRY(keys_.allocate(allocator, blocks + 1, error));
  uint32_t** const lists[] = {&ranked_, &from_, &to_, &queue_, &placed_, &conflicting_};
  HUSK_TRY(lists_.allocate(allocator, sizeof(lists) / sizeof(*lists) * blocks, error));
  uint32_t* list = lists_.data();
  for (uint32_t** at : lists) {
    *at = list;
    list += blocks;
  }
  return Status::ok;
}

Planned Planner::place(Block* blocks, size_t count, const BitRows* shareable, const uint32_t* order,
                       Device device) {
  Planned planned;
  shareable_ = shareable;
  if (!enter(blocks, count, device)) {
    planned.peak = planned.lower_bound = kTooLarge;
    return planned;
  }
  if (count_ == 0) return planned;
  planned.lower_bound = lower_bound();
  const uint64_t goal = planned.lower_bound + planned.lower_bound / kGoal;
  if (order) {
    order_as_given(order, count);
    fill();
  }
  if (peak_ > goal) {
    order_by_size();
    fill();
  }
  while (peak_ > goal && work_ < kWork) {
    bring_forward();
    fill();
  }
  restore_best();
  planned.peak = peak_;
  return planned;
}

bool Planner::enter(Block* blocks, size_t count, Device device) {
  blocks_ = blocks;
  device_ = device;
  work_ = 0;
  random_ = 1;
  peak_ = UINT64_MAX;
  count_ = 0;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count; ++i) {
    Block& block = blocks_[i];
    if (block.device == device) block.offset = 0;
    if (!takes_room(block)) continue;
    if (block.size > kTooLarge || (sum += align_up(block.size, block.align)) > kTooLarge / 2)
      return false;
    ranked_[count_++] = i;
    keys_[i] = block.first;
  }
  sort(ranked_, count_, keys_.data());
  uint32_t* until = conflicting_;  // by rank: the last step of the live ranges up to that rank
  for (uint32_t r = 0, last = 0; r < count_; ++r) {
    if (blocks_[ranked_[r]].last > last) last = blocks_[ranked_[r]].last;
    until[r] = last;
  }
  for (uint32_t r = 0; r < count_; ++r) {
    const uint32_t i = ranked_[r], first = blocks_[i].first, last = blocks_[i].last;
    from_[i] = partition(r, [&](uint32_t k) { return until[k] < first; });
    to_[i] = partition(count_, [&](uint32_t k) { return blocks_[ranked_[k]].first <= last; });
  }
  return true;
}

uint64_t Planner::lower_bound() {
  uint64_t* change = keys_.data();  // by rank: unsigned differences, whose sums do not overflow
  for (uint32_t r = 0; r <= count_; ++r) change[r] = 0;
  for (uint32_t r = 0; r < count_; ++r) {
    const uint64_t size = align_up(blocks_[ranked_[r]].size, blocks_[ranked_[r]].align);
    change[r] += size;
    change[to_[ranked_[r]]] -= size;
  }
  uint64_t sum = 0, most = 0;
  for (uint32_t r = 0; r < count_; ++r) {
    sum += change[r];
    if (sum > most) most = sum;
  }
  return most;
}

void Planner::order_as_given(const uint32_t* order, size_t count) {
  uint32_t n = 0;
  for (size_t i = 0; i < count; ++i)
    if (takes_room(blocks_[order[i]])) queue_[n++] = order[i];
}

// Sorts the queue by size times number of steps, largest first.
void Planner::order_by_size() {
  for (uint32_t r = 0; r < count_; ++r) {
    const Block& block = blocks_[queue_[r] = ranked_[r]];
    const uint64_t steps = uint64_t{block.last - block.first} + 1;
    uint64_t area;
    if (__builtin_mul_overflow(align_up(block.size, block.align), steps, &area)) area = UINT64_MAX;
    keys_[queue_[r]] = ~area;
  }
  sort(queue_, count_, keys_.data());
}

// Moves the block with the highest end to a random earlier turn. If it has the first turn already,
// it moves to a random turn.
void Planner::bring_forward() {
  uint32_t highest = 0;
  uint64_t end = 0;
  for (uint32_t n = 0; n < count_; ++n) {
    const Block& block = blocks_[queue_[n]];
    if (block.offset + block.size <= end) continue;
    end = block.offset + block.size;
    highest = n;
  }
  uint32_t* from = &queue_[highest];
  uint32_t* to = &queue_[random(highest ? highest : count_)];
  const uint32_t moved = *from;
  if (to < from)
    memmove(to + 1, to, (from - to) * sizeof(uint32_t));
  else
    memmove(from, from + 1, (to - from) * sizeof(uint32_t));
  *to = moved;
}

void Planner::keep() {
  uint64_t peak = 0;
  for (uint32_t r = 0; r < count_; ++r) {
    const Block& block = blocks_[ranked_[r]];
    if (block.offset + block.size > peak) peak = block.offset + block.size;
  }
  if (peak >= peak_) return;
  peak_ = peak;
  for (uint32_t r = 0; r < count_; ++r) best_[ranked_[r]] = blocks_[ranked_[r]].offset;
}

uint32_t Planner::random(uint32_t n) {  // xorshift
  random_ ^= random_ << 13;
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  return random_ % n;
}

void Planner::fill() {
  const uint64_t most = work_ + kMaxFillWork;
  uint64_t moved = 0;  // the work of insert()
  uint64_t top = 0;    // the end of the blocks that are placed
  placed_count_ = 0;
  for (uint32_t r = 0; r < count_; ++r) blocks_[ranked_[r]].offset = kOpen;
  for (uint32_t n = 0; n < count_; ++n) {
    Block& block = blocks_[queue_[n]];
    if (work_ + moved > most) {
      block.offset = align_up(top, block.align);
    } else {
      (void)find_gap(queue_[n], kTooLarge);
      insert(queue_[n]);
      moved += placed_count_ / kMovedPerUnit;
    }
    if (block.offset + block.size > top) top = block.offset + block.size;
  }
  work_ += 8ull * count_;
  keep();
}

void Planner::restore_best() {
  for (uint32_t r = 0; r < count_; ++r) blocks_[ranked_[r]].offset = best_[ranked_[r]];
}

// Collects the placed blocks that are live together with block `i`, sorted by offset. Does nothing
// and returns false if the blocks with near live ranges are too many to look at.
bool Planner::find_near(uint32_t i) {
  const uint32_t from = from_[i], to = to_[i];
  if (shareable_ || to - from > placed_count_ / 8) return false;
  conflicting_count_ = 0;
  for (uint32_t r = from; r < to; ++r) {
    const uint32_t j = ranked_[r];
    if (blocks_[j].offset == kOpen || blocks_[j].last < blocks_[i].first) continue;
    uint32_t k = conflicting_count_++;
    work_ += k;
    for (; k > 0 && blocks_[conflicting_[k - 1]].offset > blocks_[j].offset; --k)
      conflicting_[k] = conflicting_[k - 1];
    work_ -= k;
    conflicting_[k] = j;
  }
  work_ += to - from + 2ull * conflicting_count_;
  return true;
}

// Gives block `i` the lowest offset at which it fits. Returns false if its end is above `limit`;
// then conflicting_ has all placed blocks that it may not share memory with.
bool Planner::find_gap(uint32_t i, uint64_t limit) {
  const uint64_t size = blocks_[i].size, align = blocks_[i].align;
  uint64_t at = 0;
  // Moves `at` to the end of `other`, unless the gap before it is wide enough: then it returns
  // false, and later blocks need no look.
  auto passes = [&](const Block& other) {
    if (other.offset >= at + size) return false;
    if (other.offset + other.size > at) at = align_up(other.offset + other.size, align);
    return true;
  };
  if (find_near(i)) {
    for (uint32_t k = 0; k < conflicting_count_ && passes(blocks_[conflicting_[k]]); ++k) continue;
  } else {
    // Local copies of members: the C++ compiler must assume that a store to conflicting_ changes
    // members, and the planner spends most of its time in this loop.
    const uint32_t *placed = placed_, count = placed_count_, first = blocks_[i].first,
                   last = blocks_[i].last;
    const Block* blocks = blocks_;
    uint32_t k = conflicting_count_ = 0;
    for (; k < count; ++k) {
      const uint32_t j = placed[k];
      const Block& other = blocks[j];
      if (other.offset >= at + size) break;
      if (shareable_ ? shareable_->test(i, j) : other.last < first || other.first > last) continue;
      conflicting_[conflicting_count_++] = j;
      (void)passes(other);
    }
    work_ += 3ull * k;
  }
  work_ += 40;
  blocks_[i].offset = at;
  return at + size <= limit;
}

// Returns the position in placed_ of the first block whose offset is at least `offset`.
uint32_t Planner::find_placed(uint64_t offset) const {
  return partition(placed_count_, [&](uint32_t k) { return blocks_[placed_[k]].offset < offset; });
}

void Planner::insert(uint32_t i) {
  const uint32_t k = find_placed(blocks_[i].offset);
  memmove(&placed_[k + 1], &placed_[k], (placed_count_++ - k) * sizeof(uint32_t));
  placed_[k] = i;
}

}  // namespace husk
