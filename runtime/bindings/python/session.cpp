#include "session.h"

#include <cstring>

#include "call.h"
#include "error.h"

namespace husk::python {
namespace {

PyObject* session_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  Session& session = *nb::inst_ptr<Session>(self);
  return call_slot(*session.program, session.state.get(), session.program->called_function, args,
                   kwargs);
}
PyType_Slot session_slots[] = {{Py_tp_call, reinterpret_cast<void*>(&session_call)}, {0, nullptr}};

// A function of a program, or of a session.
struct Function {
  Function(nb::object owner, uint32_t number) : owner_object(std::move(owner)), index(number) {
    if (nb::isinstance<Session>(owner_object)) {
      Session* of = nb::inst_ptr<Session>(owner_object);
      program = of->program;
      session = of->state.get();
    } else {
      program = nb::cast<Program*>(owner_object);
    }
  }

  nb::object owner_object;  // keeps both
  uint32_t index;
  Program* program = nullptr;
  SessionState* session = nullptr;
};

PyObject* function_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  const Function& function = *nb::inst_ptr<Function>(self);
  return call_slot(*function.program, function.session, function.index, args, kwargs);
}
PyType_Slot function_slots[] = {{Py_tp_call, reinterpret_cast<void*>(&function_call)},
                                {0, nullptr}};

// Memory of an object of Python, for the length of a call.
class Bytes {
 public:
  Bytes(nb::handle object, bool writable) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0)
      throw nb::python_error();
  }
  ~Bytes() { PyBuffer_Release(&buffer_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  void* data() const { return buffer_.buf; }
  uint64_t size() const { return static_cast<uint64_t>(buffer_.len); }

 private:
  Py_buffer buffer_ = {};
};

// Compares the size of memory with that of a state.
void check_size(const Session& session, uint32_t state, uint64_t bytes) {
  husk_storage_info info = HUSK_STORAGE_INFO_INIT;
  check([&](husk_error* error) {
    return husk_program_state(session.program->handle(), state, &info, error);
  });
  if (bytes != info.bytes)
    throw_invalid_input("state '%s' has %llu bytes, the memory for it has %llu", info.name,
                        static_cast<unsigned long long>(info.bytes),
                        static_cast<unsigned long long>(bytes));
}

void state_get(Session& session, uint32_t state, nb::object memory) {
  Bytes bytes(memory, true);
  check_size(session, state, bytes.size());
  check_unlocked([&](husk_error* error) {
    return husk_session_state_get(session.state->handle, state, bytes.data(), error);
  });
}

void state_set(Session& session, uint32_t state, nb::object memory) {
  Bytes bytes(memory, false);
  check_size(session, state, bytes.size());
  check_unlocked([&](husk_error* error) {
    return husk_session_state_set(session.state->handle, state, bytes.data(), error);
  });
}

void state_reset(Session& session, uint32_t state) {
  check_unlocked([&](husk_error* error) {
    return husk_session_state_reset(session.state->handle, state, error);
  });
}

void state_copy(Session& session, uint32_t state, const Session& from) {
  check_unlocked([&](husk_error* error) {
    return husk_session_state_copy(session.state->handle, state, from.state->handle, error);
  });
}

nb::dict stats(const Session& session, uint32_t function) {
  husk_session_stats stats = HUSK_SESSION_STATS_INIT;
  check([&](husk_error* error) {
    return husk_session_stats_get(session.state->handle, function, &stats, error);
  });
  nb::dict out;
  out["steps"] = stats.steps;
  out["segments"] = stats.segments;
  out["graph_nodes"] = stats.graph_nodes;
  out["graph_edges"] = stats.graph_edges;
  out["programmatic_edges"] = stats.programmatic_edges;
  out["bounded"] = stats.bounded != 0;
  out["dynamic"] = stats.dynamic != 0;
  out["arena_bytes"] = stats.arena_bytes;
  out["arena_lower_bound"] = stats.arena_lower_bound;
  out["dynamic_bytes"] = stats.dynamic_bytes;
  out["runs_as_graph"] = stats.runs_as_graph;
  out["runs_as_list"] = stats.runs_as_list;
  out["nodes_patched"] = stats.nodes_patched;
  return out;
}

// Sets the fields of husk_session_options that `numbers` names.
void set_options(husk_session_options& options, nb::dict numbers) {
  for (auto [key, value] : numbers) {
    const std::string name = nb::cast<std::string>(key);
    const auto number = nb::cast<int64_t>(value);
    if (name == "mode")
      options.mode = static_cast<int32_t>(number);
    else if (name == "full_edges")
      options.full_edges = static_cast<int32_t>(number);
    else if (name == "poison_memory")
      options.poison_memory = static_cast<int32_t>(number);
    else if (name == "parallel_memory_percent")
      options.parallel_memory_percent = static_cast<int32_t>(number);
    else if (name == "copy_misaligned")
      options.copy_misaligned = static_cast<int32_t>(number);
    else if (name == "bound_limit")
      options.bound_limit = static_cast<uint64_t>(number);
    else if (name == "memory_limit")
      options.memory_limit = static_cast<uint64_t>(number);
    else if (name == "loop_limit")
      options.loop_limit = static_cast<uint64_t>(number);
    else if (name == "external_arena")
      options.external_arena = static_cast<int32_t>(number);
    else
      throw nb::type_error(("a session has no option '" + name + "'").c_str());
  }
}

}  // namespace

SessionState::SessionState(Program& program, const husk_session_options& options)
    : program_(program), frames_(program.functions().size()) {
  check_unlocked([&](husk_error* error) {
    return husk_session_create(program.handle(), &options, &handle, error);
  });
}

SessionState::~SessionState() {
  nb::gil_scoped_release unlocked;
  husk_session_release(handle);
}

Frame& SessionState::frame(uint32_t function) {
  std::unique_ptr<Frame>& frame = frames_[function];
  if (!frame) {
    const FunctionInfo& info = program_.functions()[function];
    frame = std::make_unique<Frame>();
    frame->leaves.resize(info.inputs.size());
    frame->inputs.resize(info.inputs.size());
    frame->outputs.resize(info.outputs.size());
    frame->views = std::make_unique<View[]>(info.inputs.size());
    frame->results.resize(info.outputs.size());
  }
  return *frame;
}

void SessionState::forget_shapes() {
  for (std::unique_ptr<Frame>& frame : frames_)
    if (frame) frame->shaped = false;
}

BusyScope::BusyScope(SessionState& session) : session_(session) {
  if (session.busy) {
    husk_error error = {HUSK_INVALID_ARGUMENT, 0, -1, {0}};
    strcpy(error.text,
           "another call is using the session: call it after that one, or use a session for each "
           "thread");
    throw_error(error);
  }
  session.busy = true;
}

void bind_session(nb::module_& module) {
  nb::class_<Session>(module, "Session", nb::type_slots(session_slots))
      .def(
          "__init__",
          [](Session* self, nb::object program, nb::dict options) {
            auto* of = nb::cast<Program*>(program);
            husk_session_options all = of->options;
            set_options(all, options);
            new (self) Session{program, of, std::make_unique<SessionState>(*of, all)};
          },
          nb::arg("program"), nb::arg("options"))
      .def("set_range",
           [](Session& self, uint32_t function, uint32_t input, uint32_t dim, int64_t min,
              int64_t max) {
             check_unlocked([&](husk_error* error) {
               return husk_session_set_range(self.state->handle, function, input, dim, min, max,
                                             error);
             });
             self.state->forget_shapes();
           })
      .def("wait",
           [](Session& self) {
             check_unlocked(
                 [&](husk_error* error) { return husk_session_wait(self.state->handle, error); });
           })
      .def("set_arena",
           [](Session& self, uintptr_t address, uint64_t bytes) {
             check_unlocked([&](husk_error* error) {
               return husk_session_set_arena(self.state->handle, reinterpret_cast<void*>(address),
                                             bytes, error);
             });
             // A resize makes the graph, if the arena is large enough.
             self.state->forget_shapes();
           })
      .def("set_output_limit",
           [](Session& self, uint64_t bytes) { self.state->output_limit = bytes; })
      .def_prop_ro("arena_bytes",
                   [](const Session& self) { return husk_session_arena_bytes(self.state->handle); })
      .def("state_get", &state_get)
      .def("state_set", &state_set)
      .def("state_reset", &state_reset)
      .def("state_copy", &state_copy)
      .def("stats", &stats);
  nb::class_<Function>(module, "Function", nb::type_slots(function_slots))
      .def(nb::init<nb::object, uint32_t>(), nb::arg("owner"), nb::arg("index"))
      .def_ro("index", &Function::index);
}

}  // namespace husk::python
