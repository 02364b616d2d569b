// A loaded artifact.
#ifndef HUSK_PYTHON_PROGRAM_H
#define HUSK_PYTHON_PROGRAM_H

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include <husk/husk.h>

#include "engine.h"
#include "tree.h"

namespace husk::python {

namespace nb = nanobind;

class SessionState;

// The signature of a function.
struct FunctionInfo {
  struct Value {
    std::string name;
    int32_t kind;
    husk_dtype dtype;
    int32_t rank;
    uint32_t alignment;
    bool on_host;  // it lies on the CPU, although the program may run on another device
  };
  std::string name;
  std::vector<Value> inputs, outputs;
  // Positional and keyword arguments. A positional argument that is one value may also be passed by
  // its name.
  std::vector<Tree> positional;
  std::vector<nb::object> positional_names;  // None: the argument has no name
  Tree keywords, results;
};

class Program {
 public:
  // `source` is the path of a file, or an object with the buffer protocol.
  Program(nb::object engine, nb::object source);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Sets how the values of a function nest: the shapes of Tree::read.
  void set_trees(uint32_t function, nb::tuple positional, nb::dict keywords, nb::object results);

  // The options of sessions that calls of the program itself use, and of new sessions.
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  uint32_t called_function = 0;  // the function that a call of the program runs

  // A session for one call: an idle one, or a new one. A program with states has one session, since
  // its calls share the states.
  SessionState* take_session();
  void give_back(SessionState* session);

  husk_program* handle() const { return handle_; }
  Engine& engine() const { return *engine_; }
  const std::vector<FunctionInfo>& functions() const { return functions_; }
  bool has_states() const { return husk_program_state_count(handle_) > 0; }

 private:
  nb::object engine_object_;
  Engine* engine_;
  husk_program* handle_ = nullptr;
  std::vector<FunctionInfo> functions_;
  std::vector<std::unique_ptr<SessionState>> idle_;
};

// Adds the classes of program.h to the module.
void bind_program(nb::module_& module);

}  // namespace husk::python

#endif
