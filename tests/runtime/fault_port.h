// A port in front of another port. It counts every call that may fail, and makes one of them fail,
// or that one and all later ones.
#pragma once

#include <cstdint>

#include <husk/port.h>

namespace husk::test {

struct Faults {
  const husk_port* inner = nullptr;
  int64_t refuse = -1;         // the call that fails, counted from 0; -1 none
  bool for_good = false;       // true if all later calls fail too
  bool device_memory = false;  // true if constants must be copied to memory of the device
  int64_t calls = 0;
  int64_t met = 0;                                            // how many failed
  const char* last = "";                                      // which kind
  int64_t devices = 0, memory = 0, streams = 0, modules = 0;  // objects that exist

  int64_t live() const { return devices + memory + streams + modules; }
};

// The port and its counters, of which the process has one each. Not thread-safe.
Faults& faults();
const husk_port* fault_port();

}  // namespace husk::test
