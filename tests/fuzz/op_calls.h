// The ops of the host, counted and kept small, for runs of damaged artifacts.
#pragma once

#include <cstdint>
#include <vector>

#include <husk/husk.h>

namespace husk::fuzz {

// How often an op of ports/host/ops/library/pack.def was called, and how often it returned HUSK_OK.
// `needs_ranks`: whether the op is a collective, which one rank alone cannot call.
struct OpCalls {
  const char* name;
  bool needs_ranks;
  uint64_t calls, finished;
};
const std::vector<OpCalls>& op_calls();

// Registers all ops of the host with an engine. A call with a tensor of more than kMaxElements
// elements is refused, since stride 0 makes any size legal and the op would run for ever.
constexpr int64_t kMaxElements = 1 << 12;
void add_counted_ops(husk_engine* engine);

// Writes `count` elements, which are 0, 1 or 2, or false or true.
void fill_pattern(void* memory, int32_t dtype, uint64_t count);

}  // namespace husk::fuzz
