// Pictures of a plan: steps from left to right, addresses upwards.
#pragma once

#include <string>

#include "read/bounded.h"

namespace husk::compiler {

// The letter by which the text drawing names the n-th buffer.
char drawing_letter(size_t n);

// At most 100 columns and 24 rows of letters; what is too small for a cell is not seen. `order` are the rooms, in the
// order of their letters.
std::string draw_text(const Bounded& bounded, const std::vector<uint32_t>& order);

// A group of rectangles with names, `top` units below the picture's upper edge, and its height in units.
std::string draw_svg(const Bounded& bounded, const std::string& title, const std::vector<uint32_t>& order, double top);
constexpr double kSvgWidth = 1000, kSvgHeight = 400;   // of one plan

}  // namespace husk::compiler
