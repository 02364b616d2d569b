// First fit in an order. Nothing here depends on time, addresses or the standard library, so plans are the same everywhere.
// Measured by tests/bench.
#include "planner.h"

#include <cstring>

namespace husk {
namespace {

// How much a session does for a smaller plan: it stops at 1/kGoal over the lower bound, or after so much work, in units of 1 to
// 2 ns. A plan must come out the same everywhere, so no clock decides. tests/bench measures both.
constexpr uint64_t kWork = 500000, kGoal = 64;

uint64_t align_up(uint64_t value, uint64_t align) { return (value + align - 1) & ~(align - 1); }

bool takes_room(const Block& block) { return block.first <= block.last && block.size != 0; }

// How many of the first numbers below `n` are `before`, all others being behind.
template <class Before>
uint32_t partition(uint32_t n, Before before) {
  uint32_t low = 0;
  while (low < n) {
    const uint32_t middle = (low + n) / 2;
    if (before(middle))
      low = middle + 1;
    else
      n = middle;
  }
  return low;
}

}  // namespace

// Heap sort: no allocation, no worst case, and the same result with every standard library.
void sort(uint32_t* items, size_t n, const uint64_t* keys) {
  auto less = [&](uint32_t a, uint32_t b) { return keys[a] != keys[b] ? keys[a] < keys[b] : a < b; };
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
  uint32_t** const lists[] = {&ranked_, &from_, &to_, &queue_, &placed_, &rivals_};
  HUSK_TRY(lists_.allocate(allocator, sizeof(lists) / sizeof(*lists) * blocks, error));
  uint32_t* list = lists_.data();
  for (uint32_t** at : lists) {
    *at = list;
    list += blocks;
  }
  return Status::ok;
}

Planned Planner::place(Block* blocks, size_t count, const BitRows* shareable, const uint32_t* order) {
  Planned planned;
  shareable_ = shareable;
  if (!enter(blocks, count)) {
    planned.peak = planned.lower_bound = kTooLarge;
    return planned;
  }
  if (count_ == 0) return planned;
  planned.lower_bound = lower_bound();
  const uint64_t goal = planned.lower_bound + planned.lower_bound / kGoal;
  if (order) {
    queue_given(order, count);
    fill();
  }
  if (peak_ > goal) {
    queue_by_area();
    fill();
  }
  while (peak_ > goal && work_ < kWork) {
    bring_forward();
    fill();
  }
  take_best();
  planned.peak = peak_;
  return planned;
}

bool Planner::enter(Block* blocks, size_t count) {
  blocks_ = blocks;
  work_ = 0;
  random_ = 1;
  peak_ = UINT64_MAX;
  count_ = 0;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count; ++i) {
    Block& block = blocks_[i];
    block.offset = 0;
    if (!takes_room(block)) continue;
    if (block.size > kTooLarge || (sum += align_up(block.size, block.align)) > kTooLarge / 2) return false;
    ranked_[count_++] = i;
    keys_[i] = block.first;
  }
  sort(ranked_, count_, keys_.data());
  uint32_t* until = rivals_;   // by rank: when the last life ends of those that begin so far
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
  uint64_t* change = keys_.data();  // by rank; differences wrap and unwrap
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

void Planner::queue_given(const uint32_t* order, size_t count) {
  uint32_t n = 0;
  for (size_t i = 0; i < count; ++i)
    if (takes_room(blocks_[order[i]])) queue_[n++] = order[i];
}

// What is large and long comes first.
void Planner::queue_by_area() {
  for (uint32_t r = 0; r < count_; ++r) {
    const Block& block = blocks_[queue_[r] = ranked_[r]];
    const uint64_t steps = uint64_t{block.last - block.first} + 1;
    uint64_t area;
    if (__builtin_mul_overflow(align_up(block.size, block.align), steps, &area)) area = UINT64_MAX;
    keys_[queue_[r]] = ~area;
  }
  sort(queue_, count_, keys_.data());
}

// What reached highest gets an earlier turn, any of them, or any at all where it was the first.
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
  placed_count_ = 0;
  for (uint32_t r = 0; r < count_; ++r) blocks_[ranked_[r]].offset = kOpen;
  for (uint32_t n = 0; n < count_; ++n) {
    (void)find_gap(queue_[n], kTooLarge);
    insert(queue_[n]);
  }
  work_ += 8ull * count_;
  keep();
}

void Planner::take_best() {
  for (uint32_t r = 0; r < count_; ++r) blocks_[ranked_[r]].offset = best_[ranked_[r]];
}

// Collects what is placed and lives at the same time, by offset, if that is quickly found among those that begin near by.
bool Planner::find_near(uint32_t i) {
  const uint32_t from = from_[i], to = to_[i];
  if (shareable_ || to - from > placed_count_ / 8) return false;
  rival_count_ = 0;
  for (uint32_t r = from; r < to; ++r) {
    const uint32_t j = ranked_[r];
    if (blocks_[j].offset == kOpen || blocks_[j].last < blocks_[i].first) continue;   // it begins early enough
    uint32_t k = rival_count_++;
    work_ += k;
    for (; k > 0 && blocks_[rivals_[k - 1]].offset > blocks_[j].offset; --k) rivals_[k] = rivals_[k - 1];
    work_ -= k;
    rivals_[k] = j;
  }
  work_ += to - from + 2ull * rival_count_;
  return true;
}

// The lowest gap. If there is none, rivals_ has all that stand in the way.
bool Planner::find_gap(uint32_t i, uint64_t limit) {
  const uint64_t size = blocks_[i].size, align = blocks_[i].align;
  uint64_t at = 0;
  auto passes = [&](const Block& other) {  // false: it begins behind a gap that is wide enough, and so do all behind it
    if (other.offset >= at + size) return false;
    if (other.offset + other.size > at) at = align_up(other.offset + other.size, align);
    return true;
  };
  if (find_near(i)) {
    for (uint32_t k = 0; k < rival_count_ && passes(blocks_[rivals_[k]]); ++k) continue;
  } else {
    // Copies: a store to rivals_ might change the members, for all that the C++ compiler knows, and most time is spent here.
    const uint32_t *placed = placed_, count = placed_count_, first = blocks_[i].first, last = blocks_[i].last;
    const Block* blocks = blocks_;
    uint32_t k = rival_count_ = 0;
    for (; k < count; ++k) {
      const uint32_t j = placed[k];
      const Block& other = blocks[j];
      if (other.offset >= at + size) break;
      if (shareable_ ? shareable_->test(i, j) : other.last < first || other.first > last) continue;
      rivals_[rival_count_++] = j;
      (void)passes(other);
    }
    work_ += 3ull * k;
  }
  work_ += 40;
  blocks_[i].offset = at;
  return at + size <= limit;
}

// The position in placed_ of the first block whose offset is not below `offset`.
uint32_t Planner::find_placed(uint64_t offset) const {
  return partition(placed_count_, [&](uint32_t k) { return blocks_[placed_[k]].offset < offset; });
}

void Planner::insert(uint32_t i) {
  const uint32_t k = find_placed(blocks_[i].offset);
  memmove(&placed_[k + 1], &placed_[k], (placed_count_++ - k) * sizeof(uint32_t));
  placed_[k] = i;
}

}  // namespace husk
