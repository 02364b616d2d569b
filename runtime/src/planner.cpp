// First fit below a limit; a block that finds no gap drives out those that are cheapest to move, until all are in or the work
// allowed is done. Measured by tests/bench. Nothing here depends on time, addresses or the standard library, so plans are
// the same everywhere.
#include "planner.h"

#include <cstring>

namespace husk {
namespace {

constexpr uint64_t kOpen = UINT64_MAX;  // the offset of a block that is not placed

uint64_t align_up(uint64_t value, uint64_t align) { return (value + align - 1) & ~(align - 1); }
uint64_t align_down(uint64_t value, uint64_t align) { return value & ~(align - 1); }

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

// By their keys, and where these are equal by number. Heap sort: no allocation, no worst case, and the same result with every
// standard library.
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

}  // namespace

Status Planner::reserve(const husk_allocator& allocator, size_t blocks, husk_error* error) {
  HUSK_TRY(best_.allocate(allocator, blocks, error));
  HUSK_TRY(keys_.allocate(allocator, blocks + 1, error));
  HUSK_TRY(waits_.allocate(allocator, blocks, error));
  uint32_t** const lists[] = {&ranked_, &from_, &to_, &queue_, &turn_, &placed_, &rivals_, &weight_};
  HUSK_TRY(lists_.allocate(allocator, sizeof(lists) / sizeof(*lists) * blocks, error));
  uint32_t* list = lists_.data();
  for (uint32_t** at : lists) {
    *at = list;
    list += blocks;
  }
  return Status::ok;
}

Planned Planner::place(Block* blocks, size_t count, const BitRows* shareable, const uint32_t* order, const Effort& effort) {
  Planned planned;
  blocks_ = blocks;
  shareable_ = shareable;
  work_ = 0;
  random_ = 1;
  peak_ = UINT64_MAX;
  if (!enter(count)) {
    planned.peak = planned.lower_bound = kTooLarge;
    return planned;
  }
  if (count_ == 0) return planned;
  planned.lower_bound = lower_bound();
  const uint64_t goal = planned.lower_bound + planned.lower_bound / effort.goal;
  if (order) {
    uint32_t n = 0;
    for (size_t i = 0; i < count; ++i)
      if (takes_room(blocks[order[i]])) queue_[n++] = order[i];
    fill();
  }
  if (peak_ > goal) {
    for (uint32_t r = 0; r < count_; ++r) {
      const Block& block = blocks[queue_[r] = ranked_[r]];
      const uint64_t steps = uint64_t{block.last - block.first} + 1;
      uint64_t area;
      if (__builtin_mul_overflow(align_up(block.size, block.align), steps, &area)) area = UINT64_MAX;
      keys_[queue_[r]] = ~area;
    }
    sort(queue_, count_, keys_.data());
    fill();
    // A few blocks are soon tried in every way that matters.
    const uint64_t most = 4000000ull * count_;
    const uint64_t work = effort.work < most ? effort.work : most;
    // Much work is better spent in four goes, since each may end in a corner; the later ones only where the plan is far off.
    const uint64_t goes = work < 16 * kPlanSoon.work ? 1 : 4, near = planned.lower_bound + planned.lower_bound / 32;
    improve(goal, work / goes);
    for (uint64_t go = 2; go <= goes && peak_ > near; ++go) improve(goal, work / goes * go);
  }
  for (uint32_t r = 0; r < count_; ++r) blocks[ranked_[r]].offset = best_[ranked_[r]];
  planned.peak = peak_;
  return planned;
}

// False if the sizes are too large to be added up.
bool Planner::enter(size_t count) {
  count_ = 0;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count; ++i) {
    Block& block = blocks_[i];
    block.offset = 0;
    if (!takes_room(block)) continue;
    if (block.size > kTooLarge || (sum += align_up(block.size, block.align)) > kTooLarge / 2) return false;
    ranked_[count_++] = i;
    weight_[i] = 1;
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

// First fit in the order of the queue.
void Planner::fill() {
  for (uint32_t n = 0; n < count_; ++n) turn_[queue_[n]] = n;
  load(0);
  (void)squeeze(kTooLarge, UINT64_MAX);
  keep();
}

// Tries limits between `goal` and the best plan so far, each with a part of the work that is left. The goal itself comes
// first, for what is soon there, as most programs are; the others get nearer by halves.
void Planner::improve(uint64_t goal, uint64_t work) {
  uint64_t low = goal, limit = goal;
  for (uint64_t part = work < 16 * kPlanSoon.work ? 2 : 8; peak_ > goal && work_ < work; part = 3) {
    const uint64_t until = work_ + (work - work_) / part + 1;
    load(limit);
    if (squeeze(limit, until))
      keep();
    else if ((low = limit) + goal / 512 + 1 >= peak_)
      return;
    limit = low + (peak_ - low) / 2;
  }
}

// Takes the best plan, without the blocks that reach over the limit: they wait in the queue.
void Planner::load(uint64_t limit) {
  placed_count_ = waiting_ = 0;
  next_ = count_;
  memset(waits_.data(), 0, count_);
  for (uint32_t r = 0; r < count_; ++r) {
    const uint32_t i = ranked_[r];
    const bool fits = best_[i] + blocks_[i].size <= limit;
    blocks_[i].offset = fits ? best_[i] : kOpen;
    if (fits)
      placed_[placed_count_++] = i;
    else
      push(i);
  }
  sort(placed_, placed_count_, best_.data());
  work_ += 8ull * count_;
}

// In the order of the queue. False if `work` was reached and some blocks still wait.
bool Planner::squeeze(uint64_t limit, uint64_t work) {
  while (waiting_ > 0) {
    if (work_ > work) return false;
    const uint32_t i = pop();
    if (!find_gap(i, limit)) drive_out(i, limit);
    insert(i);
  }
  return true;
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

// What moving the rivals between two addresses would cost.
uint64_t Planner::weigh(uint64_t from, uint64_t to) {
  uint64_t sum = 0;
  uint32_t k = 0;
  for (; k < rival_count_; ++k) {
    const Block& rival = blocks_[rivals_[k]];
    if (rival.offset >= to) break;
    if (rival.offset + rival.size > from) sum += weight_[rivals_[k]];
  }
  work_ += k + 4;
  return sum;
}

// Puts a block where the rivals in its way are cheapest to move, and sends them to the queue. Places that are tried: the
// ends of the arena, and right behind and before (some of) the rivals. Now and then any of them will do, or a few blocks could
// drive one another about for ever.
void Planner::drive_out(uint32_t i, uint64_t limit) {
  Block& block = blocks_[i];
  uint64_t least = UINT64_MAX, where = 0;
  uint32_t equals = 0;
  const bool anywhere = random(8 * rival_count_ + 8) == 0;
  auto attempt = [&](uint64_t at) {
    if (at + block.size > limit) return;
    const uint64_t cost = anywhere ? 0 : weigh(at, at + block.size);
    if (cost > least || (cost == least && random(++equals) != 0)) return;
    if (cost < least) equals = 1;
    least = cost;
    where = at;
  };
  attempt(0);
  attempt(align_down(limit - block.size, block.align));
  const uint32_t stride = rival_count_ > 64 ? rival_count_ / 32 : 1;
  for (uint32_t k = random(stride); k < rival_count_; k += stride) {
    const Block& rival = blocks_[rivals_[k]];
    attempt(align_up(rival.offset + rival.size, block.align));
    if (rival.offset >= block.size) attempt(align_down(rival.offset - block.size, block.align));
  }
  block.offset = where;
  for (uint32_t k = 0; k < rival_count_ && blocks_[rivals_[k]].offset < where + block.size; ++k)
    if (blocks_[rivals_[k]].offset + blocks_[rivals_[k]].size > where) remove(rivals_[k]);
  ++weight_[i];
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

// Back to the queue.
void Planner::remove(uint32_t i) {
  uint32_t k = find_placed(blocks_[i].offset);
  while (placed_[k] != i) ++k;
  work_ += 60;
  memmove(&placed_[k], &placed_[k + 1], (--placed_count_ - k) * sizeof(uint32_t));
  blocks_[i].offset = kOpen;
  ++weight_[i];
  push(i);
}

void Planner::push(uint32_t i) {
  ++waiting_;
  waits_[turn_[i]] = 1;
  if (turn_[i] < next_) next_ = turn_[i];
}

uint32_t Planner::pop() {
  --waiting_;
  next_ = static_cast<uint32_t>(static_cast<uint8_t*>(memchr(&waits_[next_], 1, count_ - next_)) - waits_.data());
  waits_[next_] = 0;
  return queue_[next_];
}

}  // namespace husk
