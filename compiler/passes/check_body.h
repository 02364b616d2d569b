// The part of check() that looks into variants.
#pragma once

#include "ir/tree.h"

namespace husk::compiler {

void check_variant(const Program& program, const Function& function, const Variant& variant);

// What the file can say of a value's alignment.
constexpr int64_t kMaxValueAlign = 4096;

// A power of two, or 0 for none.
void check_align(const Name& name, int64_t align, int64_t most);

}  // namespace husk::compiler
