// Checks plans and graphs on random programs: every two steps whose bytes conflict are joined by a
// path of edges, no edge is redundant, and no two buffers that are live at the same time share a
// byte.
#include <random>

#include "fixture.h"
#include "plan/liveness.h"
#include "session/session.h"

namespace husk {
namespace {

// Random launches over views of a few buffers; some views are halves of a buffer.
std::string random_program(std::mt19937& random, int steps, int buffers) {
  std::string text = R"(function f {
  input x tensor f32 [64..256]
  output y tensor f32 rank 1
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
)";
  for (int b = 0; b < buffers; ++b)
    text += "    buffer b" + std::to_string(b) + " bytes mul(n, " +
            std::to_string(4 * (1 + random() % 3)) + ") align 64\n";
  auto view = [&](const char* access) {
    const int b = static_cast<int>(random() % buffers);
    std::string out = std::string(access) + " b" + std::to_string(b);
    if (random() % 3 == 0) out += random() % 2 ? "[0, 128]" : "[128, 128]";
    return out;
  };
  text += "    launch scale grid (1, 1, 1) (read x, write b0, 1.0, 1)\n";
  for (int s = 0; s < steps; ++s)
    text += "    launch scale grid (1, 1, 1) (" + view("read") + ", " +
            view(random() % 4 ? "write" : "both") + ", 2.0, 1)\n";
  return text + "    launch scale grid (1, 1, 1) (" + view("read") +
         ", write y, 1.0, 1)\n    return (tensor y f32 [n] [1])\n  }\n}\n";
}

bool meet(uint64_t a, uint64_t b, uint64_t c, uint64_t d) { return a < d && c < b; }

// The bytes that an access can touch: the memory, and a range in it. All arena buffers are in one
// memory; every other buffer is a memory of its own.
struct Range {
  uint32_t memory;
  uint64_t low, high;
};

Range range_of(const runtime::Frame& frame, const Access& access, bool placed) {
  const uint32_t block = frame.memory.block_of[access.buffer];
  if (block == kNone || !placed) return {access.buffer, access.low, access.high};
  const uint64_t offset = frame.memory.blocks[block].offset, size = frame.memory.blocks[block].size;
  return {kNone, offset + std::min(access.low, size), offset + std::min(access.high, size)};
}

void expect_ordered(const runtime::Frame& frame, const Dependences& dependences, bool placed) {
  for (const Access& a : frame.memory.accesses)
    for (const Access& b : frame.memory.accesses) {
      if (a.step >= b.step || (!writes(a.access) && !writes(b.access))) continue;
      const Range x = range_of(frame, a, placed), y = range_of(frame, b, placed);
      if (x.memory != y.memory || !meet(x.low, x.high, y.low, y.high)) continue;
      EXPECT_TRUE(dependences.ancestors.test(b.step, a.step))
          << "steps " << a.step << " and " << b.step;
    }
}

// The ancestors of a step are exactly the steps that its edges reach, and no edge follows from
// other edges.
void expect_least(const Dependences& dependences, uint32_t steps) {
  std::vector<std::vector<bool>> reach(steps, std::vector<bool>(steps));
  for (const Edge& edge : dependences.edges) {  // sorted by `to`
    reach[edge.to][edge.from] = true;
    for (uint32_t s = 0; s < steps; ++s)
      if (reach[edge.from][s]) reach[edge.to][s] = true;
  }
  for (uint32_t t = 0; t < steps; ++t)
    for (uint32_t s = 0; s < steps; ++s) EXPECT_EQ(reach[t][s], dependences.ancestors.test(t, s));
  for (const Edge& edge : dependences.edges)
    for (const Edge& other : dependences.edges)
      if (other.to == edge.to && other.from != edge.from) {
        EXPECT_FALSE(reach[other.from][edge.from]);
      }
}

void expect_apart(const runtime::Frame& frame, const BitRows* shareable) {
  for (size_t i = 0; i < frame.memory.blocks.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const Block &a = frame.memory.blocks[i], &b = frame.memory.blocks[j];
      if (a.first > a.last || b.first > b.last || !a.size || !b.size) continue;
      if (shareable ? shareable->test(i, j) : !(a.first <= b.last && b.first <= a.last)) continue;
      EXPECT_FALSE(meet(a.offset, a.offset + a.size, b.offset, b.offset + b.size)) << i << " " << j;
    }
}

TEST(Order, RandomProgramsAreOrderedAsTheirBytesWant) {
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    test::Machine machine(random_program(random, 4 + static_cast<int>(random() % 30),
                                         2 + static_cast<int>(random() % 8)));
    ASSERT_NE(machine.session, nullptr) << machine.error.text;
    runtime::Frame& frame = *machine.session->frames[0];
    ASSERT_TRUE(frame.memory.bounded);
    expect_apart(frame, nullptr);
    std::vector<Placement> placements(frame.code.buffers.size);
    for (uint32_t b = 0; b < placements.size(); ++b)
      if (frame.memory.block_of[b] != kNone)
        placements[b] = {frame.memory.blocks[frame.memory.block_of[b]].offset,
                         frame.memory.blocks[frame.memory.block_of[b]].size};
    Dependences apart, placed;
    ASSERT_EQ(apart.build(frame.code, frame.memory.accesses, nullptr, frame.session->allocator(),
                          nullptr),
              Status::ok);
    ASSERT_EQ(placed.build(frame.code, frame.memory.accesses, placements.data(),
                           frame.session->allocator(), nullptr),
              Status::ok);
    expect_ordered(frame, apart, false);
    expect_ordered(frame, placed, true);
    expect_least(apart, frame.code.steps.size);
    expect_least(placed, frame.code.steps.size);

    // In a plan for parallel work, shared memory adds no order to the order that the accesses
    // require.
    BitRows shareable;
    ASSERT_EQ(
        find_shareable(apart, frame.memory.accesses, frame.memory.block_of.data(),
                       frame.memory.blocks.size(), frame.session->allocator(), &shareable, nullptr),
        Status::ok);
    Planner planner;
    ASSERT_EQ(planner.reserve(frame.session->allocator(), frame.memory.blocks.size(), nullptr),
              Status::ok);
    planner.place(frame.memory.blocks.data(), frame.memory.blocks.size(), &shareable);
    expect_apart(frame, &shareable);
    for (uint32_t b = 0; b < placements.size(); ++b)
      if (frame.memory.block_of[b] != kNone)
        placements[b] = {frame.memory.blocks[frame.memory.block_of[b]].offset,
                         frame.memory.blocks[frame.memory.block_of[b]].size};
    Dependences parallel;
    ASSERT_EQ(parallel.build(frame.code, frame.memory.accesses, placements.data(),
                             frame.session->allocator(), nullptr),
              Status::ok);
    ASSERT_EQ(parallel.edges.size(), apart.edges.size());
    for (size_t e = 0; e < apart.edges.size(); ++e) {
      EXPECT_EQ(parallel.edges[e].from, apart.edges[e].from);
      EXPECT_EQ(parallel.edges[e].to, apart.edges[e].to);
    }
  }
}

// A loop as the first and the last of its steps.
using Loop = std::pair<uint32_t, uint32_t>;

// Random segments, and loops of which no two cross. Some segments have no steps.
std::vector<fb::Segment> random_loops(std::mt19937& random, std::vector<Loop>* loops) {
  const uint32_t n = 1 + static_cast<uint32_t>(random() % 14);
  std::vector<uint32_t> back(n, kNone), ends = {0};
  for (uint32_t s = 0; s < n; ++s)
    ends.push_back(ends.back() + static_cast<uint32_t>(random() % 4));
  for (int attempt = 0; attempt < 12; ++attempt) {
    const auto last = static_cast<uint32_t>(random() % n);
    const auto first = static_cast<uint32_t>(random() % (last + 1));
    bool good = back[last] == kNone;
    for (uint32_t s = 0; s < n; ++s) {
      if (back[s] == kNone) continue;
      const bool apart = s < first || last < back[s], inside = first <= back[s] && s <= last,
                 outside = back[s] <= first && last <= s;
      good = good && (apart || inside || outside);
    }
    if (good) back[last] = first;
  }
  std::vector<fb::Segment> segments;
  for (uint32_t s = 0; s < n; ++s) {
    segments.emplace_back(0u, 0u, ends[s], ends[s + 1], kNone, back[s]);
    if (back[s] != kNone && ends[back[s]] < ends[s + 1])
      loops->emplace_back(ends[back[s]], ends[s + 1] - 1);
  }
  return segments;
}

// A block that is used inside and outside of a loop is live in all of the loop. The live ranges are
// those of a search through all loops for each block.
TEST(Order, BlocksAreLiveInTheWholeLoop) {
  std::mt19937 random(3);
  int extended = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<Loop> loops;
    const std::vector<fb::Segment> segments = random_loops(random, &loops);
    const uint32_t steps = segments.back().step_end();
    Code code;
    code.segments.rows = segments.data();
    code.segments.size = static_cast<uint32_t>(segments.size());
    constexpr uint32_t kBlocks = 5;
    std::vector<std::vector<uint32_t>> uses(kBlocks);
    std::vector<Access> list;
    for (uint32_t s = 0; s < steps; ++s)
      for (uint32_t b = 0; b < kBlocks; ++b)
        if (random() % 6 == 0) {
          uses[b].push_back(s);
          list.push_back({s, b, HUSK_ACCESS_READ, 0, UINT64_MAX});
        }
    husk_error error;
    Array<Access> accesses;
    ASSERT_FALSE(failed(accesses.allocate(*default_allocator(), list.size(), &error)));
    std::copy(list.begin(), list.end(), accesses.begin());
    const uint32_t block_of[kBlocks] = {0, 1, 2, 3, 4};
    Block blocks[kBlocks] = {};
    ASSERT_FALSE(failed(
        find_live_ranges(code, accesses, block_of, blocks, kBlocks, *default_allocator(), &error)));
    for (uint32_t b = 0; b < kBlocks; ++b) {
      if (uses[b].empty()) {
        EXPECT_GT(blocks[b].first, blocks[b].last);
        continue;
      }
      uint32_t first = uses[b].front(), last = uses[b].back();
      for (const Loop& loop : loops) {
        size_t inside = 0;
        for (const uint32_t s : uses[b]) inside += loop.first <= s && s <= loop.second;
        if (inside == 0 || inside == uses[b].size()) continue;
        first = std::min(first, loop.first);
        last = std::max(last, loop.second);
      }
      extended += first < uses[b].front() || last > uses[b].back();
      ASSERT_EQ(blocks[b].first, first) << "round " << round;
      ASSERT_EQ(blocks[b].last, last) << "round " << round;
    }
  }
  EXPECT_GT(extended, 1000);
}

}  // namespace
}  // namespace husk
