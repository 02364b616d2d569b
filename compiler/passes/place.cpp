#include "passes/place.h"

#include <algorithm>
#include <numeric>

#include "passes/search.h"
#include "read/bounded.h"

namespace husk::compiler {
namespace {

std::vector<Interval> typical(const Code& code) {
  std::vector<Interval> out;
  for (uint32_t i = 0; i < code.inputs(); ++i) {
    for (uint32_t d = 0; d < count(code.input(i)->dims()); ++d) {
      const fb::Dim* range = code.input(i)->dims()->Get(d);
      out.push_back({range->min(), range->max() <= kLargestSize ? range->max() : std::max(range->min(), kTypicalSize)});
    }
  }
  return out;
}

// From the lowest offset up; then what takes no room in this plan, but may in others.
std::vector<uint32_t> find_order(const Code& code) {
  Bounded bounded(code, typical(code));
  std::vector<Block>& blocks = bounded.blocks;
  Search search;
  if (bounded.out_of_memory || failed(search.reserve(blocks.size()))) return {};
  for (size_t i = 0; i < blocks.size(); ++i)
    if (bounded.rooms[i].unbounded) blocks[i].size = kUnknown;
  if (search.place(blocks.data(), blocks.size()).peak == kTooLarge) return {};
  std::vector<uint32_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const bool empty_a = blocks[a].size == 0, empty_b = blocks[b].size == 0;
    return empty_a != empty_b ? empty_b : blocks[a].offset < blocks[b].offset;
  });
  return order;
}

}  // namespace

void place(const fb::Program& program, ProgramRows& rows) {
  for (size_t f = 0; f < rows.functions.size(); ++f) {
    const fb::Function* function = program.functions()->Get(static_cast<uint32_t>(f));
    for (size_t v = 0; v < rows.functions[f].size(); ++v)
      rows.functions[f][v].order = find_order(Code(&program, function, function->variants()->Get(static_cast<uint32_t>(v))));
  }
}

}  // namespace husk::compiler
