#include "families.h"

#include <algorithm>
#include <numeric>

namespace husk::bench {

uint64_t Random::next() {
  uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}

uint64_t Random::bytes(uint32_t low, uint32_t high) {
  const uint32_t k = between(low, high - 1);
  return (1ull << k) + next() % (1ull << k);
}

namespace {

// Builds a program step by step. Each step makes a buffer and uses older ones.
class Program {
 public:
  explicit Program(uint32_t buffers) : wanted_(buffers) {}
  bool full() const { return lives_.blocks.size() >= wanted_; }
  uint32_t make(uint64_t bytes) {
    const uint32_t step = lives_.steps++;
    lives_.blocks.push_back({std::max<uint64_t>(bytes, 1), 64, step, step, 0});
    return static_cast<uint32_t>(lives_.blocks.size() - 1);
  }
  // Marks a buffer as used by the newest step.
  void use(uint32_t buffer) { lives_.blocks[buffer].last = lives_.steps - 1; }
  Lives take() { return std::move(lives_); }

 private:
  uint32_t wanted_;
  Lives lives_;
};

// Widths halve and double from layer to layer, as in convolutional networks.
uint64_t width(Random& random, uint64_t now) {
  switch (random.below(8)) {
    case 0: return std::max<uint64_t>(now / 2, 1 << 10);
    case 1: return std::min<uint64_t>(now * 2, 1 << 26);
    default: return now;
  }
}

Lives chain(uint64_t seed, uint32_t buffers) {
  Random random(seed);
  Program program(buffers);
  uint32_t last = program.make(random.bytes(8, 24));
  while (!program.full()) {
    const uint32_t next = program.make(random.bytes(8, 24));
    program.use(last);
    last = next;
  }
  return program.take();
}

// Residual blocks, x + f(x): the input of a block lives until the end of the block. A block has one
// to four layers, some of which have a small workspace.
Lives residual(uint64_t seed, uint32_t buffers) {
  Random random(seed);
  Program program(buffers);
  uint64_t size = random.bytes(14, 22);
  uint32_t input = program.make(size);
  while (!program.full()) {
    size = width(random, size);
    uint32_t last = input;
    for (uint32_t layers = random.between(1, 4); layers > 0; --layers) {
      const bool small = random.below(3) == 0;
      const uint32_t workspace = small ? program.make(random.bytes(6, 12)) : last;
      const uint32_t next = program.make(
          layers == 1 ? size : size * random.between(1, 4) / 2 + random.below(3) * 64);
      program.use(last);
      program.use(workspace);
      last = next;
    }
    program.use(input);
    input = last;
  }
  return program.take();
}

// Two to six branches of one to three layers between a fork and a join.
Lives diamond(uint64_t seed, uint32_t buffers) {
  Random random(seed);
  Program program(buffers);
  uint32_t fork = program.make(random.bytes(12, 22));
  while (!program.full()) {
    std::vector<uint32_t> ends;
    uint64_t sum = 0;
    for (uint32_t branches = random.between(2, 6); branches > 0; --branches) {
      uint32_t last = fork;
      for (uint32_t layers = random.between(1, 3); layers > 0; --layers) {
        const uint64_t size = random.bytes(12, 21);
        const uint32_t next = program.make(size);
        program.use(last);
        last = next;
        if (layers == 1) sum += size;
      }
      ends.push_back(last);
    }
    fork = program.make(sum);
    for (uint32_t end : ends) program.use(end);
  }
  return program.take();
}

// An hourglass: the second half uses the buffers of the first half, the newest first.
Lives nested(uint64_t seed, uint32_t buffers) {
  Random random(seed);
  Program program(buffers);
  while (!program.full()) {
    std::vector<uint32_t> kept;
    uint64_t size = random.bytes(16, 24);
    uint32_t last = program.make(size);
    for (uint32_t depth = random.between(3, 40); depth > 0; --depth) {
      size = width(random, size);
      const uint32_t next = program.make(size);
      program.use(last);
      if (random.below(2)) kept.push_back(next);
      last = next;
    }
    while (!kept.empty()) {
      const uint32_t skip = kept.back();
      kept.pop_back();
      const uint32_t next = program.make(random.below(4) ? 1 << 12 : random.bytes(12, 24));
      program.use(skip);
      program.use(last);
      last = next;
    }
  }
  return program.take();
}

// Transformer layers: norm, q, k, v, scores, attention, projection and the two products of the
// feed-forward part.
Lives transformer(uint64_t seed, uint32_t buffers) {
  Random random(seed);
  Program program(buffers);
  const uint64_t tokens = random.between(1, 2048), width_bytes = 64 * random.between(2, 64),
                 heads = random.between(1, 16);
  const uint64_t row = tokens * width_bytes;
  uint32_t x = program.make(row);
  while (!program.full()) {
    auto step = [&](uint64_t size, std::initializer_list<uint32_t> used) {
      const uint32_t buffer = program.make(size);
      for (uint32_t b : used) program.use(b);
      return buffer;
    };
    const uint32_t statistics = step(tokens * 4, {x}), norm = step(row, {x, statistics});
    const uint32_t q = step(row, {norm}), k = step(row / 4 + 64, {norm}),
                   v = step(row / 4 + 64, {norm});
    const uint32_t scores = step(tokens * tokens * heads * 2, {q, k}),
                   most = step(tokens * heads * 4, {scores});
    const uint32_t mixed = step(row, {scores, most, v}), sum = step(row, {mixed, x});
    const uint32_t norm2 = step(row, {sum}), up = step(row * 4, {norm2}), down = step(row, {up});
    x = step(row, {down, sum});
  }
  return program.take();
}

// Live ranges at random places; `longest` is the largest length of a live range.
Lives at_random(uint64_t seed, uint32_t buffers, uint32_t low, uint32_t high, uint32_t longest) {
  Random random(seed);
  Lives lives;
  lives.steps = buffers;
  for (uint32_t i = 0; i < buffers; ++i) {
    const uint32_t first = random.below(lives.steps);
    const uint32_t length = random.below(std::min(longest, lives.steps));
    lives.blocks.push_back(
        {random.bytes(low, high), 64, first, std::min(lives.steps - 1, first + length), 0});
  }
  return lives;
}

Lives random_short(uint64_t seed, uint32_t buffers) { return at_random(seed, buffers, 6, 24, 16); }
Lives random_long(uint64_t seed, uint32_t buffers) {
  return at_random(seed, buffers, 6, 24, UINT32_MAX);
}
Lives random_alike(uint64_t seed, uint32_t buffers) { return at_random(seed, buffers, 16, 17, 32); }

// Live ranges with random lengths on every scale: a length of one step is as likely as 2 to 3 or 64
// to 127 steps.
Lives random_scales(uint64_t seed, uint32_t buffers) {
  Random random(seed);
  Lives lives;
  lives.steps = buffers;
  uint32_t scale = 1;
  while (2u << scale <= buffers) ++scale;
  for (uint32_t i = 0; i < buffers; ++i) {
    const uint32_t first = random.below(lives.steps),
                   length = static_cast<uint32_t>(random.bytes(0, scale)) - 1;
    lives.blocks.push_back(
        {random.bytes(6, 24), 64, first, std::min(lives.steps - 1, first + length), 0});
  }
  return lives;
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"chain", "each buffer used by the next step; 256 B to 16 MB", chain, true},
      {"residual", "x + f(x), one to four layers, small workspaces", residual, true},
      {"diamond", "forks of two to six branches of one to three layers, joined", diamond, true},
      {"nested", "down and up again with skip connections", nested, true},
      {"transformer", "attention and feed-forward layers of one size", transformer, true},
      {"random_short", "lives of 1 to 16 steps, sizes log-uniform 64 B to 16 MB", random_short,
       false},
      {"random_scales", "lives log-uniform, sizes log-uniform 64 B to 16 MB", random_scales, false},
      {"random_long", "lives uniform, sizes log-uniform 64 B to 16 MB", random_long, false},
      {"random_alike", "lives of 1 to 32 steps, sizes uniform 64 to 128 KB", random_alike, false},
  };
  return all;
}

Lives other_shape(const Lives& lives, uint64_t seed, uint32_t sixteenths) {
  Random random(seed);
  Lives out = lives;
  for (Block& block : out.blocks) {
    const uint32_t kind = random.below(10);
    if (kind == 0) continue;
    block.size = std::max<uint64_t>(block.size * sixteenths / 16, 1);
    if (kind <= 2) block.size = std::max<uint64_t>(block.size * sixteenths / 16, 1);
  }
  return out;
}

std::vector<uint32_t> by_offset(const Lives& lives) {
  std::vector<uint32_t> order(lives.blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return lives.blocks[a].offset < lives.blocks[b].offset;
  });
  return order;
}

}  // namespace husk::bench
