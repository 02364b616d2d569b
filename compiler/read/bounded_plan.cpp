#include "read/bounded_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include <husk/husk.h>

#include "base/limits.h"
#include "plan/liveness.h"
#include "read/disassembler.h"

namespace husk::compiler {
namespace {

// The ranges of the dimensions of all inputs, as find_intervals takes them, narrowed to `sizes`.
std::vector<Interval> narrowed_ranges(const Code& code, const InputSizes& sizes) {
  std::vector<Interval> out(size_t{code.inputs()} * limits::kMaxRank);
  for (uint32_t i = 0; i < code.inputs(); ++i) {
    const fb::Value* value = code.input(i);
    for (uint32_t d = 0; d < count(value->dims()); ++d) {
      const std::string name = value->name()->str() +
                               (value->kind() == HUSK_VALUE_TENSOR ? fmt::format(".{}", d) : "");
      const auto size = sizes.find(name);
      const fb::Dim* range = value->dims()->Get(d);
      out[size_t{i} * limits::kMaxRank + d] = size == sizes.end()
                                                  ? Interval{range->min(), range->max()}
                                                  : Interval{size->second, size->second};
    }
  }
  return out;
}

}  // namespace

std::string check_sizes(const fb::Program& program, const InputSizes& sizes) {
  for (const auto& [name, size] : sizes) {
    bool known = false, fits = false;
    for (uint32_t f = 0; f < count(program.functions()); ++f) {
      const fb::Function* function = program.functions()->Get(f);
      for (uint32_t i = 0; i < count(function->inputs()); ++i) {
        const fb::Value* value = function->inputs()->Get(i);
        for (uint32_t d = 0; d < count(value->dims()); ++d) {
          const bool tensor = value->kind() == HUSK_VALUE_TENSOR;
          if (name != value->name()->str() + (tensor ? fmt::format(".{}", d) : "")) continue;
          known = true;
          fits = fits ||
                 (size >= value->dims()->Get(d)->min() && size <= value->dims()->Get(d)->max());
        }
      }
    }
    if (!known)
      return fmt::format(
          "there is no '{}': write x.0 for dim 0 of tensor input x, n for an int that has a range",
          name);
    if (!fits) return fmt::format("'{}' cannot be {}: its range does not include that", name, size);
  }
  return "";
}

BoundedPlan::BoundedPlan(const Code& c, const InputSizes& sizes)
    : BoundedPlan(c, narrowed_ranges(c, sizes)) {
  if (out_of_memory || first_unbounded()) return;
  Planner planner;
  out_of_memory = failed(planner.reserve(*default_allocator(), blocks.size(), nullptr));
  if (out_of_memory) return;
  is_planned = true;
  for (Device device : kDevices) {
    planned[device] = planner.place(blocks.data(), blocks.size(), nullptr, code.placement_order(),
                                    device);
    is_planned = is_planned && planned[device].peak < kTooLarge;
  }
}

BoundedPlan::BoundedPlan(const Code& c, const std::vector<Interval>& dims)
    : code(c), intervals(c.scalars.size) {
  const husk_allocator& allocator = *default_allocator();
  find_intervals(code, dims.data(), intervals.data());
  out_of_memory = failed(collect_accesses(code, intervals.data(), allocator, &accesses, nullptr));
  if (out_of_memory) return;
  std::vector<uint32_t> block_of(code.buffers.size, kNone);
  for (uint32_t b = 0; b < code.buffers.size; ++b) {
    const fb::Buffer& buffer = code.buffers[b];
    if (buffer.space() != uint8_t(Space::arena)) continue;
    const int64_t high = intervals[buffer.size()].high;
    const bool by_data = code.segment_of(buffer.size()) > 0, bounded = high != INT64_MAX;
    block_of[b] = static_cast<uint32_t>(arena.size());
    arena.push_back({b, by_data && !bounded, !by_data && !bounded});
    const uint64_t bytes = bounded ? static_cast<uint64_t>(std::max<int64_t>(high, 0)) : 0;
    blocks.push_back({bytes, 1ull << buffer.align_log2(), UINT32_MAX, 0, 0, code.device_of(b)});
  }
  out_of_memory = failed(find_live_ranges(code, accesses, block_of.data(), blocks.data(),
                                          blocks.size(), allocator, nullptr));
}

const BoundedPlan::ArenaBuffer* BoundedPlan::first_unbounded() const {
  for (const ArenaBuffer& buffer : arena)
    if (buffer.unbounded) return &buffer;
  return nullptr;
}

uint32_t BoundedPlan::on_demand_count() const {
  return static_cast<uint32_t>(
      std::count_if(arena.begin(), arena.end(), [](const ArenaBuffer& b) { return b.on_demand; }));
}

}  // namespace husk::compiler
