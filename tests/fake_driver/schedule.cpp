#include "schedule.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace fake {

namespace {

// Never destroyed, like the state: tasks may be queued when the process ends.
std::vector<TaskPointer>& queue() {
  static auto* const tasks = new std::vector<TaskPointer>;
  return *tasks;
}

// The streams that are live or have work. Work for the default stream looks at all of them.
std::vector<Stream*>& streams() {
  static auto* const all = new std::vector<Stream*>;
  return *all;
}

bool all_done(const std::vector<TaskPointer>& tasks) {
  return std::all_of(tasks.begin(), tasks.end(),
                     [](const TaskPointer& task) { return task->done; });
}

// Whether the task cannot end now. On a lost device all work ends.
bool is_held(const Task& task, int32_t by) {
  return !state().broken && !task.begin && task.state && task.state() == by;
}
bool is_endless(const Task& task) { return is_held(task, 1); }
bool waits_for_thread(const TaskPointer& task) { return is_held(*task, 2); }

bool is_ready(Task& task) {
  if (!all_done(task.after) || !all_done(task.early)) return false;
  if (task.begin && !state().broken) std::exchange(task.begin, nullptr)();
  return !is_held(task, 1) && !is_held(task, 2);
}

// True if the task may begin before its programmatic predecessors are done, which is so if each of
// them has begun or may begin. The result is kept for one turn: the number of paths through
// branches that part and meet again is the product of the branches.
bool may_begin(Task& task, uint64_t turn) {
  if (task.checked_turn == turn) return task.may_begin;
  task.checked_turn = turn;
  const auto begun = [turn](const TaskPointer& from) {
    return from->done || from->running || may_begin(*from, turn);
  };
  return task.may_begin = all_done(task.after) &&
                          std::all_of(task.early.begin(), task.early.end(), begun);
}

// The fake_grid is the first member, so a kernel's grid pointer is also a pointer to this struct.
struct Grid {
  fake_grid visible;
  EarlyKernel* early;
};

void grid_wait(const fake_grid* grid) {
  EarlyKernel* early = reinterpret_cast<const Grid*>(grid)->early;
  if (!early) return;
  std::unique_lock lock(early->mutex);
  if (early->released) return;
  early->parked = true;
  early->changed.notify_all();
  early->changed.wait(lock, [early] { return early->released; });
}

void grid_launch_dependents(const fake_grid*) {}

void grid_trap(const fake_grid*, int32_t code) { fake_break(code); }

void run_kernel(const Launch& launch, EarlyKernel* early) {
  Grid grid = {};
  std::copy(launch.grid.begin(), launch.grid.end(), grid.visible.grid);
  std::copy(launch.block.begin(), launch.block.end(), grid.visible.block);
  grid.visible.wait = grid_wait;
  grid.visible.launch_dependents = grid_launch_dependents;
  grid.visible.trap = grid_trap;
  grid.early = early;
  // The kernel gets its own copy of the parameters, which it may change.
  std::vector<char> bytes(launch.bytes);
  std::vector<void*> params;
  for (const size_t offset : launch.offsets) params.push_back(bytes.data() + offset);
  launch.function->kernel.entry(&grid.visible, params.data());
}

// The clock of the device: a kernel takes 4000 ns for each block, other work 1000 ns, and an event
// nothing.
void advance_clock(Task& task) {
  static uint64_t now = 0;
  if (const Launch* launch = task.launch.get())
    now += uint64_t{4000} * launch->grid[0] * launch->grid[1] * launch->grid[2];
  else if (task.work)
    now += 1000;
  task.end = now;
}

void complete(Task& task) {
  advance_clock(task);
  task.done = true;
  for (const HostUse& use : task.host_uses) end_use(use);
  task.host_uses.clear();
  if (task.frees) free_in_order(task.frees);
  task.after.clear();  // otherwise the tasks of a long stream would own one another in a long chain
  task.early.clear();
  std::erase_if(queue(), [&task](const TaskPointer& queued) { return queued.get() == &task; });
}

void end_early(Task& task) {
  task.running->thread.join();
  complete(task);
}

void begin_early(Task& task) {
  ++state().early_starts;
  task.running = std::make_unique<EarlyKernel>();
  EarlyKernel& early = *task.running;
  early.thread = std::thread([&early, launch = task.launch.get()] {
    run_kernel(*launch, &early);
    std::lock_guard lock(early.mutex);
    early.finished = true;
    early.changed.notify_all();
  });
  std::unique_lock lock(early.mutex);
  early.changed.wait(lock, [&early] { return early.parked || early.finished; });
  if (!early.finished) return;
  lock.unlock();
  end_early(task);
}

void run_to_end(Task& task) {
  if (EarlyKernel* early = task.running.get()) {
    std::unique_lock lock(early->mutex);
    early->released = true;
    early->changed.notify_all();
    early->changed.wait(lock, [early] { return early->finished; });
    lock.unlock();
    end_early(task);
    return;
  }
  const bool lost = state().broken != CUDA_SUCCESS;  // no work runs on a lost device
  if (task.launch && !lost) run_kernel(*task.launch, nullptr);
  if (task.work && !lost) task.work();
  complete(task);
}

// One turn of the scheduler: runs one task. Kernels that can begin early do so first, because a
// kernel without a needed wait fails then.
bool step() {
  static uint64_t turn = 0;
  ++turn;
  std::vector<TaskPointer> beginning, ready;
  for (const TaskPointer& task : queue())
    if (is_ready(*task))
      ready.push_back(task);
    else if (task->launch && !task->state && !task->early.empty() && !task->running &&
             !state().broken && may_begin(*task, turn))
      beginning.push_back(task);
  auto& choice = beginning.empty() ? ready : beginning;
  if (choice.empty()) return false;
  const TaskPointer task = choice[state().random() % choice.size()];
  if (beginning.empty())
    run_to_end(*task);
  else
    begin_early(*task);
  return true;
}

}  // namespace

void enqueue(const TaskPointer& task) { queue().push_back(task); }

bool try_to_finish(const TaskPointer& task) {
  while (task && !task->done) {
    if (step()) continue;
    for (const TaskPointer& queued : queue())
      if (is_endless(*queued)) return false;
    if (step()) continue;  // another thread has ended the endless work meanwhile
    if (std::any_of(queue().begin(), queue().end(), waits_for_thread)) return false;
    violation("queued work waits for itself: %s", task->what.c_str());
  }
  return true;
}

void finish(const TaskPointer& task) {
  while (!try_to_finish(task)) {
    if (std::any_of(queue().begin(), queue().end(), waits_for_thread)) {
      state().mutex.unlock();  // the other thread's call needs it
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      state().mutex.lock();
      continue;
    }
    violation("a call waits for ever: %s, or work before it, does not end", task->what.c_str());
  }
}

void refuse_endless(const Call& call) {
  for (const TaskPointer& task : queue())
    if (is_endless(*task)) violation("%s waits for ever: %s", call.name, task->what.c_str());
}

void refuse_endless(const Call& call, CUstream stream) {
  const auto& tasks = queue();
  if (std::none_of(tasks.begin(), tasks.end(), [](const auto& task) { return is_endless(*task); }))
    return;
  for (const TaskPointer& task : stream_tail(call, stream))
    if (!try_to_finish(task)) violation("%s may wait for ever: %s", call.name, task->what.c_str());
}

void drain() {
  while (!queue().empty() && step()) {
  }
}

void maybe_run_some() {
  State& s = state();
  if (s.random() % 100 >= s.eager_percent) return;
  for (uint64_t steps = s.random() % 8 + 1; steps > 0 && step(); --steps) {
  }
}

// Adds the task and the tasks that it may have overtaken to `out` if they are not done.
static void add_unfinished(const TaskPointer& task, std::vector<TaskPointer>* out) {
  if (!task || std::find(out->begin(), out->end(), task) != out->end()) return;
  if (!task->done) out->push_back(task);
  for (const TaskPointer& before : task->overtaken) add_unfinished(before, out);
  if (task->done && all_done(task->overtaken)) task->overtaken.clear();
}

std::vector<TaskPointer> stream_tail(const Call& call, CUstream handle) {
  std::vector<TaskPointer> tail;
  const auto add = [&tail](const TaskPointer& task) { add_unfinished(task, &tail); };
  Context& context = call.context();
  if (handle) {
    Stream& stream = call.object<Stream>(handle, "stream");
    if (&stream.context != &context)
      violation("%s: stream %p belongs to another context", call.name, (void*)handle);
    add(stream.last);
    if (stream.blocking) add(context.null_last);
    return tail;
  }
  add(context.null_last);
  for (const Stream* stream : streams()) {
    if (!stream->blocking || &stream->context != &context) continue;
    if (stream->capture) violation("%s: the default stream, and a stream captures", call.name);
    add(stream->last);
  }
  return tail;
}

void set_stream_tail(const Call& call, CUstream handle, const TaskPointer& task) {
  if (handle)
    call.object<Stream>(handle, "stream").last = task;
  else
    call.context().null_last = task;
}

void enqueue(const Call& call, CUstream stream, const TaskPointer& task, bool programmatic) {
  if (is_capturing(call, stream))
    return record(call.object<Stream>(stream, "stream"), task, programmatic);
  for (const TaskPointer& before : stream_tail(call, stream)) {
    const bool early = programmatic && before->launch;
    (early ? task->early : task->after).push_back(before);
    if (early) task->overtaken.push_back(before);
  }
  set_stream_tail(call, stream, task);
  enqueue(task);
  maybe_run_some();
}

const Task* user_of(const Allocation& allocation) {
  if (state().broken) return nullptr;
  for (const TaskPointer& task : queue()) {
    for (const CUdeviceptr address : task->memory)
      if (find_allocation(address) == &allocation) return task.get();
  }
  return nullptr;
}

const Task* user_of_host(const char* begin, uint64_t size) {
  if (state().broken) return nullptr;
  for (const TaskPointer& task : queue()) {
    const char* host = static_cast<const char*>(task->host);
    if (host && host >= begin && host < begin + size) return task.get();
    for (const HostUse& use : task->host_uses)
      if (use.overlaps(begin, size)) return task.get();
  }
  return nullptr;
}

const Task* user_of(const Library& library) {
  if (state().broken) return nullptr;
  for (const TaskPointer& task : queue())
    if (task->launch && &task->launch->function->kernel.library == &library) return task.get();
  return nullptr;
}

static uint64_t pending() {
  std::lock_guard lock(state().mutex);
  return queue().size();
}

CUresult cuStreamCreate(CUstream* out, unsigned int flags) {
  Call call("cuStreamCreate");
  if (call.fault) return call.fault;
  if (flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = make<Stream>(call.context(), flags == 0);
  std::erase_if(streams(), [](const Stream* old) {
    return !old->live && (!old->last || (old->last->done && all_done(old->last->overtaken)));
  });
  streams().push_back(stream);
  *out = reinterpret_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream handle) {
  Call call("cuStreamDestroy");
  call.context();
  if (is_capturing(call, handle)) violation("cuStreamDestroy: the stream captures");
  call.object<Stream>(handle, "stream").end();  // its work goes on
  return call.fault;
}

CUresult cuStreamSynchronize(CUstream handle) {
  Call call("cuStreamSynchronize");
  if (call.fault) return call.fault;
  if (const CUresult refused = refuse_captured(call, handle)) return refused;
  for (const TaskPointer& task : stream_tail(call, handle)) finish(task);
  if (queue().empty()) ++state().idle_waits;
  return state().broken;
}

// Queued work runs now, so that nobody asks for ever.
CUresult cuStreamQuery(CUstream handle) {
  Call call("cuStreamQuery");
  if (call.fault) return call.fault;
  if (const CUresult refused = refuse_captured(call, handle)) return refused;
  for (const TaskPointer& task : stream_tail(call, handle))
    if (!try_to_finish(task)) return CUDA_ERROR_NOT_READY;
  return state().broken;
}

CUresult cuEventCreate(CUevent* out, unsigned int flags) {
  Call call("cuEventCreate");
  if (call.fault) return call.fault;
  if (flags > 7) return CUDA_ERROR_INVALID_VALUE;
  call.context();
  *out = reinterpret_cast<CUevent>(make<Event>(!(flags & CU_EVENT_DISABLE_TIMING)));
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent handle, CUstream stream) {
  Call call("cuEventRecord");
  if (call.fault) return call.fault;
  Event& event = call.object<Event>(handle, "event");
  event.task = std::make_shared<Task>();
  event.task->what = "an event";
  event.captured = is_capturing(call, stream);
  enqueue(call, stream, event.task);
  return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent handle) {
  Call call("cuEventSynchronize");
  if (call.fault) return call.fault;
  const Event& event = call.object<Event>(handle, "event");
  if (event.captured) return CUDA_ERROR_CAPTURED_EVENT;
  finish(event.task);
  if (queue().empty()) ++state().idle_waits;
  return state().broken;
}

CUresult cuEventQuery(CUevent handle) {
  Call call("cuEventQuery");
  if (call.fault) return call.fault;
  const Event& event = call.object<Event>(handle, "event");
  if (event.captured) return CUDA_ERROR_CAPTURED_EVENT;
  return try_to_finish(event.task) ? state().broken : CUDA_ERROR_NOT_READY;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  Call call("cuEventElapsedTime");
  if (call.fault) return call.fault;
  if (state().broken) return state().broken;
  uint64_t times[2];
  for (int i = 0; i < 2; ++i) {
    const Event& event = call.object<Event>(i ? end : begin, "event");
    if (!event.timed || !event.task) return CUDA_ERROR_INVALID_HANDLE;
    if (event.captured) return CUDA_ERROR_CAPTURED_EVENT;
    if (!event.task->done) return CUDA_ERROR_NOT_READY;
    times[i] = event.task->end;
  }
  *milliseconds = static_cast<float>(static_cast<double>(times[1] - times[0]) / 1e6);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle) {
  Call call("cuEventDestroy");
  call.object<Event>(handle, "event").end();
  return call.fault;
}

}  // namespace fake

uint64_t fake_pending() { return fake::pending(); }

int32_t fake_enter(const char* name, int32_t in_context) {
  const fake::Call call(name);
  if (in_context && !call.fault) call.context();
  return call.fault;
}

int32_t fake_queue(const char* name, void* stream, void (*work)(const void* data), const void* data,
                   uint64_t size, const fake_range* ranges, uint32_t count) {
  return fake_queue_endless(name, stream, work, nullptr, data, size, ranges, count);
}

int32_t fake_queue_endless(const char* name, void* stream, void (*work)(const void* data),
                           int32_t (*work_state)(const void* data), const void* data, uint64_t size,
                           const fake_range* ranges, uint32_t count) {
  const fake::Call call(name);
  if (call.fault) return call.fault;
  auto task = std::make_shared<fake::Task>();
  task->what = name;
  for (uint32_t i = 0; i < count; ++i) {
    const auto address = reinterpret_cast<husk::cuda::CUdeviceptr>(ranges[i].address);
    fake::check_range(call, address, ranges[i].size, "an operand");
    task->memory.push_back(address);
  }
  const char* bytes = static_cast<const char*>(data);
  const auto kept = std::make_shared<std::vector<char>>(bytes, bytes + size);
  task->data = kept;
  task->work = [work, kept] { work(kept->data()); };
  if (work_state) task->state = [work_state, kept] { return work_state(kept->data()); };
  fake::enqueue(call, static_cast<husk::cuda::CUstream>(stream), task);
  return 0;
}

void fake_hold(int32_t change) {
  std::lock_guard lock(fake::state().mutex);
  fake::state().held += static_cast<uint64_t>(static_cast<int64_t>(change));
}
