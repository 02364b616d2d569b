// Pictures of the device's part of a plan. Steps run from left to right, addresses upwards.
#pragma once

#include <string>

#include "read/bounded_plan.h"

namespace husk::compiler {

// The letter of the n-th buffer in the text drawing.
char drawing_letter(size_t n);

// Draws a plan with letters in at most 100 columns and 24 rows; a buffer smaller than a cell may be
// missing. `order` lists the arena buffers in the order of their letters.
std::string draw_text(const BoundedPlan& bounded, const std::vector<uint32_t>& order);

// Draws a plan as SVG rectangles with names, `top` units below the upper edge of the picture.
std::string draw_svg(const BoundedPlan& bounded, const std::string& title,
                     const std::vector<uint32_t>& order, double top);
constexpr double kSvgWidth = 1000, kSvgHeight = 400;  // units of one plan

}  // namespace husk::compiler
