// Programs in text form for measurements: of any size, with empty kernels.
#pragma once

#include <string>

#include "families.h"

namespace husk::bench {

// `launches` kernels in sequence, each with two buffers and an int. In a static program no argument
// depends on the input, whose first size may be 1 to 16. In a dynamic program every grid, size and
// int depends on the input, and each launch has a scalar op of its own. Every grid is 1 1 1.
std::string launch_text(uint32_t launches, bool dynamic);

// A program with the live ranges `lives`: the step that begins a live range writes the buffer, and
// the step that ends it reads the buffer. The sizes are those of `lives` for an input of 8 rows and
// are proportional for other inputs. The input has up to 16 rows if `bounded`, else any number.
std::string lives_text(const Lives& lives, bool bounded);

// Launches with names, sizes and origins as an exporter writes them, for measurements of the
// compiler.
std::string model_text(uint32_t launches);

}  // namespace husk::bench
