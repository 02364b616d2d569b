// Times of many runs in a few numbers.
#pragma once

#include <cstddef>
#include <vector>

namespace husk::bench_tool {

// Microseconds. `p10` is the time that 10 % of the runs did not exceed. `spread` is (p90 - p10) /
// p50, which is below 0.1 on a quiet machine.
struct Distribution {
  size_t count = 0;
  double least = 0, p10 = 0, p50 = 0, p90 = 0, p99 = 0, most = 0, mean = 0, spread = 0;
};

Distribution distribution_of(std::vector<double> microseconds);

}  // namespace husk::bench_tool
