#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace husk::bench {

Times measure(double seconds, const std::function<void()>& body) {
  using Clock = std::chrono::steady_clock;
  auto microseconds = [](Clock::duration d) {
    return std::chrono::duration<double, std::micro>(d).count();
  };
  if (seconds != kOnce) body();
  std::vector<double> samples;
  const Clock::time_point begin = Clock::now();
  do {
    const Clock::time_point start = Clock::now();
    body();
    samples.push_back(microseconds(Clock::now() - start));
  } while (microseconds(Clock::now() - begin) < seconds * 1e6);
  std::sort(samples.begin(), samples.end());
  return {samples.front(), samples[samples.size() / 2]};
}

void print_head() {
  std::printf("%-74s %10s %10s %-6s %8s\n", "", "median", "least", "", "target");
}

void print_row(const std::string& what, double median, double least, const char* unit,
               double target) {
  char limit[32] = "";
  if (target > 0)
    std::snprintf(limit, sizeof(limit), "%8.4g %s", target,
                  median <= target  ? "met"
                  : least <= target ? "least"
                                    : "NOT MET");
  std::printf("%-74s %10.3f %10.3f %-6s %s\n", what.c_str(), median, least, unit, limit);
}

}  // namespace husk::bench
