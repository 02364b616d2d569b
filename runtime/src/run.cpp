// A run: the prologue, the plan that it wants, then the graph, or the launch list segment by segment.
#include "session.h"

#include <ctime>

using husk::Frame;
using husk::Status;
using husk::fail;
using husk::failed;
using husk::to_status;

namespace {

uint64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000u + static_cast<uint64_t>(time.tv_nsec);
}

// By code; there are no gaps.
constexpr char kStepNames[] =
#define HUSK_STEP(code, name, a) #name "\0"
#include <ops.def>
    ;
static_assert(int(husk::Step::op_read) == 4 && sizeof(kStepNames) == sizeof("launch\0extern\0copy\0fill\0read\0"));

}  // namespace

// Updated constants may lie elsewhere.
void husk_session::follow_constants() {
  const uint64_t version = program->constants_version;
  if (version != constants_seen) ++layout;
  constants_seen = version;
}

// After the first prologue: sees to it that the plan holds for these registers and that addresses are those of the
// session's memory.
Status husk_session::settle(Frame& frame, bool may_allocate, Writes* writes, husk_error* error) {
  const bool same = frame.unchanged();
  if (!frame.bounded && !same) {
    HUSK_TRY(frame.plan(error));
    frame.layout = 0;
  }
  if (frame.planned.peak > arena_bytes) {
    if (may_allocate) HUSK_TRY(reserve_arena(frame.planned.peak, error));
    if (frame.planned.peak > arena_bytes && !(may_allocate && options.lent_arena))
      return fail(error, HUSK_NEEDS_RESIZE, "these shapes need %llu bytes of memory, the session has %llu: %s first",
                  static_cast<unsigned long long>(frame.planned.peak), static_cast<unsigned long long>(arena_bytes),
                  options.lent_arena ? "husk_session_lend_arena with more" : "call husk_session_resize with them");
  }
  const bool laid_out = frame.layout != layout;
  if (laid_out) frame.lay_out(static_cast<uint8_t*>(arena), states.data(), layout);
  const bool moved = frame.place_values();
  *writes = same && !moved && !laid_out ? Writes::none : Writes::dynamic;
  if (same && !laid_out) return Status::ok;
  frame.bound_once = false;
  Status status = frame.check_memory_of(0, error);
  if (failed(status))
    frame.layout = 0;  // nothing was written for it yet
  else
    frame.remember();
  return status;
}

Status husk_session::write_segment(Frame& frame, uint32_t segment, Writes writes, husk_error* error) {
  const bool all = frame.segment_states[segment].written != frame.stamp;
  if (writes == Writes::none && !all) return Status::ok;
  const husk::fb::Segment& range = frame.code.segments[segment];
  for (uint32_t s = range.step_begin(); s < range.step_end(); ++s) {
    Status status = frame.write_arguments(s, all, error);
    if (!failed(status)) continue;
    frame.blame(s, error);
    return status;
  }
  frame.segment_states[segment].written = frame.stamp;
  return Status::ok;
}

Status husk_session::run_traced(Frame& frame, uint32_t step, void* on, husk_error* error) {
  const uint64_t begin = now();
  HUSK_TRY(frame.run_step(step, on, error));
  HUSK_TRY(to_status(port()->stream_wait(device(), on, error)));
  const auto kind = static_cast<husk::Step>(frame.code.steps[step].op());
  husk_trace_event event = {frame.code.function->name()->c_str(), step, husk::nth_text(kStepNames, static_cast<int32_t>(kind)),
                            frame.step_name(step), frame.code.origin(step), {0, 0, 0}, now() - begin};
  for (int d = 0; d < 3 && kind == husk::Step::op_launch; ++d) event.grid[d] = frame.step_states[step].launch.grid[d];
  options.trace(options.trace_user, &event);
  return Status::ok;
}

Status husk_session::run_segment(Frame& frame, uint32_t segment, void* on, husk_error* error) {
  const husk::fb::Segment& range = frame.code.segments[segment];
  for (uint32_t s = range.step_begin(); s < range.step_end(); ++s) {
    Status status = options.trace ? run_traced(frame, s, on, error) : frame.run_step(s, on, error);
    if (!failed(status)) continue;
    frame.blame(s, error);
    return status;
  }
  return Status::ok;
}

Status husk_session::resize(uint32_t function, const husk_value* inputs, uint32_t count, husk_error* error) {
  Frame& frame = *frames[function];
  follow_constants();
  frame.bound_once = false;
  HUSK_TRY(frame.bind_inputs(inputs, count, false, error));
  frame.evaluated = 0;
  HUSK_TRY(frame.enter(0, error));
  for (uint32_t i = 0; i < frame.code.outputs(); ++i) {
    frame.output_states[i].data = nullptr;  // the caller's memory is not known yet; run checks it
    frame.output_states[i].bytes = UINT64_MAX;
  }
  Writes writes;
  HUSK_TRY(settle(frame, true, &writes, error));
  frame.bound_once = false;  // nor may run take these checks for its own
  frame.layout = 0;
  const bool graph = options.mode != HUSK_MODE_LIST && port()->graphs && frame.code.segments.size == 1 && !options.trace &&
                     !frame.graph.fits(frame.plan_hash) && frame.planned.peak <= arena_bytes;
  frame.preparing = true;
  Status prepared = write_segment(frame, 0, Writes::dynamic, error);
  frame.preparing = false;
  HUSK_TRY(prepared);
  if (!graph) return Status::ok;
  HUSK_TRY(wait(error));
  return frame.graph.build(frame, error);
}

// The arena and the state belong to one run after another: on another stream, the new one starts after the old.
Status husk_session::take_turn(void* on, husk_error* error) {
  if (running && (stream != on || (failed_assert && *failed_assert))) HUSK_TRY(wait(error));
  stream = on;
  running = true;
  if (options.fill_freed && arena_bytes)
    return to_status(port()->fill(device(), on, arena, 0xFF, 1, arena_bytes, error));
  return Status::ok;
}

// To the aligned copies before a run, and behind it back to what was written.
Status husk_session::copy_inputs(Frame& frame, bool back, void* on, husk_error* error) {
  for (uint32_t i = 0; i < frame.code.inputs(); ++i) {
    uint8_t* theirs = frame.input_states[i].misaligned;
    if (!theirs || (back && !frame.input_states[i].written)) continue;
    uint8_t* ours = frame.inputs[i].data;
    HUSK_TRY(to_status(port()->copy(device(), on, back ? theirs : ours, back ? ours : theirs, frame.inputs[i].bytes, error)));
  }
  return Status::ok;
}

Status husk_session::run(uint32_t function, void* on, const husk_value* inputs, uint32_t input_count, husk_value* outputs,
                         uint32_t output_count, husk_error* error) {
  Frame& frame = *frames[function];
  follow_constants();
  HUSK_TRY(frame.bind_inputs(inputs, input_count, true, error));
  for (uint32_t i = 0; i < frame.code.outputs(); ++i) frame.output_states[i].bytes = 0;
  frame.evaluated = 0;
  HUSK_TRY(frame.enter(0, error));
  HUSK_TRY(frame.bind_outputs(outputs, output_count, 0, error));
  HUSK_TRY(frame.check_overlaps(error));
  Writes writes;
  HUSK_TRY(settle(frame, false, &writes, error));
  Status status = run_entered(frame, writes, on, outputs, output_count, error);
  if (failed(status))
    frame.layout = 0;  // some arguments may not have been written
  else
    frame.write_results(outputs);
  return status;
}

// Once for all that the run enqueues, where the port has to make its device current.
Status husk_session::run_entered(Frame& frame, Writes writes, void* on, husk_value* outputs, uint32_t output_count,
                                 husk_error* error) {
  if (!port()->enter) return run_settled(frame, writes, on, outputs, output_count, error);
  HUSK_TRY(to_status(port()->enter(device(), &entered, error)));
  Status status = run_settled(frame, writes, on, outputs, output_count, error);
  port()->leave(entered);
  entered = nullptr;
  return status;
}

Status husk_session::run_settled(Frame& frame, Writes writes, void* on, husk_value* outputs, uint32_t output_count,
                                 husk_error* error) {
  HUSK_TRY(write_segment(frame, 0, writes, error));   // before anything is enqueued: it checks the memory
  HUSK_TRY(take_turn(on, error));
  HUSK_TRY(copy_inputs(frame, false, on, error));
  bool done = false;
  if (options.mode != HUSK_MODE_LIST && frame.graph.fits(frame.plan_hash) && !options.trace) {
    HUSK_TRY(frame.graph.run(frame, on, writes == Writes::none, &done, error));
  }
  if (!done) {
    frame.graph.fall_behind();
    HUSK_TRY(run_segments(frame, on, outputs, output_count, error));
  }
  ++(done ? frame.runs_as_graph : frame.runs_as_list);
  return copy_inputs(frame, true, on, error);
}

// The first prologue has run already, the first segment's arguments are written.
Status husk_session::run_segments(Frame& frame, void* on, husk_value* outputs, uint32_t output_count,
                                  husk_error* error) {
  HUSK_TRY(run_segment(frame, 0, on, error));
  const uint64_t limit = options.loop_limit ? options.loop_limit : 1ull << 32;
  uint64_t turns = 0;
  for (uint32_t segment = 1; segment < frame.code.segments.size;) {
    if (!frame.runs(segment)) {
      frame.skip(segment);
      HUSK_TRY(frame.bind_outputs(outputs, output_count, segment++, error));
      continue;
    }
    HUSK_TRY(frame.enter(segment, error));
    HUSK_TRY(frame.place_on_demand(segment, error));
    HUSK_TRY(frame.bind_outputs(outputs, output_count, segment, error));
    HUSK_TRY(frame.check_overlaps(error));
    frame.place_values();
    HUSK_TRY(frame.check_memory_of(segment, error));
    HUSK_TRY(write_segment(frame, segment, Writes::dynamic, error));
    HUSK_TRY(run_segment(frame, segment, on, error));
    const uint32_t back = frame.code.segments[segment].back();
    if (back == husk::kNone) {
      ++segment;
      continue;
    }
    if (++turns > limit)
      return fail(error, HUSK_LIMIT, "a loop passed the session's loop_limit of %llu",
                  static_cast<unsigned long long>(limit));
    segment = back;
  }
  return Status::ok;
}
