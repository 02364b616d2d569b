#include "bench/port_calls.h"

namespace husk::bench_tool {

namespace {

thread_local PortCalls calls;

// Puts a function into `slot` that adds 1 to the `Counter` of the thread and calls what was there.
// There is one such function for each pair of member and counter.
template <auto Member, auto Counter, class Table, class... A>
void count(Table& table, husk_status (*Table::*)(A...)) {
  static husk_status (*original)(A...);
  original = table.*Member;
  table.*Member = [](A... arguments) {
    ++(calls.*Counter);
    return original(arguments...);
  };
}

template <auto Member, auto Counter, class Table>
void count(Table& table) {
  count<Member, Counter>(table, Member);
}

// A list counts as its launches, so the number says how many kernels a run launches on any port.
void count_listed_launches(husk_port& port) {
  static decltype(husk_port::launch_list) original;
  original = port.launch_list;
  if (!original) return;
  port.launch_list = [](void* device, void* stream, const husk_listed_launch* launches,
                        uint32_t count, uint32_t* failed, husk_error* error) {
    calls.launches += count;
    return original(device, stream, launches, count, failed, error);
  };
}

}  // namespace

PortCalls PortCalls::operator-(const PortCalls& other) const {
  return {launches - other.launches, copies - other.copies, graphs - other.graphs,
          patches - other.patches, waits - other.waits};
}

void count_port_calls(husk_port& port, husk_port_graphs& graphs) {
  count<&husk_port::launch, &PortCalls::launches>(port);
  count_listed_launches(port);
  count<&husk_port::copy, &PortCalls::copies>(port);
  count<&husk_port::fill, &PortCalls::copies>(port);
  count<&husk_port::upload, &PortCalls::copies>(port);
  count<&husk_port::download, &PortCalls::copies>(port);
  count<&husk_port::stream_wait, &PortCalls::waits>(port);
  if (!port.graphs) return;
  graphs = *port.graphs;
  count<&husk_port_graphs::exec_launch, &PortCalls::graphs>(graphs);
  count<&husk_port_graphs::exec_set_kernel, &PortCalls::patches>(graphs);
  count<&husk_port_graphs::exec_set_copy, &PortCalls::patches>(graphs);
  count<&husk_port_graphs::exec_set_fill, &PortCalls::patches>(graphs);
  port.graphs = &graphs;
}

PortCalls port_calls_of_thread() { return calls; }

}  // namespace husk::bench_tool
