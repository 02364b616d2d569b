// Runs the parts of a computation on the application's threads. Parts must not depend on the number
// of threads, so that results do not either.
#pragma once

#include <atomic>

#include <husk/op.h>

#include "core/arguments.h"
#include "core/cancellation.h"

namespace husk::host {

// Where the threads of a region are in its parts. There is a row of parts for each of `positions`
// places along the tensors: part k * positions + i works at place i. Each thread has a range of
// neighbouring places, the same in each region with as many threads, so that it finds in its caches
// what it wrote in the region before: another core's lines take several times as long. A thread
// that is done with its range takes parts of the next ones.
struct PartRanges {
  static constexpr int64_t kMost = 64;

  int64_t positions, rows;
  int64_t count;  // ranges
  struct alignas(64) Range {
    std::atomic<int64_t> next;
  } ranges[kMost];  // only the first `count` are set

  PartRanges(int64_t parts, int64_t places, int64_t threads)
      : positions(places), rows(parts / places), count(threads < kMost ? threads : kMost) {
    for (int64_t i = 0; i < count; ++i) ranges[i].next.store(0, std::memory_order_relaxed);
  }

  // The first place of a range. A file may ask for so many places that their number times that of
  // the ranges does not fit.
  int64_t begin_of(int64_t range) const {
    return positions / count * range + positions % count * range / count;
  }

  // Takes a part of a range. Returns false if there is none.
  bool take(int64_t range, int64_t& part) {
    const int64_t begin = begin_of(range), size = begin_of(range + 1) - begin;
    const int64_t taken = ranges[range].next.fetch_add(1, std::memory_order_relaxed);
    if (taken >= rows * size) return false;
    part = taken / size * positions + begin + taken % size;
    return true;
  }
};

// The parts that a thread computes: it takes the next one when it is ready.
struct Parts {
  // Hears of the work of each part. A part that may take long reports what it does here, too.
  Cancellation& cancellation;
  PartRanges& ranges;  // of all threads
  int64_t range, work_per_part;
  void* scratch;      // of the thread (Arguments::scratch)
  int64_t ended = 0;  // ranges without parts

  // Writes the number of the next part. Returns false if there is none, or if the call is to end.
  bool next(int64_t& part) {
    if (cancellation.ends(work_per_part)) return false;
    for (; ended < ranges.count; ++ended) {
      if (ranges.take(range, part)) return true;
      range = range + 1 < ranges.count ? range + 1 : 0;
    }
    return false;
  }
};

// Calls run(parts) on each thread that takes part. All calls together compute each part once, in
// any order. There is only one call, on the calling thread, if there are no threads or if `work`, a
// number of multiplications, is too small to pay for them. `positions` divides `count`.
template <class Run>
void run_in_parts(const Arguments& args, int64_t count, int64_t positions, double work,
                  const Run& run) {
  // One core does so much in 5 microseconds. A region of two threads that are awake costs about 1.
  constexpr double kMinWork = 1 << 18;
  struct Task {
    const Arguments& args;
    const Run& run;
    Cancellation& cancellation;
    PartRanges ranges;
    int64_t work_per_part;
  };
  const husk_threads* threads = args.context->threads;
  const int64_t max_bodies = threads ? static_cast<int64_t>(threads->count) : 1,
                most = count < max_bodies ? count : max_bodies,
                bodies = work < kMinWork || most < 2 ? 1 : most;
  Task task{args, run, args.cancellation, PartRanges(count, positions, bodies),
            work_of(work / static_cast<double>(count))};
  if (bodies == 1) {
    Parts all{task.cancellation, task.ranges, 0, task.work_per_part, args.scratch()};
    return run(all);
  }
  threads->parallel(
      threads->user, static_cast<uint32_t>(bodies),
      [](void* argument, uint32_t index) {
        Task& shared = *static_cast<Task*>(argument);
        // Body 0 runs on the calling thread, the only one that asks the application.
        Cancellation follows_caller(&shared.cancellation);
        Parts own{index == 0 ? shared.cancellation : follows_caller, shared.ranges,
                  index % shared.ranges.count, shared.work_per_part, shared.args.scratch(index)};
        shared.run(own);
      },
      &task);
}
template <class Run>
void run_in_parts(const Arguments& args, int64_t count, double work, const Run& run) {
  run_in_parts(args, count, count, work, run);
}

}  // namespace husk::host
