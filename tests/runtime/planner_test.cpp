#include "planner.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace husk {
namespace {

const husk_allocator& allocator() { return *default_allocator(); }

bool lives_meet(const Block& a, const Block& b) { return a.first <= b.last && b.first <= a.last; }

Planned plan(std::vector<Block>& blocks, uint32_t steps, const BitRows* shareable = nullptr) {
  Planner planner;
  EXPECT_EQ(planner.reserve(allocator(), blocks.size(), steps, nullptr), Status::ok);
  return planner.place(blocks.data(), blocks.size(), shareable);
}

// No two blocks that may not share touch, all are aligned and inside the peak.
void expect_sound(const std::vector<Block>& blocks, const Planned& planned, const BitRows* shareable) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Block& a = blocks[i];
    if (a.first > a.last || a.size == 0) continue;
    EXPECT_EQ(a.offset % a.align, 0u);
    EXPECT_LE(a.offset + a.size, planned.peak);
    for (size_t j = 0; j < i; ++j) {
      const Block& b = blocks[j];
      if (b.first > b.last || b.size == 0) continue;
      if (shareable ? shareable->test(i, j) : !lives_meet(a, b)) continue;
      EXPECT_TRUE(a.offset + a.size <= b.offset || b.offset + b.size <= a.offset) << i << " meets " << j;
    }
  }
}

TEST(Planner, NothingNeedsNothing) {
  std::vector<Block> none;
  EXPECT_EQ(plan(none, 0).peak, 0u);
  std::vector<Block> unused = {{4096, 64, UINT32_MAX, 0, 0}};
  EXPECT_EQ(plan(unused, 3).peak, 0u);
}

TEST(Planner, ChainTakesTwoBuffers) {
  std::vector<Block> blocks;
  for (uint32_t i = 0; i < 10; ++i) blocks.push_back({1000, 8, i, i + 1, 0});
  const Planned planned = plan(blocks, 11);
  EXPECT_EQ(planned.peak, 2000u);
  EXPECT_EQ(planned.lower_bound, 2000u);
}

TEST(Planner, RandomPlansAreSoundAndTight) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const uint32_t steps = 1 + random() % 60;
    std::vector<Block> blocks(1 + random() % 80);
    for (Block& block : blocks) {
      const uint32_t a = random() % steps, b = std::min(steps - 1, a + static_cast<uint32_t>(random() % 8));
      block = {random() % 10000, 1ull << (random() % 9), a, b, 0};
    }
    const Planned planned = plan(blocks, steps);
    expect_sound(blocks, planned, nullptr);
    EXPECT_GE(planned.peak + 256 * blocks.size(), planned.lower_bound);
    EXPECT_LE(planned.peak, planned.lower_bound + planned.lower_bound / 4 + 4096) << "round " << round;
  }
}

TEST(Planner, SharesOnlyWhereItMay) {
  std::mt19937 random(8);
  for (int round = 0; round < 100; ++round) {
    std::vector<Block> blocks(2 + random() % 30);
    for (Block& block : blocks) block = {1 + random() % 5000, 64, 0, 5, 0};
    BitRows shareable;
    ASSERT_EQ(shareable.allocate(allocator(), blocks.size(), blocks.size(), nullptr), Status::ok);
    for (size_t i = 0; i < blocks.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (random() % 2) {
          shareable.set(i, j);
          shareable.set(j, i);
        }
    const Planned planned = plan(blocks, 6, &shareable);
    expect_sound(blocks, planned, &shareable);
  }
}

TEST(Planner, PlansAreTheSameEveryTime) {
  std::vector<Block> blocks, again;
  for (uint32_t i = 0; i < 50; ++i) blocks.push_back({100 + i % 3 * 64, 64, i, i + i % 5, 0});
  again = blocks;
  plan(blocks, 60);
  plan(again, 60);
  for (size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(blocks[i].offset, again[i].offset);
}

}  // namespace
}  // namespace husk
