// The state and memory of one user of a program.
#ifndef HUSK_PYTHON_SESSION_H
#define HUSK_PYTHON_SESSION_H

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>
#include <vector>

#include <husk/husk.h>

#include "../prepared_inputs.h"
#include "program.h"
#include "result.h"
#include "view.h"

namespace husk::python {

namespace nb = nanobind;

// What a call of a function needs, made once for a session.
struct Frame {
  std::vector<nb::object> leaves;  // by the number of the input, during a call
  std::vector<husk_value> inputs, outputs;
  std::unique_ptr<View[]> views;  // of the inputs
  std::vector<Result> results;
  bindings::PreparedInputs prepared;  // the shapes of the results are those for them
};

// A husk_session and its frames. One call at a time uses it.
class SessionState {
 public:
  SessionState(Program& program, const husk_session_options& options);
  ~SessionState();
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  Frame& frame(uint32_t function);
  // Makes memory of the caller the arena, which stays alive and in its place until the next call or
  // the end of the session; None takes back the memory that was lent.
  void set_arena(nb::object memory);
  // Makes the next call of each function ask for the shapes of its results.
  void forget_shapes();

  husk_session* handle = nullptr;
  std::atomic<bool> busy = false;
  // The bytes that a call may allocate for its results.
  std::atomic<uint64_t> output_limit = UINT64_MAX;

 private:
  // The arena of the caller.
  struct Arena {
    nb::object object;
    View view;
  };

  const Program& program_;
  std::unique_ptr<Arena> arena_;
  std::vector<std::unique_ptr<Frame>> frames_;
};

// Marks a session as used by a call, and refuses a second one.
class BusyScope {
 public:
  explicit BusyScope(SessionState& session);
  ~BusyScope() { session_.busy = false; }
  BusyScope(const BusyScope&) = delete;
  BusyScope& operator=(const BusyScope&) = delete;

 private:
  SessionState& session_;
};

// husk.Session.
struct Session {
  Session(nb::object object, Program& of, const husk_session_options& options)
      : program_object(std::move(object)), program(&of), state(of, options) {}

  nb::object program_object;  // keeps the program
  Program* program;
  SessionState state;
};

// Adds the classes of session.h to the module.
void bind_session(nb::module_& module);

}  // namespace husk::python

#endif
