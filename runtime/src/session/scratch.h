// Device memory of a session outside its arena.
#pragma once

#include <cstdint>

namespace husk::runtime {

// Session::grow makes it larger; it is kept for the next run.
struct ScratchBuffer {
  void* data;
  uint64_t bytes;
};

}  // namespace husk::runtime
