// Runs the parts of a computation on the application's threads. Parts must not depend on the number
// of threads, so that results do not either.
#pragma once

#include <husk/op.h>

namespace husk::host {

// Calls run(first, step), which computes parts first, first + step, ... All calls together compute
// each part once. There is only one call, on the calling thread, if there are no threads or if
// `work`, a number of multiplications, is too small to pay for them.
template <class Run>
void run_in_parts(const husk_threads* threads, int64_t parts, double work, const Run& run) {
  constexpr double kMinWork = 1 << 20;  // takes one core tens of microseconds
  struct Task {
    const Run& run;
    int64_t step;
  };
  const int64_t max_steps = threads ? static_cast<int64_t>(threads->count) : 1;
  Task task{run, parts < max_steps ? parts : max_steps};
  if (task.step < 2 || work < kMinWork) return run(int64_t{0}, int64_t{1});
  threads->parallel(
      threads->user, static_cast<uint32_t>(task.step),
      [](void* argument, uint32_t index) {
        const Task& shared = *static_cast<const Task*>(argument);
        shared.run(static_cast<int64_t>(index), shared.step);
      },
      &task);
}

}  // namespace husk::host
