// Families of buffers with sizes and lives, to measure the planner with: made from a number, the same with every compiler.
#pragma once

#include "planner.h"

#include <cstdint>
#include <string>
#include <vector>

namespace husk::bench {

// splitmix64: a counter and a mixing function.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(next() % n); }
  uint32_t between(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
  // Bytes: every power of two in [2^low, 2^high) is as likely as any other, and so is every number up to the next one.
  uint64_t bytes(uint32_t low, uint32_t high);

 private:
  uint64_t state_;
};

struct Lives {
  std::vector<Block> blocks;   // aligned 64
  uint32_t steps = 0;
};

struct Family {
  const char* name;
  const char* what;
  Lives (*make)(uint64_t seed, uint32_t buffers);
  bool program;                // the lives of programs, not of numbers drawn at random
};

const std::vector<Family>& families();

// The same program at another shape: most sizes are so many sixteenths of what they were, some grow with the square of that,
// some stay as they are.
Lives other_shape(const Lives& lives, uint64_t seed, uint32_t sixteenths);

// The blocks in the order of their offsets.
std::vector<uint32_t> by_offset(const Lives& lives);

}  // namespace husk::bench
