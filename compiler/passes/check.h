// Whether a tree means something: names, types, and every rule of FORMAT.md that a text can break. Values of
// expressions are the business of lower().
#pragma once

#include "ir/tree.h"

namespace husk::compiler {

// Throws Failure at the first thing that is wrong.
void check(const Program& program);

// The element's bytes of a state's `fill`, in the low end. Throws Failure where the literal is none of the dtype.
uint64_t fill_bits(const State& state);

}  // namespace husk::compiler
