#include "passes/order_placement.h"

#include <algorithm>
#include <numeric>

#include "base/limits.h"
#include "passes/search.h"
#include "read/bounded_plan.h"

namespace husk::compiler {
namespace {

// The inputs of a function as rows of a file, which the planner reads.
class Signature {
 public:
  explicit Signature(const Function& f) {
    const auto name = builder_.CreateString(f.name.text);
    std::vector<flatbuffers::Offset<fb::Value>> inputs;
    for (const Value& v : f.inputs) {
      std::vector<fb::Dim> ranges;
      for (const Range& r : v.ranges) ranges.push_back(fb::Dim(r.min, r.max));
      const auto dims = builder_.CreateVectorOfStructs(ranges);
      inputs.push_back(fb::CreateValue(builder_, name, v.kind, static_cast<uint8_t>(v.dtype),
                                       static_cast<uint8_t>(v.rank), dims));
    }
    const auto values = builder_.CreateVector(inputs);
    const auto variants = builder_.CreateVector(std::vector<flatbuffers::Offset<fb::Variant>>());
    builder_.Finish(fb::CreateFunction(builder_, name, values, 0, variants));
  }
  const fb::Function* function() const {
    return flatbuffers::GetRoot<fb::Function>(builder_.GetBufferPointer());
  }

 private:
  flatbuffers::FlatBufferBuilder builder_;
};

template <class T>
Rows<T> rows_of(const std::vector<T>& rows) {
  return {rows.data(), static_cast<uint32_t>(rows.size())};
}

// The rows of a variant as the planner reads them. The other fields of Code are empty.
Code code_of(const fb::Function* function, const VariantRows& rows) {
  Code code{};
  code.function = function;
  code.steps = rows_of(rows.steps);
  code.segments = rows_of(rows.segments);
  code.arguments = rows_of(rows.arguments);
  code.buffers = rows_of(rows.buffers);
  code.views = rows_of(rows.views);
  code.tensors = rows_of(rows.tensors);
  code.operands = rows_of(rows.operands);
  code.scalars = rows_of(rows.scalars);
  return code;
}

// The range of each dimension of each input, capped, as find_intervals takes them.
std::vector<Interval> capped_ranges(const Function& function) {
  std::vector<Interval> out(function.inputs.size() * limits::kMaxRank);
  for (size_t i = 0; i < function.inputs.size(); ++i)
    for (size_t d = 0; d < function.inputs[i].ranges.size(); ++d) {
      const Range& r = function.inputs[i].ranges[d];
      out[i * limits::kMaxRank + d] = {
          r.min, r.max <= kLargestSize ? r.max : std::max(r.min, kTypicalSize)};
    }
  return out;
}

// The arena buffers in the order of their offsets in the plan of their device. Buffers that are
// empty in this plan come last.
std::vector<uint32_t> find_order(const Code& code, const std::vector<Interval>& ranges) {
  BoundedPlan bounded(code, ranges);
  std::vector<Block>& blocks = bounded.blocks;
  Search search;
  if (bounded.out_of_memory || failed(search.reserve(blocks.size()))) return {};
  for (size_t i = 0; i < blocks.size(); ++i)
    if (bounded.arena[i].unbounded) blocks[i].size = kUnknownBytes;
  for (Device device : kDevices)
    if (search.place(blocks.data(), blocks.size(), kPlanWell, device).peak == kTooLarge) return {};
  std::vector<uint32_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const bool empty_a = blocks[a].size == 0, empty_b = blocks[b].size == 0;
    return empty_a != empty_b ? empty_b : blocks[a].offset < blocks[b].offset;
  });
  return order;
}

}  // namespace

void order_placement(const Program& program, ProgramRows& rows) {
  for (size_t f = 0; f < rows.functions.size(); ++f) {
    const Signature signature(program.functions[f]);
    const std::vector<Interval> ranges = capped_ranges(program.functions[f]);
    for (VariantRows& variant : rows.functions[f])
      variant.order = find_order(code_of(signature.function(), variant), ranges);
  }
}

}  // namespace husk::compiler
