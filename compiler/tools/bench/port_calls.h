// Counts the calls that a run makes of its port. On CUDA each of them is one call of the driver.
#pragma once

#include <cstdint>

#include <husk/port.h>

namespace husk::bench_tool {

// Numbers of calls that one thread has made.
struct PortCalls {
  uint64_t launches = 0;  // kernels of launch lists
  uint64_t copies = 0;    // copies and fills of launch lists, uploads and downloads
  uint64_t graphs = 0;    // launches of graphs
  uint64_t patches = 0;   // nodes of graphs that were changed
  uint64_t waits = 0;     // waits for a stream

  uint64_t total() const { return launches + copies + graphs + patches + waits; }
  PortCalls operator-(const PortCalls& other) const;
};

// Replaces functions of a port by ones that count and then call the original. `graphs` receives the
// table of functions for graphs, and must live as long as the port. Only one port of the process
// may be counted.
void count_port_calls(husk_port& port, husk_port_graphs& graphs);

// The calls of the calling thread since it started.
PortCalls port_calls_of_thread();

}  // namespace husk::bench_tool
