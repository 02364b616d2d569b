// Queued work: tasks, what they wait for, and the order in which they run.
#pragma once

#include <condition_variable>
#include <functional>
#include <thread>

#include "library.h"
#include "state.h"

namespace fake {

struct Stream : Object {
  Stream(Context& owner, bool is_blocking) : Object("stream", true), context(owner), blocking(is_blocking) {}
  Context& context;
  bool blocking;       // orders itself with the default stream
  TaskPointer last;
};

struct Event : Object {
  Event() : Object("event", true) {}
  TaskPointer task;
};

// A kernel that was started before its predecessors were done, and the baton between it and the scheduler: at any time
// one of the two runs.
struct Early {
  std::thread thread;
  std::mutex mutex;
  std::condition_variable changed;
  bool parked = false, released = false, finished = false;
};

struct Launch {
  Function* function;
  std::array<uint32_t, 3> grid, block;
  std::vector<char> bytes;         // the parameters, one behind another
  std::vector<size_t> offsets;
};

struct Task {
  std::string what;
  std::vector<TaskPointer> after;      // done before this begins
  std::vector<TaskPointer> early;      // begun before this begins, done before its grid->wait returns
  std::vector<TaskPointer> behind;     // ahead of it in its stream, and perhaps not done when it is
  std::function<void()> work;          // a copy, a fill, or nothing
  std::unique_ptr<Launch> launch;      // or a kernel
  std::vector<CUdeviceptr> memory;     // one address in each allocation that it uses
  const void* host = nullptr;          // pinned memory that it reads
  std::unique_ptr<Early> running;
  bool done = false;
  uint64_t judged = 0;                 // the last turn of the machine in which may_begin was found out
  bool may_begin = false;
};

// Adds a task, which `after` already orders among others, to the queue.
void enqueue(const TaskPointer& task);
// Adds a task behind everything that the stream has, as the stream's last. Programmatic: behind a kernel it may begin
// before that has ended.
void enqueue(const Call& call, CUstream stream, const TaskPointer& task, bool programmatic = false);
// What the next task of the stream waits for.
std::vector<TaskPointer> stream_tail(const Call& call, CUstream stream);
void set_stream_tail(const Call& call, CUstream stream, const TaskPointer& task);

// Runs queued tasks in a random order until this one is done.
void finish(const TaskPointer& task);
// Ends all that is queued; on a lost device nothing of it runs.
void drain();
// Now and then, as fake_schedule says, runs a few.
void maybe_run_some();

// The first queued task that uses this allocation, this pinned memory, or this library, or null.
const Task* user_of(const Allocation& allocation);
const Task* user_of_host(const char* begin, uint64_t size);
const Task* user_of(const Library& library);

}  // namespace fake
