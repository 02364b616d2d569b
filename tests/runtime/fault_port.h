// A port in front of another that counts every call that may fail, and fails one of them, or that one and all behind it.
#pragma once

#include <husk/port.h>

#include <cstdint>

namespace husk::test {

struct Faults {
  const husk_port* inner = nullptr;
  int64_t refuse = -1;       // the call that fails, counted from 0; -1 none
  bool for_good = false;     // all behind it fail too
  int64_t calls = 0;
  int64_t met = 0;           // how many failed
  const char* last = "";     // which kind
  int64_t devices = 0, memory = 0, streams = 0, modules = 0;   // open, given out

  int64_t live() const { return devices + memory + streams + modules; }
};

// The port, and what it counts: one of each for the process. Not thread-safe.
Faults& faults();
const husk_port* fault_port();

}  // namespace husk::test
