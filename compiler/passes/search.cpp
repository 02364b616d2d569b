// The search tries to place all blocks below a limit. A block that fits no gap evicts the blocks
// that are cheapest to move, until all blocks are placed or the allowed work is done. Nothing here
// depends on time, addresses or the standard library, so a model gives the same file everywhere.
#include "passes/search.h"

#include <algorithm>
#include <cstring>

#include <husk/husk.h>

namespace husk::compiler {
namespace {

constexpr uint64_t kQuick = 24000000;  // less work than this is done in one round

uint64_t align_down(uint64_t value, uint64_t align) { return value & ~(align - 1); }

}  // namespace

Status Search::reserve(size_t blocks) {
  waits_.resize(blocks);
  turn_.resize(blocks);
  weight_.resize(blocks);
  return Planner::reserve(*default_allocator(), blocks, nullptr);
}

Planned Search::place(Block* blocks, size_t count, const Effort& effort, Device device) {
  Planned planned;
  if (!enter(blocks, count, device)) {
    planned.peak = planned.lower_bound = kTooLarge;
    return planned;
  }
  if (count_ == 0) return planned;
  planned.lower_bound = lower_bound();
  const uint64_t goal = planned.lower_bound + planned.lower_bound / effort.goal;
  order_by_size();
  fill();
  for (uint32_t n = 0; n < count_; ++n) turn_[queue_[n]] = n;
  std::fill(weight_.begin(), weight_.end(), 1);
  // More work than this does not improve plans of few blocks.
  const uint64_t work = std::min(effort.work, uint64_t{4000000} * count_);
  // Much work is split into four rounds, since each may end in a local minimum. Later rounds are
  // left out if the plan is close to the lower bound.
  const uint64_t rounds = work < kQuick ? 1 : 4,
                 close = planned.lower_bound + planned.lower_bound / 32;
  improve(goal, work / rounds);
  for (uint64_t n = 2; n <= rounds && peak_ > close; ++n) improve(goal, work / rounds * n);
  restore_best();
  planned.peak = peak_;
  return planned;
}

// Tries limits between `goal` and the peak of the best plan, each with a part of the remaining
// work. The goal itself is the first limit, since most programs reach it soon; the others follow by
// bisection.
void Search::improve(uint64_t goal, uint64_t work) {
  uint64_t low = goal, limit = goal;
  for (uint64_t part = work < kQuick ? 2 : 8; peak_ > goal && work_ < work; part = 3) {
    const uint64_t until = work_ + (work - work_) / part + 1;
    load_best(limit);
    if (place_waiting(limit, until))
      keep();
    else if ((low = limit) + goal / 512 + 1 >= peak_)
      return;
    limit = low + (peak_ - low) / 2;
  }
}

// Starts from the best plan; blocks that end above the limit wait.
void Search::load_best(uint64_t limit) {
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

// Places the waiting blocks in the order of the queue. Returns false if `work` is reached before.
bool Search::place_waiting(uint64_t limit, uint64_t work) {
  while (waiting_ > 0) {
    if (work_ > work) return false;
    const uint32_t i = pop();
    if (!find_gap(i, limit)) place_by_eviction(i, limit);
    insert(i);
  }
  return true;
}

// The cost of evicting all conflicting blocks between two addresses.
uint64_t Search::eviction_cost(uint64_t from, uint64_t to) {
  uint64_t sum = 0;
  uint32_t k = 0;
  for (; k < conflicting_count_; ++k) {
    const Block& other = blocks_[conflicting_[k]];
    if (other.offset >= to) break;
    if (other.offset + other.size > from) sum += weight_[conflicting_[k]];
  }
  work_ += k + 4;
  return sum;
}

// Places a block where the conflicting blocks are cheapest to evict, and evicts them. Candidates
// are both ends of the arena and the addresses next to the conflicting blocks, or to some of them.
// From time to time a random candidate is taken, since a few blocks could otherwise evict one
// another forever.
void Search::place_by_eviction(uint32_t i, uint64_t limit) {
  Block& block = blocks_[i];
  uint64_t least = UINT64_MAX, best = 0;
  uint32_t equals = 0;
  const bool anywhere = random(8 * conflicting_count_ + 8) == 0;
  auto attempt = [&](uint64_t at) {
    if (at + block.size > limit) return;
    const uint64_t cost = anywhere ? 0 : eviction_cost(at, at + block.size);
    if (cost > least || (cost == least && random(++equals) != 0)) return;
    if (cost < least) equals = 1;
    least = cost;
    best = at;
  };
  attempt(0);
  attempt(align_down(limit - block.size, block.align));
  const uint32_t stride = conflicting_count_ > 64 ? conflicting_count_ / 32 : 1;
  for (uint32_t k = random(stride); k < conflicting_count_; k += stride) {
    const Block& other = blocks_[conflicting_[k]];
    attempt(align_up(other.offset + other.size, block.align));
    if (other.offset >= block.size) attempt(align_down(other.offset - block.size, block.align));
  }
  block.offset = best;
  for (uint32_t k = 0;
       k < conflicting_count_ && blocks_[conflicting_[k]].offset < best + block.size; ++k)
    if (blocks_[conflicting_[k]].offset + blocks_[conflicting_[k]].size > best)
      evict(conflicting_[k]);
  ++weight_[i];
}

// Takes a placed block out of the plan and puts it in the queue.
void Search::evict(uint32_t i) {
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
  next_ = static_cast<uint32_t>(static_cast<uint8_t*>(memchr(&waits_[next_], 1, count_ - next_)) -
                                waits_.data());
  waits_[next_] = 0;
  return queue_[next_];
}

}  // namespace husk::compiler
