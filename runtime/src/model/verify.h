// The rules of FORMAT.md, each of which is checked in one place. Indices, kinds and extents of a
// verified file need no further check. Facts that depend on the shapes of a run are checked by the
// run.
#pragma once

#include "model/container.h"
#include "model/shape.h"

namespace husk {

enum class ResultKind : uint8_t { unknown, none, integer, floating };

// Returns the kind of a scalar op's register, or unknown if ops.def has no such code.
ResultKind result_kind(uint16_t op);

// Checks rules 3 to 10 for a container that was read.
Status verify(const Container& container, const husk_allocator& allocator, husk_error* error);

// Checks rules 5 to 9 for one variant, and the part of rule 10 that is about variants.
Status verify_variant(const Code& code, const husk_allocator& allocator, husk_error* error);

}  // namespace husk
