// The rules of FORMAT.md, each checked in one place. What passed needs no further check of indices, kinds or extents of
// the file; what depends on the shapes of a run is checked by bind.
#pragma once

#include "container.h"

namespace husk {

constexpr uint32_t kMaxRank = 16;

enum class ResultKind : uint8_t { unknown, none, integer, floating };

// What the register of a scalar op holds; unknown for a code that ops.def does not list.
ResultKind result_kind(uint16_t op);

// Rules 3 to 10, on a container whose header and metadata were read.
Status verify(const Container& container, const husk_allocator& allocator, husk_error* error);

// Rules 5 to 9 and the rest of 10, for one variant.
Status verify_variant(const Code& code, const husk_allocator& allocator, husk_error* error);

}  // namespace husk
