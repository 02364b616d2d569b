// Prints the plan and the step graph that the runtime will use for a variant. They come from the
// runtime's own planner, which needs no device.
#pragma once

#include <string>

#include "read/bounded_plan.h"

namespace husk::compiler {

// One line: the peak of the arena for the largest sizes and its ratio to the lower bound, or the
// name of a buffer without a bound.
std::string plan_summary(const Code& code, const InputSizes& sizes);
// The summary, a table of the arena buffers by offset (offset, largest size, first and last step,
// name, size as a formula), and a drawing.
std::string plan_text(const Code& code, const InputSizes& sizes);
// The drawing as part of an SVG picture, `top` units below its upper edge.
std::string plan_svg(const Code& code, const InputSizes& sizes, double top);
// The graph of the steps: the edges that dependences need, the number of edges that may be
// programmatic, and the longest path.
std::string graph_text(const Code& code);

}  // namespace husk::compiler
