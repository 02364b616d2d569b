// Programs in text form to measure with: as large as asked for, and with nothing but empty kernels.
#pragma once

#include "families.h"

#include <string>

namespace husk::bench {

// `launches` kernels in a row, each with two buffers and an int. Static: no argument depends on the input, whose first
// size may be 1 to 16. Dynamic: every grid, size and int does, and each launch has a scalar op of its own. Grids are 1 1 1.
std::string launch_text(uint32_t launches, bool dynamic);

// A program with these lives: the step that ends a life reads its buffer, the one that begins it writes it. Sizes are those
// of `lives` for an input of 8 rows and in proportion for others; `bounded`: up to 16 rows, else any number.
std::string lives_text(const Lives& lives, bool bounded);

// Launches with names, sizes and origins as an exporter writes them, for the compiler.
std::string model_text(uint32_t launches);

}  // namespace husk::bench
