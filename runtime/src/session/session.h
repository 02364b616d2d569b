// One concurrent user of a program: its state, its arena, the frames of its functions.
#pragma once

#include "program/program.h"
#include "session/frame.h"
#include "session/step_timer.h"

namespace husk::runtime {

enum class StateWork { get, set, reset, copy };

// Memory of a session on one device, where its runs place buffers. `memory` is null if no function
// needs it.
struct Arena {
  void* memory;
  uint64_t bytes;
};

struct Session {
  Program* program = nullptr;
  husk_session_options options = {};
  Array<Frame*> frames;    // by function
  Array<uint8_t*> states;  // device address, by state
  // Shared with kernels: the number of an assert that failed, 0 if none has. Null if the program
  // has no asserts.
  volatile uint32_t* assert_flag = nullptr;
  void* state_memory = nullptr;
  ByDevice<Arena> arenas = {};
  uint64_t arena_wanted = 0;      // bytes of the largest plan for the device so far
  uint64_t scratch_bytes = 0;     // memory outside of the arenas
  void* op_scratch = nullptr;     // of Program::op_scratch bytes, at a multiple of 64
  uint64_t arena_generation = 1;  // grows when an arena, or a constant, moves
  RunGate::Caller caller;         // the session's place at the gate of its program

  ~Session();

  // Makes the session one of the program's, whose calls enter its gate.
  void join(Program* of);
  // Makes the frames of the functions [first, end) that run on the device, the state and the arena,
  // in a call that is inside the gate. `options` must be set.
  Status prepare(uint32_t first, uint32_t end, husk_error* error);
  // Narrows the range of a size, or of an integer input.
  Status set_range(uint32_t function, uint32_t input, uint32_t dim, int64_t min, int64_t max,
                   husk_error* error);
  // Makes memory, graph and operators ready for runs with the shapes of `inputs`.
  Status resize(uint32_t function, const husk_value* inputs, uint32_t n, husk_error* error);
  Status run(uint32_t function, void* on, const husk_value* inputs, uint32_t input_count,
             husk_value* outputs, uint32_t output_count, husk_error* error);
  // Waits for the last run. Fails if an assert of one of its kernels failed.
  Status wait(husk_error* error);
  // Marks the end of the work that the stream of the last run has, and waits for the work before a
  // mark as `wait` does for all work.
  Status mark(uint32_t number, husk_error* error);
  Status wait_mark(uint32_t number, husk_error* error);
  // Waits for the work that a run has enqueued so far. The run goes on.
  Status wait_within_run(husk_error* error);
  Status set_arena(void* memory, uint64_t bytes, husk_error* error);
  // `other` is host memory that is written (get) or read (set), the Session to copy from (copy), or
  // null (reset).
  Status work_on_state(uint32_t state, StateWork work, void* other, husk_error* error);

  // Makes a scratch buffer at least `bytes` large. Its content is lost if it grows. `purpose` is
  // for messages.
  Status grow(ScratchBuffer* buffer, uint64_t bytes, const char* purpose, husk_error* error);
  void release(ScratchBuffer* buffer);

  // Returns whether the application captures the stream of the run in progress.
  bool is_capturing() const { return capturing_; }
  const husk_port* port() const { return program->engine->port; }
  void* device() const { return entered_ ? entered_ : program->engine->device; }
  const husk_allocator& allocator() const { return program->engine->allocator; }
  // Asks the application whether the run goes on.
  Status check_cancel(husk_error* error) const {
    const husk_engine_options& engine = program->engine->options;
    return engine.cancel && engine.cancel(engine.cancel_user) ? cancelled(error) : Status::ok;
  }

 private:
  class RunScope;

  // Fails if an assert of a kernel has failed since the last call.
  Status check_asserts(husk_error* error);
  Status prepare_states(husk_error* error);
  Status prepare_op_scratch(husk_error* error);
  Status check_limit(uint64_t bytes, const char* purpose, husk_error* error) const;
  Status wait_for_default_stream(husk_error* error);
  void destroy_frame(Frame* frame);
  Status allocate_memory(Device where, uint64_t bytes, const char* purpose, void** out,
                         husk_error* error);
  void free_memory(Device where, void* memory);
  Status grow_arenas(const ByDevice<Planned>& planned, husk_error* error);
  Status replace_arena(Device where, uint64_t bytes, husk_error* error);
  // Whether the arena on `where` is memory of the application.
  bool is_external(Device where) const { return options.external_arena && where == Device::target; }
  // Bytes that options.memory_limit limits.
  uint64_t used_bytes() const {
    uint64_t bytes = scratch_bytes;
    for (Device device : kDevices) bytes += arenas[device].bytes;
    return bytes;
  }
  Status check_arenas(const MemoryPlan& memory, husk_error* error) const;
  void follow_constants();
  Status check_capture(const Frame& frame, void* on, husk_error* error);
  Status prepare_plan(Frame& frame, bool may_allocate, bool* nothing_changed, husk_error* error);
  Status order_after_previous_run(void* on, husk_error* error);
  Status launch(Frame& frame, bool nothing_changed, void* on, husk_value* outputs,
                uint32_t output_count, husk_error* error);
  Status run_segment(Frame& frame, uint32_t segment, bool nothing_changed, void* on,
                     bool* any_graph, husk_error* error);
  Status begin_segment(Frame& frame, uint32_t segment, husk_value* outputs, uint32_t output_count,
                       husk_error* error);
  static Status cancelled(husk_error* error);
  Status run_steps(Frame& frame, uint32_t begin, uint32_t end, void* on, husk_error* error);
  Status run_traced(Frame& frame, uint32_t begin, uint32_t end, void* on, husk_error* error);
  // Tells the application that a step is done.
  void report(const Frame& frame, uint32_t step, uint64_t nanoseconds, int32_t clock) const;

  // The events of marks; null if a mark was never set.
  void* marks_[HUSK_SESSION_MARKS] = {};

  StepTimer timer_;              // for options.trace
  uint64_t constants_seen_ = 0;  // ConstantStore::version() that arena_generation is for
  void* stream_ = nullptr;       // of the last run
  void* entered_ = nullptr;      // handle of the device during a run that has entered it
  bool running_ = false;         // the last run may still be in progress
  bool capturing_ = false;       // the application captures the stream of the run
  bool default_busy_ = false;    // work on states may be in progress on the default stream
};

}  // namespace husk::runtime

struct husk_session : husk::runtime::Session {};
