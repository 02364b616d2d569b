// A loaded artifact.
#ifndef HUSK_PYTHON_PROGRAM_H
#define HUSK_PYTHON_PROGRAM_H

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <husk/husk.h>

#include "engine.h"
#include "object.h"
#include "tree.h"
#include "view.h"

namespace husk::python {

namespace nb = nanobind;

class SessionState;

// How the values of a function nest.
struct Nesting {
  // Positional and keyword arguments. A positional argument that is one value may also be passed by
  // its name.
  std::vector<Tree> positional;
  std::vector<nb::object> positional_names;  // None: the argument has no name
  Tree keywords, results;
};

// The signature of a function.
struct FunctionInfo {
  struct Value {
    std::string name;  // for messages
    nb::object key;    // the name as a str
    int32_t kind;
    husk_dtype dtype;
    int32_t rank;
    uint32_t alignment;
    bool on_host;  // it lies on the CPU, although the program may run on another device
    Access access;
  };
  std::string name;
  std::vector<Value> inputs, outputs;
  std::shared_ptr<const Nesting> nesting;  // null until Program::set_trees
};

class Program {
 public:
  // `source` is the path of a file, or an object with the buffer protocol.
  // `weights` is the folder of weights that lie beside the artifact, or None.
  Program(nb::object engine, nb::object source, nb::object weights);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Sets how the values of a function nest, for calls that begin later: the shapes of Tree::read.
  void set_trees(uint32_t function, nb::tuple positional, nb::dict keywords, nb::object results);

  // The options of sessions that calls of the program itself use, and of new sessions.
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  std::atomic<uint32_t> called_function = 0;  // the function that a call of the program runs

  // A session for one call: an idle one, or a new one. A program with states has one session, since
  // its calls share the states.
  SessionState* take_session();
  void give_back(SessionState* session);

  husk_program* handle() const { return handle_; }
  Engine& engine() const { return *engine_; }
  uint32_t function_count() const { return static_cast<uint32_t>(functions_.size()); }
  // Returns the signature of a function. Throws if there is no such function.
  const FunctionInfo& function(uint32_t index) const;
  // Returns how its values nest. Throws if that has not been set.
  std::shared_ptr<const Nesting> nesting(uint32_t function) const;
  bool has_states() const { return husk_program_state_count(handle_) > 0; }

 private:
  void describe_functions();
  SessionState* take_idle();

  nb::object engine_object_;
  Engine* engine_;
  husk_program* handle_ = nullptr;
  std::vector<FunctionInfo> functions_;
  mutable nb::ft_mutex mutex_;  // of `idle_` and of FunctionInfo::nesting
  std::vector<std::unique_ptr<SessionState>> idle_;
};

// Adds the classes of program.h to the module.
void bind_program(nb::module_& module);

}  // namespace husk::python

#endif
