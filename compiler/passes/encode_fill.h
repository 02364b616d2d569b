// The bits of a state's initial value.
#pragma once

#include "ir/tree.h"

namespace husk::compiler {

// The bytes of one element of the state's `fill`, in the low bytes of the result. Throws
// CompileError if the dtype cannot hold the literal.
uint64_t encode_fill(const State& state);

}  // namespace husk::compiler
