// Two ways to a plan, both measured by tests/bench. The skyline gives most programs a plan at the lower bound. What is left
// is squeezed: an arena of the wanted size is assumed, and blocks push one another about in it until all are in, or the
// work allowed is done. Nothing here depends on time, addresses or the standard library, so plans are the same everywhere.
#include "planner.h"

#include <cstring>

namespace husk {
namespace {

constexpr uint64_t kOpen = UINT64_MAX;  // the height where no stretch begins, the offset of a block that is not placed

uint64_t align_up(uint64_t value, uint64_t align) { return (value + align - 1) & ~(align - 1); }
uint64_t align_down(uint64_t value, uint64_t align) { return value & ~(align - 1); }

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
  leaves_ = 1;
  while (leaves_ < blocks) leaves_ *= 2;
  HUSK_TRY(best_.allocate(allocator, blocks, error));
  HUSK_TRY(area_.allocate(allocator, blocks, error));
  HUSK_TRY(lives_.allocate(allocator, blocks, error));
  HUSK_TRY(tree_.allocate(allocator, 2 * size_t{leaves_}, error));
  HUSK_TRY(heights_.allocate(allocator, 2 * size_t{leaves_}, error));
  uint32_t** const lists[] = {&ranked_, &begin_, &reach_, &ends_, &begins_, &placed_, &queue_, &rivals_, &weight_};
  const size_t each = blocks + 1;
  HUSK_TRY(lists_.allocate(allocator, sizeof(lists) / sizeof(*lists) * each, error));
  uint32_t* list = lists_.data();
  for (uint32_t** at : lists) {
    *at = list;
    list += each;
  }
  return Status::ok;
}

Planned Planner::place(Block* blocks, size_t count, const BitRows* shareable, uint64_t work) {
  Planned planned;
  blocks_ = blocks;
  shareable_ = shareable;
  work_ = 0;
  random_ = 1;
  peak_ = UINT64_MAX;
  if (!enter(blocks, count)) {
    planned.peak = planned.lower_bound = kTooLarge;
    return planned;
  }
  if (ranks_ == 0) return planned;
  planned.lower_bound = lower_bound();
  const uint64_t goal = planned.lower_bound + planned.lower_bound / 64;
  for (int rule = 0; !shareable && rule < 2 && peak_ > goal && work_ <= work; ++rule) {
    fill_lowest(rule);
    keep();
  }
  if (shareable) {  // there is no time to speak of: first fit alone
    load(0);
    (void)squeeze(kTooLarge, UINT64_MAX);
    keep();
  }
  // A few blocks are soon tried in every way that matters.
  const uint64_t most = work_ + 100000ull * ranks_;
  improve(goal, work < most ? work : most);
  for (uint32_t r = 0; r < ranks_; ++r) blocks[ranked_[r]].offset = best_[ranked_[r]];
  planned.peak = peak_;
  return planned;
}

// False if the sizes are too large to be added up.
bool Planner::enter(Block* blocks, size_t count) {
  ranks_ = 0;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count; ++i) {
    Block& block = blocks[i];
    block.offset = 0;
    if (block.first > block.last || block.size == 0) continue;
    const uint64_t size = align_up(block.size, block.align);
    if (block.size > kTooLarge || (sum += size) > kTooLarge / 2) return false;
    ranked_[ranks_++] = i;
    weight_[i] = 1;
    best_[i] = block.first;  // there is no plan yet
    if (__builtin_mul_overflow(size, uint64_t{block.last - block.first} + 1, &area_[i])) area_[i] = UINT64_MAX;
  }
  sort(ranked_, ranks_, best_.data());
  compress();
  return true;
}

void Planner::compress() {
  times_ = 0;
  for (uint32_t r = 0; r < ranks_; ++r) {
    if (r == 0 || blocks_[ranked_[r]].first != blocks_[ranked_[r - 1]].first) begin_[times_++] = r;
    lives_[ranked_[r]].first = times_ - 1;
  }
  begin_[times_] = ranks_;
  for (uint32_t r = 0; r < ranks_; ++r) {
    const uint32_t last = blocks_[ranked_[r]].last;
    uint32_t low = lives_[ranked_[r]].first, high = times_ - 1;  // the latest time that is not behind `last`
    while (low < high) {
      const uint32_t middle = (low + high + 1) / 2;
      if (blocks_[ranked_[begin_[middle]]].first <= last)
        low = middle;
      else
        high = middle - 1;
    }
    lives_[ranked_[r]].last = low;
  }
  for (uint32_t t = 0; t < times_; ++t) reach_[t] = t;
  for (uint32_t r = ranks_; r-- > 0;)
    if (lives_[ranked_[r]].first < reach_[lives_[ranked_[r]].last]) reach_[lives_[ranked_[r]].last] = lives_[ranked_[r]].first;
  for (uint32_t t = times_; t-- > 1;)
    if (reach_[t] < reach_[t - 1]) reach_[t - 1] = reach_[t];
}

uint64_t Planner::lower_bound() {
  uint64_t* change = heights_.data();  // free until the skyline is made; differences wrap and unwrap
  for (uint32_t t = 0; t <= times_; ++t) change[t] = 0;
  for (uint32_t r = 0; r < ranks_; ++r) {
    const uint32_t i = ranked_[r];
    const uint64_t size = align_up(blocks_[i].size, blocks_[i].align);
    change[lives_[i].first] += size;
    change[lives_[i].last + 1] -= size;
  }
  uint64_t sum = 0, most = 0;
  for (uint32_t t = 0; t < times_; ++t) {
    sum += change[t];
    if (sum > most) most = sum;
  }
  return most;
}

void Planner::keep() {
  uint64_t peak = 0;
  for (uint32_t r = 0; r < ranks_; ++r) {
    const Block& block = blocks_[ranked_[r]];
    if (block.offset + block.size > peak) peak = block.offset + block.size;
  }
  if (peak >= peak_) return;
  peak_ = peak;
  for (uint32_t r = 0; r < ranks_; ++r) best_[ranked_[r]] = blocks_[ranked_[r]].offset;
}

uint32_t Planner::random(uint32_t n) {  // xorshift
  random_ ^= random_ << 13;
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  return random_ % n;
}

// ---- skyline ----

// What makes a block the best: its area, or its life and then its bytes. Never 0.
uint64_t Planner::value(uint32_t i, int rule) const {
  const uint64_t size = blocks_[i].size, steps = uint64_t{blocks_[i].last - blocks_[i].first} + 1;
  auto at_most = [](uint64_t x, int bits) { return x >> bits ? (1ull << bits) - 1 : x; };
  return rule == 0 ? area_[i] : at_most(steps, 24) << 40 | at_most(size, 40);
}

void Planner::fill_lowest(int rule) {
  for (uint32_t r = 0; r < leaves_; ++r) {
    tree_[leaves_ + r] = r < ranks_ ? Node{value(ranked_[r], rule), lives_[ranked_[r]].last} : Node{0, kNone};
    heights_[leaves_ + r] = kOpen;
  }
  for (uint32_t n = leaves_; n-- > 1;) {
    tree_[n] = join(tree_[2 * n], tree_[2 * n + 1]);
    heights_[n] = kOpen;
  }
  stretch(0, times_ - 1, 0);
  for (uint32_t left = ranks_; left > 0;) {
    const uint32_t begin = lowest(), end = ends_[begin];
    work_ += 40;
    const Choice best = choose({begin_[begin], begin_[end + 1] - 1}, end);
    if (best.rank == kNone) {
      raise(begin);
      continue;
    }
    settle(ranked_[best.rank], begin);
    set_leaf(best.rank, {0, kNone});
    --left;
  }
}

// The best block, with the lowest rank among equals, of those in `ranks` that end at `last` or before.
Planner::Choice Planner::choose(const Life& ranks, uint32_t last) {
  Choice best = {0, kNone};
  if (ranks.last - ranks.first > 20) {
    descend(1, 0, leaves_ - 1, ranks, last, &best);
    return best;
  }
  const Node* leaves = tree_.data() + leaves_;
  for (uint32_t r = ranks.first; r <= ranks.last; ++r)
    if (leaves[r].last <= last && leaves[r].value > best.value) best = {leaves[r].value, r};
  return best;
}

void Planner::descend(uint32_t node, uint32_t low, uint32_t high, const Life& ranks, uint32_t last, Choice* best) {
  work_ += 4;
  if (low > ranks.last || high < ranks.first || tree_[node].last > last || tree_[node].value <= best->value) return;
  if (low == high) {
    *best = {tree_[node].value, low};
    return;
  }
  const uint32_t middle = (low + high) / 2;
  descend(2 * node, low, middle, ranks, last, best);
  descend(2 * node + 1, middle + 1, high, ranks, last, best);
}

void Planner::set_leaf(uint32_t rank, const Node& leaf) {
  Node* tree = tree_.data();
  uint32_t n = leaves_ + rank;
  tree[n] = leaf;
  while (n /= 2) tree[n] = join(tree[2 * n], tree[2 * n + 1]);
}

uint32_t Planner::lowest() const {
  const uint64_t* heights = heights_.data();
  uint32_t n = 1;
  while (n < leaves_) n = 2 * n + (heights[2 * n + 1] < heights[2 * n]);
  return n - leaves_;
}

void Planner::set_height(uint32_t begin, uint64_t height) {
  uint64_t* heights = heights_.data();
  uint32_t n = leaves_ + begin;
  heights[n] = height;
  while (n > 1) {
    const uint64_t least = heights[n] < heights[n ^ 1] ? heights[n] : heights[n ^ 1];
    if (heights[n /= 2] == least) return;
    heights[n] = least;
  }
}

void Planner::stretch(uint32_t begin, uint32_t end, uint64_t height) {
  ends_[begin] = end;
  begins_[end] = begin;
  set_height(begin, height);
}

// Makes one of two stretches of the same height that meet before `begin`.
void Planner::join_left(uint32_t begin) {
  if (begin == 0 || begin == times_) return;
  const uint32_t before = begins_[begin - 1];
  if (height(before) != height(begin)) return;
  ends_[before] = ends_[begin];
  begins_[ends_[begin]] = before;
  set_height(begin, kOpen);
}

// Lays a block onto the stretch that it lives inside of.
void Planner::settle(uint32_t i, uint32_t begin) {
  Block& block = blocks_[i];
  const Life life = lives_[i];
  const uint64_t floor = height(begin);
  const uint32_t end = ends_[begin];
  block.offset = align_up(floor, block.align);
  if (begin < life.first) stretch(begin, life.first - 1, floor);
  stretch(life.first, life.last, align_up(block.offset + block.size, block.align));
  if (life.last < end) stretch(life.last + 1, end, floor);
  join_left(life.last + 1);
  join_left(life.first);
}

// Nothing lives inside this stretch: it becomes as high as the lower of its neighbours, and one with it.
void Planner::raise(uint32_t begin) {
  const uint32_t next = ends_[begin] + 1;
  const uint64_t left = begin > 0 ? height(begins_[begin - 1]) : kOpen, right = next < times_ ? height(next) : kOpen;
  if (left <= right) {
    const uint32_t before = begins_[begin - 1];
    ends_[before] = next - 1;
    begins_[next - 1] = before;
    set_height(begin, kOpen);
  } else {
    stretch(begin, next - 1, right);
  }
  join_left(next);
}

// ---- squeeze ----

bool Planner::apart(uint32_t i, uint32_t j) const {
  if (shareable_) return shareable_->test(i, j);
  return lives_[i].first > lives_[j].last || lives_[j].first > lives_[i].last;
}

// Tries limits between `goal`, first, and the best plan so far, each with a part of the work that is left.
void Planner::improve(uint64_t goal, uint64_t work) {
  uint64_t low = goal, limit = goal;
  while (peak_ > goal && work_ < work) {
    const uint64_t until = work_ + (work - work_) / 3 + 1;
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
  placed_count_ = queued_ = 0;
  for (uint32_t r = 0; r < ranks_; ++r) {
    const uint32_t i = ranked_[r];
    const bool fits = peak_ != UINT64_MAX && best_[i] + blocks_[i].size <= limit;
    blocks_[i].offset = fits ? best_[i] : kOpen;
    if (fits)
      placed_[placed_count_++] = i;
    else
      push(i);
  }
  sort(placed_, placed_count_, best_.data());
  work_ += 8ull * ranks_;
}

// Largest area first. False if `work` was reached and some blocks still wait.
bool Planner::squeeze(uint64_t limit, uint64_t work) {
  while (queued_ > 0) {
    if (work_ > work) return false;
    const uint32_t i = pop();
    if (!find_gap(i, limit)) drive_out(i, limit);
    insert(i);
  }
  return true;
}

// Collects what is placed and lives at the same time, by offset, if that is quickly found among those that begin near by.
bool Planner::find_near(uint32_t i) {
  const uint32_t from = begin_[reach_[lives_[i].first]], to = begin_[lives_[i].last + 1];
  if (shareable_ || to - from > placed_count_ / 8) return false;
  rival_count_ = 0;
  for (uint32_t r = from; r < to; ++r) {
    const uint32_t j = ranked_[r];
    if (blocks_[j].offset == kOpen || apart(i, j)) continue;
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
    uint32_t k = rival_count_ = 0;
    for (; k < placed_count_; ++k) {
      const uint32_t j = placed_[k];
      if (blocks_[j].offset >= at + size) break;
      if (apart(i, j)) continue;
      rivals_[rival_count_++] = j;
      (void)passes(blocks_[j]);
    }
    work_ += 2ull * k;
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
// ends of the arena, and right behind and before (some of) the rivals.
void Planner::drive_out(uint32_t i, uint64_t limit) {
  Block& block = blocks_[i];
  uint64_t least = UINT64_MAX, where = 0;
  uint32_t equals = 0;
  auto attempt = [&](uint64_t at) {
    if (at + block.size > limit) return;
    const uint64_t cost = weigh(at, at + block.size);
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
  uint32_t low = 0, high = placed_count_;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (blocks_[placed_[middle]].offset < offset)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
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
  uint32_t n = queued_++;
  for (; n > 0 && comes_first(i, queue_[(n - 1) / 2]); n = (n - 1) / 2) queue_[n] = queue_[(n - 1) / 2];
  queue_[n] = i;
}

uint32_t Planner::pop() {
  const uint32_t first = queue_[0], moved = queue_[--queued_];
  uint32_t n = 0;
  for (uint32_t child; (child = 2 * n + 1) < queued_; n = child) {
    if (child + 1 < queued_ && comes_first(queue_[child + 1], queue_[child])) ++child;
    if (comes_first(moved, queue_[child])) break;
    queue_[n] = queue_[child];
  }
  queue_[n] = moved;
  return first;
}

}  // namespace husk
