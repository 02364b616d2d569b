// One concurrent user of a program: its state, its arena, the frames of its functions.
#pragma once

#include "frame.h"

#include <atomic>

namespace husk {
enum class StateWork { get, set, reset, copy };
}

struct husk_session {
  husk_program* program = nullptr;
  husk_session_options options = {};
  husk::Array<husk::Frame*> frames;      // by function
  husk::Array<uint8_t*> states;          // device address, by state
  volatile uint32_t* failed_assert = nullptr;   // shared with kernels: the number of one that failed, 0 if none has; may be null
  void* state_memory = nullptr;
  void* arena = nullptr;
  uint64_t arena_bytes = 0;
  uint64_t arena_wanted = 0;             // the largest plan so far
  uint64_t room_bytes = 0;               // outside the arena
  uint64_t layout = 1;                   // grows with each new arena
  uint64_t constants_seen = 0;           // the program's version of its constants that `layout` speaks of
  void* stream = nullptr;                // of the last run
  void* entered = nullptr;               // the device, as a run under way has entered it
  bool running = false;                  // that run may still be under way
  bool default_busy = false;             // so may work on state, on the default stream
  // For husk_program_update_constants: whether a call is in here, and the program's list of its sessions.
  std::atomic<uint32_t> busy{0};
  husk_session *next = nullptr, *previous = nullptr;
  husk::Sink sink;

  ~husk_session();

  husk::Status prepare(husk_error* error);
  husk::Status bound(uint32_t function, uint32_t input, uint32_t dim, int64_t min, int64_t max, husk_error* error);
  husk::Status resize(uint32_t function, const husk_value* inputs, uint32_t count, husk_error* error);
  husk::Status run(uint32_t function, void* stream, const husk_value* inputs, uint32_t input_count, husk_value* outputs,
                   uint32_t output_count, husk_error* error);
  husk::Status wait(husk_error* error);
  husk::Status lend_arena(void* memory, uint64_t bytes, husk_error* error);
  // `other`: host memory that is written (get) or read (set), the husk_session to copy from, or null (reset).
  husk::Status work_on_state(uint32_t state, husk::StateWork work, void* other, husk_error* error);
  // Device memory outside the arena, at least `bytes`; its content is lost where it grows. `what` is for messages.
  husk::Status reserve(husk::Room* room, uint64_t bytes, const char* what, husk_error* error);
  void drop(husk::Room* room);

  const husk_port* port() const { return program->engine->port; }
  void* device() const { return entered ? entered : program->engine->device; }
  const husk_allocator& allocator() const { return program->engine->allocator; }

 private:
  husk::Status settle_default(husk_error* error);
  void discard(husk::Frame* frame);
  husk::Status allocate(uint64_t bytes, const char* what, void** out, husk_error* error);
  husk::Status reserve_arena(uint64_t bytes, husk_error* error);
  husk::Status take_turn(void* on, husk_error* error);
  void follow_constants();
  // What of a frame's arguments the next run must write.
  enum class Writes { dynamic, none };
  husk::Status settle(husk::Frame& frame, bool may_allocate, Writes* writes, husk_error* error);
  husk::Status run_entered(husk::Frame& frame, Writes writes, void* on, husk_value* outputs, uint32_t output_count,
                           husk_error* error);
  husk::Status run_settled(husk::Frame& frame, Writes writes, void* on, husk_value* outputs, uint32_t output_count,
                           husk_error* error);
  husk::Status run_segments(husk::Frame& frame, void* on, husk_value* outputs, uint32_t output_count,
                            husk_error* error);
  husk::Status run_segment(husk::Frame& frame, uint32_t segment, void* on, husk_error* error);
  husk::Status run_traced(husk::Frame& frame, uint32_t step, void* on, husk_error* error);
  husk::Status write_segment(husk::Frame& frame, uint32_t segment, Writes writes, husk_error* error);
  husk::Status copy_inputs(husk::Frame& frame, bool back, void* on, husk_error* error);
};

namespace husk {

// Keeps husk_program_update_constants out while a call works on a session.
class Visit {
 public:
  explicit Visit(husk_session* session);
  ~Visit() { session_->busy.store(0, std::memory_order_release); }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  husk_session* session_;
};

}  // namespace husk
