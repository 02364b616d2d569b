// Times what a function takes, and prints a table with targets.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace husk::bench {

struct Times {
  double least = 0, median = 0;   // microseconds a call
};

// Calls `body` for about `seconds` after a first call that does not count; once if `seconds` is 0.
Times measure(double seconds, const std::function<void()>& body);

// One line: what, the median and the least of the samples, the target. Machines that others use too make medians large and
// leave the least alone.
void print_head();
void print_row(const std::string& what, double median, double least, const char* unit, double target);

}  // namespace husk::bench
