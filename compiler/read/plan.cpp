#include "read/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "planner.h"

namespace husk::compiler {
namespace {

// A variant with what follows from its ranges alone.
struct Bounded {
  const Code& code;
  std::vector<Interval> intervals;
  Array<Access> accesses;
  std::vector<Block> blocks;        // of arena buffers
  std::vector<uint32_t> buffers;    // block -> buffer
  std::optional<uint32_t> unbounded;
  Planned planned;
  bool out_of_memory = false;

  explicit Bounded(const Code& c) : code(c), intervals(c.scalars.size) {
    const husk_allocator& allocator = *default_allocator();
    for (uint32_t r = 0; r < code.scalars.size; ++r) intervals[r] = interval(code, r, intervals.data());
    out_of_memory = failed(collect_accesses(code, intervals.data(), allocator, &accesses, nullptr));
    std::vector<uint32_t> block_of(code.buffers.size, kNone);
    for (uint32_t b = 0; b < code.buffers.size; ++b) {
      if (code.buffers[b].space() != uint8_t(Space::arena)) continue;
      const int64_t high = intervals[code.buffers[b].size()].high;
      if (high == INT64_MAX && !unbounded) unbounded = b;
      block_of[b] = static_cast<uint32_t>(blocks.size());
      buffers.push_back(b);
      blocks.push_back({static_cast<uint64_t>(std::max<int64_t>(high, 0)), 1ull << code.buffers[b].align_log2(), UINT32_MAX, 0, 0});
    }
    for (const Access& access : accesses) {
      if (block_of[access.buffer] == kNone) continue;
      Block& block = blocks[block_of[access.buffer]];
      block.first = std::min(block.first, access.step);
      block.last = std::max(block.last, access.step);
    }
    Planner planner;
    if (unbounded || out_of_memory) return;
    out_of_memory = failed(planner.reserve(allocator, blocks.size(), code.steps.size, nullptr));
    if (!out_of_memory) planned = planner.place(blocks.data(), blocks.size(), nullptr);
  }
};

std::string name(const Code& code) {
  const fb::Target* target = code.program->targets()->Get(code.variant->target());
  return fmt::format("function {}, variant {} {}", code.function->name()->c_str(), target->port()->c_str(),
                     target->arch()->c_str());
}

std::string summary(const Bounded& bounded) {
  const std::string head = name(bounded.code) + ": ";
  if (bounded.out_of_memory) return head + "no plan: out of memory\n";
  if (bounded.unbounded)
    return head + fmt::format("no bound for the size of buffer @{}: planned at each resize\n", *bounded.unbounded);
  if (bounded.planned.peak == 0) return head + "no arena\n";
  return head + fmt::format("arena {} bytes at the bounds, {:.3f} of the lower bound {}\n", bounded.planned.peak,
                            static_cast<double>(bounded.planned.peak) /
                                static_cast<double>(std::max<uint64_t>(bounded.planned.lower_bound, 1)),
                            bounded.planned.lower_bound);
}

}  // namespace

std::string plan_summary(const Code& code) { return summary(Bounded(code)); }

std::string plan_text(const Code& code) {
  const Bounded bounded(code);
  std::string out = summary(bounded);
  if (bounded.unbounded || bounded.out_of_memory) return out;
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < bounded.blocks.size(); ++i)
    if (bounded.blocks[i].first <= bounded.blocks[i].last) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const Block &x = bounded.blocks[a], &y = bounded.blocks[b];
    return x.offset != y.offset ? x.offset < y.offset : x.first < y.first;
  });
  if (!order.empty()) out += fmt::format("  {:>12} {:>12}  {:<11} buffer\n", "offset", "bytes", "steps");
  for (uint32_t i : order) {
    const Block& block = bounded.blocks[i];
    out += fmt::format("  {:>12} {:>12}  {:<11} @{}\n", block.offset, block.size,
                       fmt::format("{}..{}", block.first, block.last), bounded.buffers[i]);
  }
  return out;
}

std::string graph_text(const Code& code) {
  const Bounded bounded(code);
  Order order;
  std::string out = name(code) + ": ";
  if (bounded.out_of_memory || failed(order.build(code, bounded.accesses, nullptr, *default_allocator(), nullptr)))
    return out + "no graph: out of memory\n";
  std::vector<uint32_t> depth(code.steps.size, 1);
  uint32_t longest = 0, programmatic = 0;
  auto is_launch = [&](uint32_t s) { return static_cast<Step>(code.steps[s].op()) == Step::op_launch; };
  std::string edges;
  for (const Edge& edge : order.edges) {
    depth[edge.to] = std::max(depth[edge.to], depth[edge.from] + 1);
    const bool early = is_launch(edge.from) && is_launch(edge.to) &&
                       (code.program->kernels()->Get(code.steps[edge.to].a())->flags() & kWaitsFirst);
    programmatic += early;
    edges += fmt::format("  {} -> {}{}\n", edge.from, edge.to, early ? " programmatic" : "");
  }
  for (uint32_t d : depth) longest = std::max(longest, d);
  return out + fmt::format("{} steps, {} edges of which {} may be programmatic, longest path {}\n", code.steps.size,
                           order.edges.size(), programmatic, longest) + edges;
}

}  // namespace husk::compiler
