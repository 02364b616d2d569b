// Searches for a small plan of each variant's arena, with more time than a session has. The result
// is stored as the order in which a session places the buffers.
#pragma once

#include "passes/lower.h"

namespace husk::compiler {

// Fills in the placement order of all variants in `rows`, which are those of `program`. The order
// is found for the largest sizes that the input ranges allow; a range that is unbounded or ends
// beyond kLargestSize is capped at kTypicalSize, and a buffer that is unbounded even so counts as
// kUnknownBytes. A variant without a plan gets no order.
void order_placement(const Program& program, ProgramRows& rows);

constexpr int64_t kTypicalSize = 1024, kLargestSize = 1 << 30;
constexpr uint64_t kUnknownBytes = 1 << 20;

}  // namespace husk::compiler
