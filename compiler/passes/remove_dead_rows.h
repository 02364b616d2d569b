// Removes the rows of a variant that nothing uses, and renumbers the others.
#pragma once

#include "passes/lower.h"
#include "passes/registers.h"

namespace husk::compiler {

// Completes `rows`, whose scalars are empty and whose rows name registers of `registers`. The
// scalars are the guards, the ranges, the registers that rows name, and the operands of all of
// these; inputs and constants go to the first segment. Arena buffers without a view and segments
// without scalars and steps are removed.
void remove_dead_rows(const Registers& registers, VariantRows& rows);

}  // namespace husk::compiler
