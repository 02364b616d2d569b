// A block that finds no gap below a limit drives out those that are cheapest to move, until all are in or the work allowed is
// done. Nothing here depends on time, addresses or the standard library, so the same model gives the same file everywhere.
#include "passes/search.h"

#include <husk/husk.h>

#include <algorithm>
#include <cstring>

namespace husk::compiler {
namespace {

constexpr uint64_t kQuick = 24000000;  // less work than this is spent in one go

uint64_t align_up(uint64_t value, uint64_t align) { return (value + align - 1) & ~(align - 1); }
uint64_t align_down(uint64_t value, uint64_t align) { return value & ~(align - 1); }

}  // namespace

Status Search::reserve(size_t blocks) {
  waits_.resize(blocks);
  turn_.resize(blocks);
  weight_.resize(blocks);
  return Planner::reserve(*default_allocator(), blocks, nullptr);
}

Planned Search::place(Block* blocks, size_t count, const Effort& effort) {
  Planned planned;
  if (!enter(blocks, count)) {
    planned.peak = planned.lower_bound = kTooLarge;
    return planned;
  }
  if (count_ == 0) return planned;
  planned.lower_bound = lower_bound();
  const uint64_t goal = planned.lower_bound + planned.lower_bound / effort.goal;
  queue_by_area();
  fill();
  for (uint32_t n = 0; n < count_; ++n) turn_[queue_[n]] = n;
  std::fill(weight_.begin(), weight_.end(), 1);
  // A few blocks are soon tried in every way that matters.
  const uint64_t work = std::min(effort.work, uint64_t{4000000} * count_);
  // Much work is better spent in four goes, since each may end in a corner; the later ones only where the plan is far off.
  const uint64_t goes = work < kQuick ? 1 : 4, near = planned.lower_bound + planned.lower_bound / 32;
  improve(goal, work / goes);
  for (uint64_t go = 2; go <= goes && peak_ > near; ++go) improve(goal, work / goes * go);
  take_best();
  planned.peak = peak_;
  return planned;
}

// Tries limits between `goal` and the best plan so far, each with a part of the work that is left. The goal itself comes
// first, for what is soon there, as most programs are; the others get nearer by halves.
void Search::improve(uint64_t goal, uint64_t work) {
  uint64_t low = goal, limit = goal;
  for (uint64_t part = work < kQuick ? 2 : 8; peak_ > goal && work_ < work; part = 3) {
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
void Search::load(uint64_t limit) {
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
bool Search::squeeze(uint64_t limit, uint64_t work) {
  while (waiting_ > 0) {
    if (work_ > work) return false;
    const uint32_t i = pop();
    if (!find_gap(i, limit)) drive_out(i, limit);
    insert(i);
  }
  return true;
}

// What moving the rivals between two addresses would cost.
uint64_t Search::weigh(uint64_t from, uint64_t to) {
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
void Search::drive_out(uint32_t i, uint64_t limit) {
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

// Back to the queue.
void Search::remove(uint32_t i) {
  uint32_t k = find_placed(blocks_[i].offset);
  while (placed_[k] != i) ++k;
  work_ += 60;
  memmove(&placed_[k], &placed_[k + 1], (--placed_count_ - k) * sizeof(uint32_t));
  blocks_[i].offset = kOpen;
  ++weight_[i];
  push(i);
}

void Search::push(uint32_t i) {
  ++waiting_;
  waits_[turn_[i]] = 1;
  if (turn_[i] < next_) next_ = turn_[i];
}

uint32_t Search::pop() {
  --waiting_;
  next_ = static_cast<uint32_t>(static_cast<uint8_t*>(memchr(&waits_[next_], 1, count_ - next_)) - waits_.data());
  waits_[next_] = 0;
  return queue_[next_];
}

}  // namespace husk::compiler
