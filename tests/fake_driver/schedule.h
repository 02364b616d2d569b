// Queued work: tasks, their dependences, and the order in which they run.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "library.h"
#include "state.h"

namespace fake {

struct Capture;

struct Stream : Object {
  Stream(Context& owner, bool is_blocking)
      : Object("stream", true), context(owner), blocking(is_blocking) {}
  Context& context;
  bool blocking;  // synchronises with the default stream
  TaskPointer last;
  Capture* capture = nullptr;  // null if the stream captures nothing
};

struct Event : Object {
  explicit Event(bool takes_time) : Object("event", true), timed(takes_time) {}
  bool timed;  // without CU_EVENT_DISABLE_TIMING
  TaskPointer task;
  bool captured = false;  // recorded in a stream that was capturing
};

// The thread of a kernel that was started before its predecessors were done. The flags hand control
// between the kernel and the scheduler: only one of the two runs at any time.
struct EarlyKernel {
  std::thread thread;
  std::mutex mutex;
  std::condition_variable changed;
  bool parked = false, released = false, finished = false;
};

struct Launch {
  Function* function;
  std::array<uint32_t, 3> grid, block;
  std::vector<char> bytes;  // the parameters, one after another
  std::vector<size_t> offsets;
  std::vector<void*> params;  // what cuGraphKernelNodeGetParams returns
};

struct Task {
  std::string what;
  std::vector<TaskPointer> after;  // tasks that are done before this one begins
  // Tasks that have begun before this one begins, and are done before its grid->wait returns.
  std::vector<TaskPointer> early;
  // Earlier tasks of the stream that this one may overtake: they may run when this one is done.
  std::vector<TaskPointer> overtaken;
  std::function<void()> work;      // a copy or a fill; empty for a kernel or an event
  std::function<void()> begin;     // what is done before `state` says whether the task can end
  std::function<int32_t()> state;  // of fake_queue_endless; empty for work that always ends
  std::shared_ptr<const std::vector<char>> data;  // of fake_queue and fake_queue_endless
  std::unique_ptr<Launch> launch;                 // a kernel; null for other tasks
  std::vector<CUdeviceptr> memory;  // one address in each allocation that the task uses
  CUdeviceptr frees = 0;            // the allocation that is freed when the task is done
  const void* host = nullptr;       // pinned memory that the task reads
  std::vector<HostUse> host_uses;   // pinned memory that the host must leave alone until the end
  std::unique_ptr<EarlyKernel> running;
  bool done = false;
  uint64_t end = 0;  // the time of the device's clock when the task was done, in nanoseconds
  uint64_t checked_turn = 0;  // the turn of the scheduler in which may_begin was computed
  bool may_begin = false;
};

// Adds a task whose `after` is complete to the queue.
void enqueue(const TaskPointer& task);
// Adds a task after all tasks of the stream, as the stream's last. A programmatic task may begin
// before a kernel that precedes it has ended. A stream that captures records the task instead.
void enqueue(const Call& call, CUstream stream, const TaskPointer& task, bool programmatic = false);
// The tasks that the next task of the stream waits for.
std::vector<TaskPointer> stream_tail(const Call& call, CUstream stream);
void set_stream_tail(const Call& call, CUstream stream, const TaskPointer& task);

// capture.cpp
bool is_capturing(const Call& call, CUstream stream);
// Adds a task to the graph of a stream that captures.
void record(Stream& stream, const TaskPointer& task, bool programmatic);
// For a call that a capture does not allow on its stream: makes the capture invalid and returns the
// error. CUDA_SUCCESS if the stream captures nothing.
CUresult refuse_captured(const Call& call, CUstream stream);
// For a call that no thread may make while it captures, or while another one captures globally.
CUresult refuse_while_capturing();

// Runs queued tasks in a random order until `task` is done; a violation if it cannot end.
void finish(const TaskPointer& task);
// The same, but false if the task cannot end now.
bool try_to_finish(const TaskPointer& task);
// For a call that waits for all work of the device: a violation if some of it cannot end.
void refuse_endless(const Call& call);
// For a call that may wait for a stream: the same for work of the stream.
void refuse_endless(const Call& call, CUstream stream);
// Ends all queued tasks. On a lost device they end without running.
void drain();
// Runs a few tasks, as often as fake_schedule says.
void maybe_run_some();

// The first queued task that uses the allocation, the pinned memory or the library; null if there
// is none.
const Task* user_of(const Allocation& allocation);
const Task* user_of_host(const char* begin, uint64_t size);
const Task* user_of(const Library& library);

}  // namespace fake
