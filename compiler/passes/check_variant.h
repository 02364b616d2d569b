// The part of check() for the statements of a variant.
#pragma once

#include "ir/tree.h"

namespace husk::compiler {

// Throws CompileError at the first mistake in the variant.
void check_variant(const Program& program, const Function& function, const Variant& variant);

// Throws CompileError unless `align` is 0 (not stated) or a power of two up to `most`.
void check_align(const Name& name, int64_t align, int64_t most);

}  // namespace husk::compiler
