// Families of buffers with sizes and live ranges for measurements of the planner. A family is
// generated from a seed and is the same with every compiler.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/planner.h"

namespace husk::bench {

// The generator splitmix64: a counter and a mixing function.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(next() % n); }
  uint32_t between(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
  // A number of bytes: every power of two in [2^low, 2^high) is equally likely, and so is every
  // number up to the next power.
  uint64_t bytes(uint32_t low, uint32_t high);

 private:
  uint64_t state_;
};

struct Lives {
  std::vector<Block> blocks;  // aligned 64
  uint32_t steps = 0;
};

struct Family {
  const char* name;
  const char* what;
  Lives (*make)(uint64_t seed, uint32_t buffers);
  bool program;  // true if the live ranges are those of programs and not random numbers
};

const std::vector<Family>& families();

// The same program at another shape: most sizes are scaled by a number of sixteenths, some by its
// square, and some stay the same.
Lives other_shape(const Lives& lives, uint64_t seed, uint32_t sixteenths);

// The blocks sorted by their offsets.
std::vector<uint32_t> by_offset(const Lives& lives);

}  // namespace husk::bench
