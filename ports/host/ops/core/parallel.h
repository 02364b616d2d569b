// Runs the parts of a computation on the application's threads. Parts must not depend on the number
// of threads, so that results do not either.
#pragma once

#include <atomic>

#include <husk/op.h>

#include "core/arguments.h"
#include "core/cancellation.h"

namespace husk::host {

// The parts that a thread computes: it takes the next one when it is ready.
struct Parts {
  // Hears of the work of each part. A part that may take long reports what it does here, too.
  Cancellation& cancellation;
  std::atomic<int64_t>& next_part;  // of all threads
  int64_t count, work_per_part;

  // Writes the number of the next part. Returns false if there is none, or if the call is to end.
  bool next(int64_t& part) {
    if (cancellation.ends(work_per_part)) return false;
    part = next_part.fetch_add(1, std::memory_order_relaxed);
    return part < count;
  }
};

// Calls run(parts) on each thread that takes part. All calls together compute each part once, in
// any order. There is only one call, on the calling thread, if there are no threads or if `work`, a
// number of multiplications, is too small to pay for them.
template <class Run>
void run_in_parts(const Arguments& args, int64_t count, double work, const Run& run) {
  // One core does so much in 5 microseconds. A region of two threads that are awake costs about 1.
  constexpr double kMinWork = 1 << 18;
  struct Task {
    const Run& run;
    Parts parts;
  };
  const husk_threads* threads = args.context->threads;
  const int64_t max_bodies = threads ? static_cast<int64_t>(threads->count) : 1,
                bodies = count < max_bodies ? count : max_bodies;
  std::atomic<int64_t> next_part{0};
  Task task{run, {args.cancellation, next_part, count, work_of(work / static_cast<double>(count))}};
  if (bodies < 2 || work < kMinWork) return run(task.parts);
  threads->parallel(
      threads->user, static_cast<uint32_t>(bodies),
      [](void* argument, uint32_t index) {
        const Task& shared = *static_cast<const Task*>(argument);
        const Parts& all = shared.parts;
        // Body 0 runs on the calling thread, the only one that asks the application.
        Cancellation follows_caller(&all.cancellation);
        Parts own{index == 0 ? all.cancellation : follows_caller, all.next_part, all.count,
                  all.work_per_part};
        shared.run(own);
      },
      &task);
}

}  // namespace husk::host
