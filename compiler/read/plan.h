// What the planner and the graph builder will make of a variant: the runtime's own, called without a device.
#pragma once

#include <string>

#include "rows.h"

namespace husk::compiler {

// One line: the arena's peak at the bounds of the inputs, and its ratio to the lower bound; or which buffer has none.
std::string plan_summary(const Code& code);
// The summary, then a row for each buffer of the arena in the order of their offsets: offset, size, first and last step.
std::string plan_text(const Code& code);
// The steps as a graph: how many edges true dependence needs, how many of them may be programmatic, the longest path.
std::string graph_text(const Code& code);

}  // namespace husk::compiler
