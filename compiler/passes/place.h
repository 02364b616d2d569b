// Looks for a small plan of each variant's arena, longer than a session could, and keeps it as the order in which a session
// places the buffers, at whatever sizes.
#pragma once

#include "passes/lower.h"

namespace husk::compiler {

// Sizes are the largest that the inputs' ranges allow; a range that has no end, or one that no model comes near, is taken as
// if it ended at kTypicalSize. `program` is what `rows` were written as, without an order. Buffers that have no bound
// then either count as kUnknown bytes. A variant of which no plan can be made gets no order.
void place(const fb::Program& program, ProgramRows& rows);

constexpr int64_t kTypicalSize = 1024, kLargestSize = 1 << 30;
constexpr uint64_t kUnknown = 1 << 20;   // bytes

}  // namespace husk::compiler
