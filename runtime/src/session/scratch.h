// Memory of a session outside its arenas.
#pragma once

#include "model/rows.h"

namespace husk::runtime {

// Session::grow makes it larger; it is kept for the next run.
struct ScratchBuffer {
  void* data;
  uint64_t bytes;
  Device device;
};

}  // namespace husk::runtime
