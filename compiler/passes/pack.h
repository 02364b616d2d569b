// Takes what nothing uses out of a variant's rows, and numbers the rest anew.
#pragma once

#include "passes/lower.h"
#include "passes/registers.h"

namespace husk::compiler {

// `rows` has everything but scalars, whose registers are those of `registers`; segments have no scalars yet.
// Keeps guards and ranges, registers that rows name, and what those need; drops arena buffers that no view is of, and
// segments that do nothing. Inputs and constants come into the first segment.
void pack(const Registers& registers, VariantRows& rows);

}  // namespace husk::compiler
