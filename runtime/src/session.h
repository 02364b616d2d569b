// One concurrent user of a program: its state, its arena, the frames of its functions.
#pragma once

#include "frame.h"

struct husk_session {
  husk_program* program;
  husk_session_options options;
  husk::Array<husk::Frame*> frames;      // by function
  husk::Array<uint8_t*> states;          // device address, by state
  void* state_memory = nullptr;
  void* arena = nullptr;
  uint64_t arena_bytes = 0;
  uint64_t layout = 1;                   // grows with each new arena
  void* stream = nullptr;                // of the last run
  bool running = false;                  // that run may still be under way
  bool default_busy = false;             // so may work on state, on the default stream

  husk_session(husk_program* p, const husk_session_options& o) : program(p), options(o) { p->references.retain(); }
  ~husk_session();

  husk::Status prepare(husk_error* error);
  husk::Status resize(uint32_t function, const husk_value* inputs, uint32_t count, husk_error* error);
  husk::Status run(uint32_t function, void* stream, const husk_value* inputs, uint32_t input_count, husk_value* outputs,
                   uint32_t output_count, husk_error* error);
  husk::Status wait(husk_error* error);
  husk::Status reset_state(uint32_t state, husk_error* error);
  husk::Status set_state(uint32_t state, const void* bytes, husk_error* error);

  const husk_port* port() const { return program->engine->port; }
  void* device() const { return program->engine->device; }
  const husk_allocator& allocator() const { return program->engine->allocator; }

 private:
  husk::Status settle_default(husk_error* error);
  husk::Status reserve_arena(uint64_t bytes, husk_error* error);
  husk::Status take_turn(void* on, husk_error* error);
  // What of a frame's arguments the next run must write.
  enum class Writes { all, dynamic, none };
  husk::Status settle(husk::Frame& frame, bool may_allocate, Writes* writes, husk_error* error);
  husk::Status run_settled(husk::Frame& frame, Writes writes, void* on, husk_value* outputs, uint32_t output_count,
                           husk_error* error);
  husk::Status run_segment(husk::Frame& frame, uint32_t segment, void* on, husk_error* error);
  husk::Status write_segment(husk::Frame& frame, uint32_t segment, Writes writes, husk_error* error);
};
