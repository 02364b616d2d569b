// Whether bytes are a FlatBuffer of husk.fbs, so that its generated accessors may be used on them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace husk {

// Every table, vector and string lies inside `bytes` (aligned to 8) and is aligned as its elements must be; strings end with
// a NUL; what the schema requires is there; its identifier is HUSK.
bool is_well_formed(const void* bytes, size_t size);

}  // namespace husk
