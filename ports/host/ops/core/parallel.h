// Runs the parts of a computation on the application's threads. Parts must not depend on the number
// of threads, so that results do not either.
#pragma once

#include <atomic>

#include <husk/op.h>

namespace husk::host {

// Calls run(first, step), which computes the parts `first`, `first` + `step`, ... All calls
// together compute each part once, in any order: a thread that is ready takes the next part. There
// is only one call, on the calling thread, if there are no threads or if `work`, a number of
// multiplications, is too small to pay for them.
template <class Run>
void run_in_parts(const husk_threads* threads, int64_t parts, double work, const Run& run) {
  // One core does so much in 5 microseconds. A region of two threads that are awake costs about 1.
  constexpr double kMinWork = 1 << 18;
  struct Task {
    const Run& run;
    int64_t parts;
    std::atomic<int64_t> next{0};
  };
  const int64_t max_bodies = threads ? static_cast<int64_t>(threads->count) : 1,
                bodies = parts < max_bodies ? parts : max_bodies;
  if (bodies < 2 || work < kMinWork) return run(int64_t{0}, int64_t{1});
  Task task{run, parts};
  threads->parallel(
      threads->user, static_cast<uint32_t>(bodies),
      [](void* argument, uint32_t) {
        Task& shared = *static_cast<Task*>(argument);
        for (int64_t part;
             (part = shared.next.fetch_add(1, std::memory_order_relaxed)) < shared.parts;)
          shared.run(part, shared.parts);
      },
      &task);
}

}  // namespace husk::host
