#include "run/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace husk::run {

void Trace::attach(husk_session_options& options) {
  options.trace_user = this;
  options.trace = [](void* user, const husk_trace_event* event) {
    const bool launch = std::strcmp(event->kind, "launch") == 0;
    static_cast<Trace*>(user)->rows_.push_back(
        {event->step, event->kind, event->name,
         launch ? fmt::format("{} {} {}", event->grid[0], event->grid[1], event->grid[2]) : "",
         event->origin, static_cast<double>(event->nanoseconds) / 1000});
  };
}

std::string Trace::table() const {
  size_t name = 4, grid = 4;
  double sum = 0;
  for (const Row& row : rows_) {
    name = std::max(name, row.name.size());
    grid = std::max(grid, row.grid.size());
    sum += row.microseconds;
  }
  std::string out = fmt::format("{:>5} {:<6} {:<{}} {:<{}} {:>10}  {}\n", "step", "kind", "name",
                                name, "grid", grid, "us", "origin");
  for (const Row& row : rows_) {
    std::string line = fmt::format("{:>5} {:<6} {:<{}} {:<{}} {:>10.1f}  {}", row.step, row.kind,
                                   row.name, name, row.grid, grid, row.microseconds, row.origin);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out + fmt::format("{} steps, {:.1f} us\n", rows_.size(), sum);
}

}  // namespace husk::run
