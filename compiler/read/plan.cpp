#include "read/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/printable.h"
#include "read/disassembler.h"
#include "read/drawing.h"
#include "read/formula.h"

namespace husk::compiler {
namespace {

std::string name(const Code& code) {
  const fb::Target* target = code.program->targets()->Get(code.variant->target());
  return fmt::format("function {}, variant {} {}", shortened(code.function->name()->c_str()),
                     shortened(target->port()->c_str()), shortened(target->arch()->c_str()));
}

std::string summary(const BoundedPlan& bounded, const InputSizes& sizes) {
  std::string out = name(bounded.code) + ": ";
  if (bounded.out_of_memory) return out + "no plan: out of memory\n";
  if (const auto* buffer = bounded.first_unbounded())
    return out + fmt::format("no bound for the size of buffer {}: planned at each resize\n",
                             buffer_name(bounded.code, buffer->row));
  if (!bounded.is_planned) return out + "no plan: at the bounds the sizes exceed 2^62 bytes\n";
  const Planned& plan = bounded.planned[Device::target];
  if (plan.peak == 0) {
    out += "no arena";
  } else {
    out += fmt::format("arena {} bytes at the {}, {:.3f} of the lower bound {}", plan.peak,
                       sizes.empty() ? "bounds" : "given sizes",
                       static_cast<double>(plan.peak) /
                           static_cast<double>(std::max<uint64_t>(plan.lower_bound, 1)),
                       plan.lower_bound);
  }
  if (const Planned& host = bounded.planned[Device::host]; host.peak > 0)
    out += fmt::format("; {} bytes on the host", host.peak);
  if (const uint32_t n = bounded.on_demand_count())
    out += fmt::format(
        "; dynamic: {} buffer{} whose size only the data decides {} allocated during a run", n,
        n == 1 ? "" : "s", n == 1 ? "is" : "are");
  return out + "\n";
}

// The arena buffers of a device that some step uses, in the order of their offsets.
std::vector<uint32_t> by_offset(const BoundedPlan& bounded, Device device) {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < bounded.blocks.size(); ++i)
    if (bounded.is_used(i) && bounded.blocks[i].device == device) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const Block &x = bounded.blocks[a], &y = bounded.blocks[b];
    if (x.offset != y.offset) return x.offset < y.offset;
    return x.first != y.first ? x.first < y.first : a < b;
  });
  return order;
}

}  // namespace

std::string plan_summary(const Code& code, const InputSizes& sizes) {
  return summary(BoundedPlan(code, sizes), sizes);
}

std::string plan_text(const Code& code, const InputSizes& sizes) {
  const BoundedPlan bounded(code, sizes);
  std::string out = summary(bounded, sizes);
  if (bounded.out_of_memory) return out;
  const std::vector<uint32_t> drawn = by_offset(bounded, Device::target);
  std::vector<uint32_t> order = drawn;
  for (uint32_t i : by_offset(bounded, Device::host)) order.push_back(i);
  size_t width = 6;
  for (uint32_t i : order) width = std::max(width, buffer_name(code, bounded.arena[i].row).size());
  if (!order.empty())
    out += fmt::format("    {:>12} {:>12}  {:<11} {:<{}}  bytes are\n", "offset", "bytes", "steps",
                       "buffer", width);
  for (size_t n = 0; n < order.size(); ++n) {
    const BoundedPlan::ArenaBuffer& buffer = bounded.arena[order[n]];
    const Block& block = bounded.blocks[order[n]];
    const bool placed = bounded.is_planned && !buffer.on_demand;
    const bool on_host = block.device == Device::host;
    out += fmt::format(
        "  {} {:>12} {:>12}  {:<11} {:<{}}  {}{}\n", placed && !on_host ? drawing_letter(n) : '-',
        placed             ? fmt::format("{}", block.offset)
        : buffer.on_demand ? "during a run"
                           : "-",
        buffer.on_demand || buffer.unbounded ? "unbounded" : fmt::format("{}", block.size),
        fmt::format("{}..{}", block.first, block.last), buffer_name(code, buffer.row), width,
        formula(code, code.buffers[buffer.row].size()), on_host ? ", on the host" : "");
  }
  return bounded.is_planned ? out + draw_text(bounded, drawn) : out;
}

std::string plan_svg(const Code& code, const InputSizes& sizes, double top) {
  const BoundedPlan bounded(code, sizes);
  std::string title = summary(bounded, sizes);
  title.pop_back();
  return draw_svg(bounded, title,
                  bounded.is_planned ? by_offset(bounded, Device::target) : std::vector<uint32_t>{},
                  top);
}

std::string graph_text(const Code& code) {
  const BoundedPlan bounded(code, InputSizes());
  Dependences dependences;
  std::string out = name(code) + ": ";
  if (bounded.out_of_memory ||
      failed(dependences.build(code, bounded.accesses, nullptr, *default_allocator(), nullptr)))
    return out + "no graph: out of memory\n";
  std::vector<uint32_t> depth(code.steps.size, 1);
  uint32_t longest = 0, programmatic = 0;
  auto is_launch = [&](uint32_t s) {
    return static_cast<Step>(code.steps[s].op()) == Step::op_launch;
  };
  std::string edges;
  for (const Edge& edge : dependences.edges) {
    depth[edge.to] = std::max(depth[edge.to], depth[edge.from] + 1);
    const bool early = is_launch(edge.from) && is_launch(edge.to) &&
                       (code.program->kernels()->Get(code.steps[edge.to].a())->flags() & kPdl);
    programmatic += early;
    edges += fmt::format("  {} -> {}{}\n", edge.from, edge.to, early ? " programmatic" : "");
  }
  for (uint32_t d : depth) longest = std::max(longest, d);
  return out +
         fmt::format("{} steps, {} edges of which {} may be programmatic, longest path {}\n",
                     code.steps.size, dependences.edges.size(), programmatic, longest) +
         edges;
}

}  // namespace husk::compiler
