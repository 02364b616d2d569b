// Work in parts on the application's threads. What a part computes must not depend on how many there are.
#ifndef HUSK_HOST_PARTS_H
#define HUSK_HOST_PARTS_H

#include <husk/op.h>

namespace husk::host {

// Calls run(first, step): parts first, first + step, ... are to be done, each once in all calls together. On the
// calling thread alone if there are no threads, or `work`, a number of multiplications, is too little for them.
template <class Run>
void in_parts(const husk_threads* threads, int64_t parts, double work, const Run& run) {
  constexpr double least_work = 1 << 20;   // some ten microseconds of one core
  struct Task {
    const Run& run;
    int64_t step;
  };
  const int64_t most = threads ? static_cast<int64_t>(threads->count) : 1;
  Task task{run, parts < most ? parts : most};
  if (task.step < 2 || work < least_work) return run(int64_t{0}, int64_t{1});
  threads->parallel(threads->user, static_cast<uint32_t>(task.step), [](void* argument, uint32_t index) {
    const Task& own = *static_cast<const Task*>(argument);
    own.run(static_cast<int64_t>(index), own.step);
  }, &task);
}

}  // namespace husk::host

#endif
