#include "run/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ir/printable.h"

namespace husk::run {

void Trace::attach(husk_session_options& options) {
  options.trace_user = this;
  options.trace = [](void* user, const husk_trace_event* event) {
    const bool launch = std::strcmp(event->kind, "launch") == 0;
    static_cast<Trace*>(user)->rows_.push_back(
        {event->step, event->kind, printable(event->name),
         launch ? fmt::format("{} {} {}", event->grid[0], event->grid[1], event->grid[2]) : "",
         printable(event->origin), static_cast<double>(event->nanoseconds) / 1000,
         event->clock == HUSK_CLOCK_DEVICE});
  };
}

std::string Trace::table() const {
  size_t name = 4, grid = 4, by_device = 0;
  double sum = 0;
  for (const Row& row : rows_) {
    name = std::max(name, row.name.size());
    grid = std::max(grid, row.grid.size());
    sum += row.microseconds;
    by_device += row.by_device;
  }
  std::string out = fmt::format("{:>5} {:<6} {:<{}} {:<{}} {:>10}  {}\n", "step", "kind", "name",
                                name, "grid", grid, "us", "origin");
  for (const Row& row : rows_) {
    std::string line = fmt::format("{:>5} {:<6} {:<{}} {:<{}} {:>10.1f}  {}", row.step, row.kind,
                                   row.name, name, row.grid, grid, row.microseconds, row.origin);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  const char* clock = by_device == 0              ? "host"
                      : by_device == rows_.size() ? "device"
                                                  : "device and host";
  return out +
         fmt::format("{} steps, {:.1f} us by the clock of the {}\n", rows_.size(), sum, clock);
}

}  // namespace husk::run
