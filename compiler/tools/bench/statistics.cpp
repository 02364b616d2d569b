#include "bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace husk::bench_tool {

Distribution distribution_of(std::vector<double> times) {
  Distribution d;
  d.count = times.size();
  if (times.empty()) return d;
  std::sort(times.begin(), times.end());
  // The smallest time that at least this share of the runs did not exceed.
  auto at = [&](double share) {
    const double rank = std::ceil(share * static_cast<double>(times.size()));
    return times[static_cast<size_t>(std::max(rank, 1.0)) - 1];
  };
  d.least = times.front();
  d.p10 = at(0.1);
  d.p50 = at(0.5);
  d.p90 = at(0.9);
  d.p99 = at(0.99);
  d.most = times.back();
  d.mean = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  d.spread = d.p50 > 0 ? (d.p90 - d.p10) / d.p50 : 0;
  return d;
}

}  // namespace husk::bench_tool
