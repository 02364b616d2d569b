// What the planner and the graph builder will make of a variant: the runtime's own, called without a device.
#pragma once

#include <string>

#include "read/bounded.h"

namespace husk::compiler {

// One line: the arena's peak at the bounds of the inputs, and its ratio to the lower bound; or which buffer has none.
std::string plan_summary(const Code& code, const GivenSizes& sizes);
// The summary; then a row for each buffer of the arena in the order of their offsets: offset, size at the bounds, first
// and last step, its name, its size as a formula; then a drawing.
std::string plan_text(const Code& code, const GivenSizes& sizes);
// The drawing as a picture of its own kind, `top` units from its upper edge.
std::string plan_svg(const Code& code, const GivenSizes& sizes, double top);
// The steps as a graph: how many edges true dependence needs, how many of them may be programmatic, the longest path.
std::string graph_text(const Code& code);

}  // namespace husk::compiler
