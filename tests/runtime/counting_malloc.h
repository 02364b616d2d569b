#pragma once

#include <cstdint>

namespace husk::test {

// Calls of malloc and its kin by this thread, since it started; 0 for ever under sanitizers.
uint64_t malloc_calls();

}  // namespace husk::test
