#pragma once

#include <cstdint>

namespace husk::test {

// The number of calls of malloc and related functions by this thread; always 0 under sanitizers.
uint64_t malloc_calls();

}  // namespace husk::test
