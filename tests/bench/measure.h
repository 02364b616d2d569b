// Measures the time of a function and prints a table with targets.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace husk::bench {

struct Times {
  double least = 0, median = 0;  // microseconds per call
};

// Calls `body` for about `seconds` after a first call that does not count, or once after it if
// `seconds` is 0. If `seconds` is kOnce, the first call is the only one, and counts.
constexpr double kOnce = -1;
Times measure(double seconds, const std::function<void()>& body);

// Prints one line: a name, the median and the minimum of the samples, and the target. On a machine
// with other load the median grows, and the minimum stays the same.
void print_head();
void print_row(const std::string& what, double median, double least, const char* unit,
               double target);

}  // namespace husk::bench
