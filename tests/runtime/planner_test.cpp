#include "plan/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "../bench/families.h"
#include "passes/search.h"

namespace husk {
namespace {

const husk_allocator& allocator() { return *default_allocator(); }

bool lives_meet(const Block& a, const Block& b) { return a.first <= b.last && b.first <= a.last; }

Planned plan(std::vector<Block>& blocks, const BitRows* shareable = nullptr) {
  Planner planner;
  EXPECT_EQ(planner.reserve(allocator(), blocks.size(), nullptr), Status::ok);
  return planner.place(blocks.data(), blocks.size(), shareable);
}

// Two blocks that may not share memory do not overlap, and all blocks are aligned and end below the
// peak.
void expect_sound(const std::vector<Block>& blocks, const Planned& planned,
                  const BitRows* shareable) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Block& a = blocks[i];
    if (a.first > a.last || a.size == 0) continue;
    EXPECT_EQ(a.offset % a.align, 0u);
    EXPECT_LE(a.offset + a.size, planned.peak);
    for (size_t j = 0; j < i; ++j) {
      const Block& b = blocks[j];
      if (b.first > b.last || b.size == 0) continue;
      if (shareable ? shareable->test(i, j) : !lives_meet(a, b)) continue;
      EXPECT_TRUE(a.offset + a.size <= b.offset || b.offset + b.size <= a.offset)
          << i << " meets " << j;
    }
  }
}

TEST(Planner, NothingNeedsNothing) {
  std::vector<Block> none;
  EXPECT_EQ(plan(none).peak, 0u);
  std::vector<Block> unused = {{4096, 64, UINT32_MAX, 0, 0}};
  EXPECT_EQ(plan(unused).peak, 0u);
}

// Blocks of two devices share no memory, and a plan of one device leaves the other's offsets alone.
TEST(Planner, PlansEachDeviceByItself) {
  std::vector<Block> blocks, only;
  for (uint32_t i = 0; i < 10; ++i) {
    blocks.push_back({1000 + i * 8, 8, i, i + 2, 0});
    if (i % 3 == 0)
      blocks.back().device = Device::host;
    else
      only.push_back(blocks.back());
  }
  std::vector<uint32_t> order(blocks.size());
  std::iota(order.rbegin(), order.rend(), 0);
  Planner planner;
  ASSERT_EQ(planner.reserve(allocator(), blocks.size(), nullptr), Status::ok);
  const Planned target = planner.place(blocks.data(), blocks.size(), nullptr, order.data());
  const Planned host = planner.place(blocks.data(), blocks.size(), nullptr, order.data(),
                                     Device::host);
  std::vector<Block> on_host;
  size_t at = 0;
  std::vector<uint32_t> own_order(only.size());
  std::iota(own_order.rbegin(), own_order.rend(), 0);
  EXPECT_EQ(planner.place(only.data(), only.size(), nullptr, own_order.data()).peak, target.peak);
  for (const Block& block : blocks) {
    if (block.device == Device::host)
      on_host.push_back(block);
    else
      EXPECT_EQ(block.offset, only[at++].offset);
  }
  expect_sound(only, target, nullptr);
  expect_sound(on_host, host, nullptr);
  EXPECT_EQ(host.peak, host.lower_bound);
  EXPECT_LT(host.peak, target.peak);
}

TEST(Planner, ChainTakesTwoBuffers) {
  std::vector<Block> blocks;
  for (uint32_t i = 0; i < 10; ++i) blocks.push_back({1000, 8, i, i + 1, 0});
  const Planned planned = plan(blocks);
  EXPECT_EQ(planned.peak, 2000u);
  EXPECT_EQ(planned.lower_bound, 2000u);
}

TEST(Planner, RandomPlansAreSoundAndTight) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const uint32_t steps = 1 + random() % 60;
    std::vector<Block> blocks(1 + random() % 80);
    for (Block& block : blocks) {
      const uint32_t a = random() % steps,
                     b = std::min(steps - 1, a + static_cast<uint32_t>(random() % 8));
      block = {random() % 10000, 1ull << (random() % 9), a, b, 0};
    }
    const Planned planned = plan(blocks);
    expect_sound(blocks, planned, nullptr);
    EXPECT_GE(planned.peak + 256 * blocks.size(), planned.lower_bound);
    EXPECT_LE(planned.peak, planned.lower_bound + planned.lower_bound / 4 + 4096)
        << "round " << round;
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
    const Planned planned = plan(blocks, &shareable);
    expect_sound(blocks, planned, &shareable);
  }
}

TEST(Planner, PlansAreTheSameEveryTime) {
  std::vector<Block> blocks, again;
  for (uint32_t i = 0; i < 50; ++i) blocks.push_back({100 + i % 3 * 64, 64, i, i + i % 5, 0});
  again = blocks;
  plan(blocks);
  plan(again);
  for (size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(blocks[i].offset, again[i].offset);
}

class Families : public testing::Test {
 protected:
  Planned place(bench::Lives& lives, const uint32_t* order) {
    EXPECT_EQ(planner_.reserve(allocator(), lives.blocks.size(), nullptr), Status::ok);
    const Planned planned = planner_.place(lives.blocks.data(), lives.blocks.size(), nullptr,
                                           order);
    expect_sound(lives.blocks, planned, nullptr);
    return planned;
  }
  Planned search(bench::Lives& lives, const compiler::Effort& effort = compiler::kPlanWell) {
    EXPECT_EQ(search_.reserve(lives.blocks.size()), Status::ok);
    const Planned planned = search_.place(lives.blocks.data(), lives.blocks.size(), effort);
    expect_sound(lives.blocks, planned, nullptr);
    return planned;
  }
  static double ratio(const Planned& planned) {
    return static_cast<double>(planned.peak) / static_cast<double>(planned.lower_bound);
  }

 private:
  Planner planner_;
  compiler::Search search_;
};

// The measurements of tests/bench with a few seeds. A long search, as the compiler makes it, ends
// within 2 % of the lower bound for programs and within 5 % for random blocks. The order that it
// finds gives the same plan at once. For a program at other shapes the plan in that order is within
// 5 %, whatever the sizes are; for random blocks it is only checked to be valid.
TEST_F(Families, AreTightInTheOrderOfALongSearch) {
  for (const bench::Family& family : bench::families()) {
    for (uint32_t buffers : {10u, 30u, 100u, 300u, 2000u}) {
      for (uint64_t seed = 0; seed < (buffers > 1000 ? 1 : family.program ? 6 : 3); ++seed) {
        SCOPED_TRACE(std::string(family.name) + ", " + std::to_string(buffers) + " buffers, seed " +
                     std::to_string(seed));
        bench::Lives lives = family.make(seed * 7919 + buffers, buffers);
        const Planned found = search(lives);
        EXPECT_LE(ratio(found), family.program ? 1.02 : 1.05);
        const std::vector<uint32_t> order = by_offset(lives);
        EXPECT_LE(place(lives, order.data()).peak, found.peak);
        for (uint32_t sixteenths : {1u, 4u, 11u, 40u}) {
          bench::Lives other = other_shape(lives, seed, sixteenths);
          const Planned planned = place(other, order.data());
          EXPECT_LE(family.program ? ratio(planned) : 1, 1.05) << sixteenths << " sixteenths";
        }
      }
    }
  }
}

// A short search ends within 5 % for programs and within 20 % for others. A session alone places
// the blocks in a few orders and ends within 12.5 % and 35 %. A session does so for buffers whose
// sizes depend on data, and for the parallel plan.
TEST_F(Families, AreTightWithoutAnOrder) {
  for (const bench::Family& family : bench::families()) {
    for (uint32_t buffers : {10u, 30u, 100u, 300u, 2000u}) {
      for (uint64_t seed = 0; seed < (buffers > 1000 ? 1 : 6); ++seed) {
        SCOPED_TRACE(std::string(family.name) + ", " + std::to_string(buffers) + " buffers, seed " +
                     std::to_string(seed));
        bench::Lives lives = family.make(seed * 7919 + buffers, buffers);
        EXPECT_LE(ratio(search(lives, {1500000, 64})), family.program ? 1.05 : 1.2);
        EXPECT_LE(ratio(place(lives, nullptr)), family.program ? 1.125 : 1.35);
      }
    }
  }
}

// First fit in the order of a plan's offsets needs no more memory than the plan.
TEST_F(Families, AnOrderGivesItsPlanAtOnce) {
  for (const bench::Family& family : bench::families()) {
    bench::Lives lives = family.make(3, 200);
    const Planned found = search(lives, {1500000, 64});
    const std::vector<uint32_t> order = by_offset(lives);
    EXPECT_LE(place(lives, order.data()).peak, found.peak) << family.name;
  }
}

// The numbers are the same with every compiler and standard library, and under sanitizers.
TEST_F(Families, PlansAreTheSameEverywhere) {
  constexpr uint64_t kSeed = 14695981039346656037ull;  // FNV-1a over words
  auto mix = [](uint64_t& hash, const bench::Lives& lives) {
    for (const Block& block : lives.blocks) hash = (hash ^ block.offset) * 1099511628211ull;
  };
  uint64_t planned = kSeed, searched = kSeed;
  for (const bench::Family& family : bench::families()) {
    bench::Lives lives = family.make(1, 120);
    place(lives, nullptr);
    mix(planned, lives);
    search(lives, {1500000, 64});
    mix(searched, lives);
  }
  EXPECT_EQ(planned, 16857796759650927423ull);
  EXPECT_EQ(searched, 15553270701877400447ull);
}

// Blocks of size 0 are part of the order too, and any order gives a valid plan.
TEST(Planner, AnyOrderIsSound) {
  std::mt19937 random(9);
  for (int round = 0; round < 50; ++round) {
    std::vector<Block> blocks(1 + random() % 80);
    for (Block& block : blocks) {
      const uint32_t first = random() % 40;
      block = {random() % 4 ? 1 + random() % 10000 : 0, 1ull << (random() % 9), first,
               first + static_cast<uint32_t>(random() % 8), 0};
      if (random() % 8 == 0) std::swap(block.first, block.last);
    }
    std::vector<uint32_t> order(blocks.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    Planner planner;
    ASSERT_EQ(planner.reserve(allocator(), blocks.size(), nullptr), Status::ok);
    expect_sound(blocks, planner.place(blocks.data(), blocks.size(), nullptr, order.data()),
                 nullptr);
  }
}

TEST(Planner, IndependentWorkKeepsApartAndStaysSmall) {
  // Four independent chains: each needs two buffers at a time, and no chain may use a buffer of
  // another.
  std::vector<Block> blocks;
  for (uint32_t i = 0; i < 40; ++i) blocks.push_back({1024, 64, i, std::min(39u, i + 4), 0});
  BitRows shareable;
  ASSERT_EQ(shareable.allocate(allocator(), blocks.size(), blocks.size(), nullptr), Status::ok);
  for (uint32_t i = 0; i < 40; ++i)
    for (uint32_t j = 0; j < 40; ++j)
      if (i % 4 == j % 4 && (i > j ? i - j : j - i) > 4) shareable.set(i, j);
  const Planned planned = plan(blocks, &shareable);
  expect_sound(blocks, planned, &shareable);
  EXPECT_EQ(planned.peak, 8u * 1024);
}

TEST(Planner, SizesThatCannotBeAddedUpAreNoPlan) {
  for (uint64_t size : {1ull << 62, ~0ull, 1ull << 61}) {
    std::vector<Block> blocks(3, Block{size, 64, 0, 0, 0});
    EXPECT_EQ(plan(blocks).peak, kTooLarge);
  }
  std::vector<Block> many(1 << 14, Block{1ull << 48, 64, 0, 0, 0});
  EXPECT_EQ(plan(many).peak, kTooLarge);
  std::vector<Block> few(2, Block{1ull << 48, 64, 0, 0, 0});
  EXPECT_EQ(plan(few).peak, 1ull << 49);
}

}  // namespace
}  // namespace husk
