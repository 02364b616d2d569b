#include "session.h"

#include <cstring>

using husk::Frame;
using husk::Status;
using husk::fail;
using husk::failed;
using husk::to_status;

husk_session::~husk_session() {
  husk_error ignored;
  (void)wait(&ignored);
  (void)settle_default(&ignored);
  for (Frame* frame : frames) {
    if (frame) frame->graph.reset(*frame);
    husk::destroy(allocator(), frame);
  }
  if (arena) port()->free(device(), arena);
  if (state_memory) port()->free(device(), state_memory);
}

Status husk_session::prepare(husk_error* error) {
  HUSK_TRY(frames.allocate(allocator(), program->functions(), error));
  uint64_t arena_wanted = 0;
  for (uint32_t f = 0; f < program->functions(); ++f) {
    frames[f] = husk::create<Frame>(allocator());
    if (!frames[f]) return fail(error, HUSK_OUT_OF_MEMORY, "out of host memory: a session");
    HUSK_TRY(frames[f]->prepare(program, f, &options, error));
    if (frames[f]->bounded && frames[f]->planned.peak > arena_wanted) arena_wanted = frames[f]->planned.peak;
  }
  const uint32_t n = husk::count(program->rows()->states());
  HUSK_TRY(states.allocate(allocator(), n, error));
  uint64_t total = 0;
  for (uint32_t s = 0; s < n; ++s) {
    states[s] = reinterpret_cast<uint8_t*>(total);  // an offset until the memory is there
    total += (husk::state_bytes(program->rows()->states()->Get(s)) + 255) / 256 * 256;
  }
  if (total) {
    Status status = to_status(port()->alloc(device(), total, &state_memory, error));
    if (failed(status)) {
      state_memory = nullptr;
      husk::prefix(error, "the session's state, %llu bytes", static_cast<unsigned long long>(total));
      return status;
    }
  }
  for (uint32_t s = 0; s < n; ++s) {
    states[s] = static_cast<uint8_t*>(state_memory) + reinterpret_cast<uintptr_t>(states[s]);
    HUSK_TRY(reset_state(s, error));
  }
  return reserve_arena(arena_wanted, error);
}

Status husk_session::reset_state(uint32_t index, husk_error* error) {
  const husk::fb::State* state = program->rows()->states()->Get(index);
  const uint64_t bytes = husk::state_bytes(state);
  HUSK_TRY(wait(error));
  if (bytes == 0) return Status::ok;
  default_busy = true;
  if (state->init() != husk::kNone) {
    HUSK_TRY(to_status(port()->copy(device(), nullptr, states[index], program->constants[state->init()], bytes, error)));
  } else {
    const size_t width = husk_dtype_size(static_cast<husk_dtype>(state->dtype()));
    const uint32_t part = width > 8 ? 8 : static_cast<uint32_t>(width);  // wider elements are filled with 0 only
    HUSK_TRY(to_status(port()->fill(device(), nullptr, states[index], state->fill(), part, bytes / part, error)));
  }
  return settle_default(error);
}

Status husk_session::set_state(uint32_t index, const void* bytes, husk_error* error) {
  HUSK_TRY(wait(error));
  const uint64_t size = husk::state_bytes(program->rows()->states()->Get(index));
  default_busy = true;
  HUSK_TRY(to_status(port()->upload(device(), nullptr, states[index], bytes, size, error)));
  return settle_default(error);
}

Status husk_session::wait(husk_error* error) {
  if (!running) return Status::ok;
  HUSK_TRY(to_status(port()->stream_wait(device(), stream, error)));
  running = false;
  return Status::ok;
}

Status husk_session::settle_default(husk_error* error) {
  if (!default_busy) return Status::ok;
  HUSK_TRY(to_status(port()->stream_wait(device(), nullptr, error)));
  default_busy = false;
  return Status::ok;
}

Status husk_session::reserve_arena(uint64_t bytes, husk_error* error) {
  if (bytes <= arena_bytes) return Status::ok;
  HUSK_TRY(wait(error));
  if (arena) port()->free(device(), arena);
  arena = nullptr;
  arena_bytes = 0;
  ++layout;
  Status status = to_status(port()->alloc(device(), bytes, &arena, error));
  if (failed(status)) {
    arena = nullptr;
    husk::prefix(error, "the session's arena, %llu bytes", static_cast<unsigned long long>(bytes));
    return status;
  }
  arena_bytes = bytes;
  return Status::ok;
}

// After the first prologue: sees to it that the plan holds for these registers and that addresses are those of the
// session's memory.
Status husk_session::settle(Frame& frame, bool may_allocate, Writes* writes, husk_error* error) {
  frame.evaluated = true;
  const bool same = frame.unchanged();
  if (!frame.bounded && !same) {
    HUSK_TRY(frame.plan(error));
    frame.layout = 0;
  }
  if (frame.planned.peak > arena_bytes) {
    if (!may_allocate)
      return fail(error, HUSK_NEEDS_RESIZE, "function '%s': these shapes need %llu bytes of memory, the session has %llu: call "
                  "husk_session_resize with them first", frame.code.function->name()->c_str(),
                  static_cast<unsigned long long>(frame.planned.peak), static_cast<unsigned long long>(arena_bytes));
    HUSK_TRY(reserve_arena(frame.planned.peak, error));
  }
  const bool laid_out = frame.layout != layout;
  if (laid_out) frame.lay_out(static_cast<uint8_t*>(arena), states.data(), layout);
  const bool moved = frame.place_values();
  *writes = laid_out ? Writes::all : same && !moved ? Writes::none : Writes::dynamic;
  if (same && !laid_out) return Status::ok;
  frame.bound_once = false;
  Status status = frame.check_segment(0, error);
  if (failed(status))
    frame.layout = 0;  // nothing was written for it yet
  else
    frame.remember();
  return status;
}

Status husk_session::write_segment(Frame& frame, uint32_t segment, Writes writes, husk_error* error) {
  if (writes == Writes::none) return Status::ok;
  const husk::fb::Segment& range = frame.code.segments[segment];
  for (uint32_t s = range.step_begin(); s < range.step_end(); ++s) {
    Status status = frame.write_arguments(s, writes == Writes::all, error);
    if (!failed(status)) continue;
    frame.blame(s, error);
    return status;
  }
  return Status::ok;
}

Status husk_session::run_segment(Frame& frame, uint32_t segment, void* on, husk_error* error) {
  const husk::fb::Segment& range = frame.code.segments[segment];
  for (uint32_t s = range.step_begin(); s < range.step_end(); ++s) {
    Status status = frame.run_step(s, on, error);
    if (!failed(status)) continue;
    frame.blame(s, error);
    return status;
  }
  return Status::ok;
}

Status husk_session::resize(uint32_t function, const husk_value* inputs, uint32_t count, husk_error* error) {
  Frame& frame = *frames[function];
  frame.bound_once = false;
  HUSK_TRY(frame.bind_inputs(inputs, count, false, error));
  HUSK_TRY(frame.enter(0, error));
  for (uint32_t i = 0; i < frame.code.outputs(); ++i) {
    frame.output_data[i] = nullptr;  // the caller's memory is not known yet; run checks it
    frame.output_bytes[i] = UINT64_MAX;
  }
  Writes writes;
  HUSK_TRY(settle(frame, true, &writes, error));
  frame.bound_once = false;  // nor may run take these checks for its own
  frame.layout = 0;
  if (options.mode == HUSK_MODE_LIST || !port()->graphs || frame.code.segments.size != 1) return Status::ok;
  if (frame.graph.fits(frame.plan_hash)) return Status::ok;
  HUSK_TRY(write_segment(frame, 0, Writes::all, error));
  HUSK_TRY(wait(error));
  return frame.graph.build(frame, error);
}

// The arena and the state belong to one run after another: on another stream, the new one starts after the old.
Status husk_session::take_turn(void* on, husk_error* error) {
  if (running && stream != on) HUSK_TRY(wait(error));
  stream = on;
  running = true;
  if (options.fill_freed && arena_bytes)
    return to_status(port()->fill(device(), on, arena, 0xFF, 1, arena_bytes, error));
  return Status::ok;
}

Status husk_session::run(uint32_t function, void* on, const husk_value* inputs, uint32_t input_count, husk_value* outputs,
                         uint32_t output_count, husk_error* error) {
  Frame& frame = *frames[function];
  HUSK_TRY(frame.bind_inputs(inputs, input_count, true, error));
  for (uint64_t& bytes : frame.output_bytes) bytes = 0;
  HUSK_TRY(frame.enter(0, error));
  HUSK_TRY(frame.bind_outputs(outputs, output_count, 0, error));
  HUSK_TRY(frame.check_overlaps(error));
  Writes writes;
  HUSK_TRY(settle(frame, false, &writes, error));
  Status status = run_settled(frame, writes, on, outputs, output_count, error);
  if (failed(status))
    frame.layout = 0;  // some arguments may not have been written
  else
    frame.write_results(outputs);
  return status;
}

Status husk_session::run_settled(Frame& frame, Writes writes, void* on, husk_value* outputs, uint32_t output_count,
                                 husk_error* error) {
  HUSK_TRY(take_turn(on, error));
  HUSK_TRY(write_segment(frame, 0, writes, error));
  if (options.mode != HUSK_MODE_LIST && frame.graph.fits(frame.plan_hash)) {
    bool done = false;
    HUSK_TRY(frame.graph.run(frame, on, writes == Writes::none, &done, error));
    if (done) {
      ++frame.runs_as_graph;
      return Status::ok;
    }
  }
  frame.graph.fall_behind();
  HUSK_TRY(run_segment(frame, 0, on, error));
  for (uint32_t segment = 1; segment < frame.code.segments.size; ++segment) {
    HUSK_TRY(frame.enter(segment, error));
    HUSK_TRY(frame.bind_outputs(outputs, output_count, segment, error));
    HUSK_TRY(frame.check_overlaps(error));
    frame.place_values();
    HUSK_TRY(frame.check_segment(segment, error));
    HUSK_TRY(write_segment(frame, segment, writes, error));
    HUSK_TRY(run_segment(frame, segment, on, error));
  }
  ++frame.runs_as_list;
  return Status::ok;
}
