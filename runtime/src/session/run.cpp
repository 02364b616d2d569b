// Resizes and runs: the prologue, the plan, then the graph of the device or the list of steps.
#include <cstring>
#include <ctime>

#include "session/session.h"

namespace husk::runtime {
namespace {

constexpr uint64_t kDefaultLoopLimit = 1ull << 32;

uint64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000u + static_cast<uint64_t>(time.tv_nsec);
}

const char* step_kind_name(Step kind) {
  switch (kind) {
#define HUSK_STEP(code, name, a) \
  case Step::op_##name: return #name;
#include <ops.def>
  }
  return "";
}

}  // namespace

// The time of a run. Makes the device current for everything that it enqueues, if the port wants
// that, and ends with the run what the session knows of its stream.
class Session::RunScope {
 public:
  explicit RunScope(Session* session) : session_(session) {}
  ~RunScope() {
    session_->capturing_ = false;
    if (!session_->entered_) return;
    session_->port()->leave(session_->entered_);
    session_->entered_ = nullptr;
  }
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;
  Status enter(husk_error* error) {
    const husk_port* port = session_->port();
    if (!port->enter) return Status::ok;
    void* handle = nullptr;
    HUSK_TRY(to_status(port->enter(session_->device(), &handle, error)));
    session_->entered_ = handle;
    return Status::ok;
  }

 private:
  Session* session_;
};

Status Session::resize(uint32_t function, const husk_value* inputs, uint32_t n, husk_error* error) {
  Frame& frame = *frames[function];
  follow_constants();
  frame.remembered = false;
  HUSK_TRY(frame.bind_inputs(inputs, n, false, error));
  HUSK_TRY(frame.io.prepare_staged_outputs(error));
  frame.io.forget_outputs();  // the caller's memory is not known; a run checks it
  bool nothing_changed;
  HUSK_TRY(prepare_plan(frame, true, &nothing_changed, error));
  frame.remembered = false;  // a run must not rely on these checks
  frame.memory.arena_generation = 0;
  HUSK_TRY(frame.arguments.prepare_segment(0, error));
  frame.prepare_later_segments();
  const bool graph = options.mode != HUSK_MODE_LIST && port()->graphs && !options.trace &&
                     !frame.graph.fits(frame) &&
                     frame.memory.planned[Device::target].peak <= arenas[Device::target].bytes;
  if (!graph) return Status::ok;
  HUSK_TRY(wait(error));
  return frame.graph.build(frame, error);
}

Status Session::run(uint32_t function, void* on, const husk_value* inputs, uint32_t input_count,
                    husk_value* outputs, uint32_t output_count, husk_error* error) {
  Frame& frame = *frames[function];
  bool nothing_changed;
  RunScope scope(this);
  HUSK_TRY(scope.enter(error));
  HUSK_TRY(check_capture(frame, on, error));

  // 1. Bind the caller's values, and compute the sizes of the first segment.
  follow_constants();
  HUSK_TRY(frame.bind_inputs(inputs, input_count, true, error));
  frame.io.begin_outputs();
  HUSK_TRY(frame.io.bind_outputs(outputs, output_count, 0, error));

  // 2. Find or make the plan for these sizes.
  HUSK_TRY(prepare_plan(frame, false, &nothing_changed, error));

  // From here on nothing allocates, except if only data decides a size and nothing bounds it. If a
  // phase fails, some arguments may be old, so the next run assigns addresses and writes them all.
  const uint64_t generation = frame.memory.arena_generation;
  frame.memory.arena_generation = 0;

  // 3. Write the arguments, which checks all views of the first segment before anything is
  // enqueued.
  HUSK_TRY(frame.arguments.write_segment(0, nothing_changed, error));

  // 4. Wait for the previous run if it may overlap this one, and copy inputs.
  HUSK_TRY(order_after_previous_run(on, error));
  HUSK_TRY(frame.io.copy_inputs(false, on, error));

  // 5. Enqueue the steps.
  HUSK_TRY(launch(frame, nothing_changed, on, outputs, output_count, error));

  // 6. Give results back.
  HUSK_TRY(frame.io.copy_results(on, error));
  frame.io.write_scalar_outputs(outputs);
  frame.memory.arena_generation = generation;
  return Status::ok;
}

// Finds out whether the application captures the stream. Refuses a function then that would have to
// wait, or whose ops might.
Status Session::check_capture(const Frame& frame, void* on, husk_error* error) {
  const Code& code = frame.code;
  int32_t capturing = 0;
  if (!port()->stream_capturing) return Status::ok;
  HUSK_TRY(to_status(port()->stream_capturing(device(), on, &capturing, error)));
  capturing_ = capturing != 0;
  if (!capturing_) return Status::ok;
  if (code.has_host_buffers())
    return fail(error, HUSK_UNSUPPORTED,
                "function '%s' has steps on the host, which a capture of its stream does not allow",
                code.function->name()->c_str());
  if (code.segments.size > 1)
    return fail(error, HUSK_UNSUPPORTED,
                "function '%s' decides on its way what to run, which a capture of its stream does "
                "not allow",
                code.function->name()->c_str());
  for (uint32_t s = 0; s < code.steps.size; ++s) {
    const fb::Instruction& op = code.steps[s];
    if (static_cast<Step>(op.op()) != Step::op_extern ||
        (program->ops[Device::target][op.a()].flags & HUSK_OP_CAPTURABLE))
      continue;
    (void)fail(error, HUSK_UNSUPPORTED,
               "the op is not HUSK_OP_CAPTURABLE, and its stream is captured");
    frame.arguments.add_step_context(s, error);
    return to_status(HUSK_UNSUPPORTED);
  }
  return Status::ok;
}

// An update may have moved constants, so addresses are assigned again.
void Session::follow_constants() {
  const uint64_t version = program->constants.version();
  if (version != constants_seen_) ++arena_generation;
  constants_seen_ = version;
}

// Makes the plan hold for the registers of the first prologue, and takes the addresses of the
// session's memory and of the caller's. `nothing_changed` is set if arguments that were written
// before are still right.
Status Session::prepare_plan(Frame& frame, bool may_allocate, bool* nothing_changed,
                             husk_error* error) {
  MemoryPlan& memory = frame.memory;
  const bool same_sizes = frame.unchanged();
  if (!memory.bounded && !same_sizes) {
    HUSK_TRY(memory.plan(error));
    memory.arena_generation = 0;
  }
  if (may_allocate)  // a resize may plan for an arena that follows
    HUSK_TRY(grow_arenas(memory.planned, error));
  else
    HUSK_TRY(check_arenas(memory, error));
  const bool assigned = memory.arena_generation != arena_generation;
  if (assigned) memory.assign_addresses();
  const bool moved = memory.update_io_addresses();
  *nothing_changed = same_sizes && !moved && !assigned;
  if (same_sizes && !assigned) return Status::ok;
  frame.remembered = false;
  Status status = frame.check_memory(0, error);
  if (failed(status))
    memory.arena_generation = 0;  // no argument was written for these addresses
  else
    frame.remember();
  return status;
}

// Arena and states belong to one run at a time. Runs on one stream are in order; a run on another
// stream starts after the previous one has ended. A run that is captured does not start now; the
// application orders the launches of its graph.
Status Session::order_after_previous_run(void* on, husk_error* error) {
  if (!capturing_) {
    if ((running_ && stream_ != on) || (assert_flag && *assert_flag)) HUSK_TRY(wait(error));
    stream_ = on;
    running_ = true;
  }
  if (!options.poison_memory) return Status::ok;
  const Arena &target = arenas[Device::target], &host = arenas[Device::host];
  if (host.bytes && !capturing_) {
    HUSK_TRY(to_status(port()->stream_wait(device(), on, error)));
    memset(host.memory, 0xFF, host.bytes);
  }
  if (target.bytes == 0) return Status::ok;
  return to_status(port()->fill(device(), on, target.memory, 0xFF, 1, target.bytes, error));
}

// Runs the segments. The prologue of the first one was evaluated, and its arguments are written.
Status Session::launch(Frame& frame, bool nothing_changed, void* on, husk_value* outputs,
                       uint32_t output_count, husk_error* error) {
  bool any_graph = false;
  frame.arguments.begin_list();
  HUSK_TRY(run_segment(frame, 0, nothing_changed, on, &any_graph, error));
  const uint64_t limit = options.loop_limit ? options.loop_limit : kDefaultLoopLimit;
  uint64_t turns = 0;
  for (uint32_t segment = 1; segment < frame.code.segments.size;) {
    HUSK_TRY(check_cancel(error));  // a loop may have no steps
    if (!frame.prologue.is_selected(segment)) {
      frame.prologue.skip(segment);
      HUSK_TRY(frame.io.bind_outputs(outputs, output_count, segment, error));
      frame.memory.update_output_addresses(segment++);
      continue;
    }
    HUSK_TRY(begin_segment(frame, segment, outputs, output_count, error));
    HUSK_TRY(run_segment(frame, segment, false, on, &any_graph, error));
    const uint32_t back = frame.code.segments[segment].back();
    if (back == kNone) {
      ++segment;
      continue;
    }
    if (++turns > limit)
      return fail(error, HUSK_LIMIT, "a loop passed the session's loop_limit of %llu",
                  static_cast<unsigned long long>(limit));
    frame.io.unbind_outputs(back);
    frame.memory.update_io_addresses();
    segment = back;
  }
  ++(any_graph ? frame.runs_as_graph : frame.runs_as_list);
  return Status::ok;
}

// Launches the graph of a segment if there is one for the plan and the arguments, and otherwise
// runs the list of its steps. Sets `*any_graph` in the first case.
Status Session::run_segment(Frame& frame, uint32_t segment, bool nothing_changed, void* on,
                            bool* any_graph, husk_error* error) {
  const uint32_t end = frame.code.segments[segment].step_end();
  if (options.mode != HUSK_MODE_LIST && frame.graph.is_for(frame.memory.plan_hash) &&
      !options.trace && !capturing_) {
    bool launched = false;
    HUSK_TRY(check_cancel(error));
    HUSK_TRY(frame.graph.run(frame, segment, on, nothing_changed, &launched, error));
    if (launched) {
      *any_graph = true;
      return run_steps(frame, frame.graph.step_end(segment), end, on, error);
    }
  }
  frame.graph.fall_behind(segment);
  return run_steps(frame, frame.code.segments[segment].step_begin(), end, on, error);
}

// Does for a later segment what run() does for the first: sizes, places, addresses, arguments.
Status Session::begin_segment(Frame& frame, uint32_t segment, husk_value* outputs,
                              uint32_t output_count, husk_error* error) {
  HUSK_TRY(frame.prologue.evaluate_segment(segment, frame.io.inputs.data(), error));
  HUSK_TRY(frame.memory.place_on_demand(segment, error));
  HUSK_TRY(frame.io.bind_outputs(outputs, output_count, segment, error));
  frame.memory.update_output_addresses(segment);
  HUSK_TRY(frame.check_memory(segment, error));
  return frame.arguments.write_segment(segment, false, error);
}

Status Session::cancelled(husk_error* error) {
  return fail(error, HUSK_CANCELLED, "husk_engine_options.cancel ended the run");
}

Status Session::run_steps(Frame& frame, uint32_t begin, uint32_t end, void* on, husk_error* error) {
  if (options.trace && !capturing_) return run_traced(frame, begin, end, on, error);
  const bool can_cancel = program->engine->options.cancel != nullptr;
  for (uint32_t s = begin; s < end; ++s) {
    if (can_cancel) HUSK_TRY(check_cancel(error));
    Status status = can_cancel ? frame.arguments.run_step(s, on, error)
                               : frame.arguments.run_steps(&s, end, on, error);
    if (!failed(status)) continue;
    frame.arguments.add_step_context(s, error);
    return status;
  }
  return Status::ok;
}

// Runs steps and tells the application how long each took. If the port has events, steps of the
// device follow one another and are waited for together.
Status Session::run_traced(Frame& frame, uint32_t begin, uint32_t end, void* on,
                           husk_error* error) {
  StepArguments& arguments = frame.arguments;
  Status status = Status::ok;
  for (uint32_t first = begin; first < end && !failed(status);) {
    const bool by_device = timer_.has_events() && arguments.states[first].device == Device::target;
    const uint64_t start = now();
    if (by_device) status = timer_.record(0, on, error);
    uint32_t n = 0;  // steps that were enqueued
    while (!failed(status) && n < (by_device ? StepTimer::kSteps : 1) && first + n < end &&
           (n == 0 || arguments.states[first + n].device == Device::target)) {
      status = check_cancel(error);
      if (failed(status)) break;
      status = arguments.run_step(first + n, on, error);
      if (by_device && !failed(status)) status = timer_.record(n + 1, on, error);
      if (failed(status))
        arguments.add_step_context(first + n, error);
      else
        ++n;
    }
    // If a step failed, those before it are reported all the same.
    husk_error ignored;
    husk_error* const late = failed(status) ? &ignored : error;
    Status done = to_status(port()->stream_wait(device(), on, late));
    for (uint32_t i = 0; i < n && !failed(done); ++i) {
      uint64_t time = now() - start;
      if (by_device) done = timer_.elapsed(i, &time, late);
      if (!failed(done))
        report(frame, first + i, time, by_device ? HUSK_CLOCK_DEVICE : HUSK_CLOCK_HOST);
    }
    if (failed(status)) return status;
    if (failed(done) && n == 1)
      arguments.add_step_context(first, error);
    else if (failed(done))
      prefix(error, "one of the steps %u to %u: ", first, first + n - 1);
    status = done;
    first += n;
  }
  return status;
}

void Session::report(const Frame& frame, uint32_t step, uint64_t nanoseconds, int32_t clock) const {
  const auto kind = static_cast<Step>(frame.code.steps[step].op());
  husk_trace_event event = {sizeof(husk_trace_event),
                            step,
                            {0, 0, 0},
                            0,
                            frame.code.function->name()->c_str(),
                            step_kind_name(kind),
                            frame.arguments.step_name(step),
                            frame.code.origin(step),
                            nanoseconds,
                            clock,
                            0};
  const husk_launch& launched = frame.arguments.states[step].launch;
  for (int d = 0; d < 3 && kind == Step::op_launch; ++d) event.grid[d] = launched.grid[d];
  options.trace(options.trace_user, &event);
}

}  // namespace husk::runtime
