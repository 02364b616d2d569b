#include "session.h"

#include <cstring>

#include "bytes.h"
#include "call.h"
#include "error.h"
#include "object.h"
#include "text.h"

namespace husk::python {
namespace {

using SessionObject = Held<Session>;

PyObject* session_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  return call_slot(
      [](PyObject* object) {
        Session& session = held<Session>(object);
        return Callee{session.program, &session.state, session.program->called_function};
      },
      self, args, kwargs);
}
PyType_Slot session_slots[] = {{Py_tp_call, reinterpret_cast<void*>(&session_call)}, {0, nullptr}};

// A function of a program, or of a session.
struct Function {
  Function(nb::object owner, uint32_t number) : owner_object(std::move(owner)), index(number) {
    if (nb::isinstance<SessionObject>(owner_object)) {
      Session& of = held<Session>(owner_object);
      program = of.program;
      session = &of.state;
    } else {
      program = &held<Program>(owner_object);
    }
    (void)program->function(index);
  }

  nb::object owner_object;  // keeps both
  uint32_t index;
  Program* program = nullptr;
  SessionState* session = nullptr;
};
using FunctionObject = Held<Function>;

PyObject* function_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  return call_slot(
      [](PyObject* object) {
        const Function& function = held<Function>(object);
        return Callee{function.program, function.session, function.index};
      },
      self, args, kwargs);
}
PyType_Slot function_slots[] = {{Py_tp_call, reinterpret_cast<void*>(&function_call)},
                                {0, nullptr}};

// Compares the size of memory with that of a state.
void check_size(const Session& session, uint32_t state, uint64_t bytes) {
  husk_storage_info info = HUSK_STORAGE_INFO_INIT;
  check([&](husk_error* error) {
    return husk_program_state(session.program->handle(), state, &info, error);
  });
  if (bytes != info.bytes)
    throw_invalid_input("state '%s' has %llu bytes, the memory for it has %llu",
                        printable(info.name).c_str(), static_cast<unsigned long long>(info.bytes),
                        static_cast<unsigned long long>(bytes));
}

void state_get(SessionObject& object, uint32_t state, nb::object memory) {
  Session& session = *object.value;
  Bytes bytes(memory, true);
  check_size(session, state, bytes.size());
  BusyScope busy(session.state);
  check_unlocked([&](husk_error* error) {
    return husk_session_state_get(session.state.handle, state, bytes.data(), error);
  });
}

void state_set(SessionObject& object, uint32_t state, nb::object memory) {
  Session& session = *object.value;
  Bytes bytes(memory, false);
  check_size(session, state, bytes.size());
  BusyScope busy(session.state);
  check_unlocked([&](husk_error* error) {
    return husk_session_state_set(session.state.handle, state, bytes.data(), error);
  });
}

void state_reset(SessionObject& object, uint32_t state) {
  SessionState& session = object.value->state;
  BusyScope busy(session);
  check_unlocked(
      [&](husk_error* error) { return husk_session_state_reset(session.handle, state, error); });
}

void state_copy(SessionObject& object, uint32_t state, const SessionObject& source) {
  SessionState &session = object.value->state, &from = source.value->state;
  if (&session == &from) return;
  BusyScope busy(session), busy_from(from);  // no other thread may use either of them
  check_unlocked([&](husk_error* error) {
    return husk_session_state_copy(session.handle, state, from.handle, error);
  });
}

nb::dict stats(const SessionObject& object, uint32_t function) {
  husk_session_stats stats = HUSK_SESSION_STATS_INIT;
  check([&](husk_error* error) {
    return husk_session_stats_get(object.value->state.handle, function, &stats, error);
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

// The bytes of a contiguous tensor. Throws if they do not fit into 64 bits.
uint64_t bytes_of(const DLTensor& tensor) {
  uint64_t bytes = uint64_t{tensor.dtype.bits} * tensor.dtype.lanes / 8;
  for (int32_t d = 0; d < tensor.ndim; ++d)
    if (tensor.shape[d] < 0 ||
        __builtin_mul_overflow(bytes, static_cast<uint64_t>(tensor.shape[d]), &bytes))
      throw_invalid_input("the memory for the arena has a size that is not possible");
  return bytes;
}

// Refuses memory that a session cannot have as its arena.
void check_arena(const DLTensor& tensor, const Engine& engine) {
  int64_t expected = 1;
  for (int32_t d = tensor.ndim; d-- > 0;) {
    if (tensor.strides && tensor.shape[d] > 1 && tensor.strides[d] != expected)
      throw_invalid_input("the memory for the arena is not contiguous: lend a tensor that is");
    (void)__builtin_mul_overflow(expected, tensor.shape[d], &expected);
  }
  const husk_port_properties& own = engine.properties();
  if (tensor.device.device_type != static_cast<DLDeviceType>(own.dl_device_type) ||
      (tensor.device.device_type != kDLCPU && tensor.device.device_id != own.device_index))
    throw_invalid_input("the memory for the arena does not lie on the device of the program");
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
    : program_(program), frames_(program.function_count()) {
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
    const FunctionInfo& info = program_.function(function);
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
    if (frame) frame->prepared.forget();
}

BusyScope::BusyScope(SessionState& session) : session_(session) {
  if (session.busy.exchange(true)) {
    husk_error error = {HUSK_INVALID_ARGUMENT, 0, -1, {0}};
    strcpy(error.text,
           "another call is using the session: call it after that one, or use a session for each "
           "thread");
    throw_error(error);
  }
}

void SessionState::set_arena(nb::object memory) {
  std::unique_ptr<Arena> arena;
  void* address = nullptr;
  uint64_t bytes = 0;
  if (!memory.is_none()) {
    arena = std::make_unique<Arena>();
    arena->object = memory;
    if (!exchange_api(memory.ptr()) && !PyObject_CheckBuffer(memory.ptr()) &&
        nb::hasattr(memory, "data_ptr")) {
      address = reinterpret_cast<void*>(nb::cast<uintptr_t>(memory.attr("data_ptr")()));
      bytes = nb::cast<uint64_t>(memory.attr("nbytes"));
    } else {
      arena->view.keep(memory.ptr(), Access::write, "memory", "arena");
      const DLTensor& tensor = arena->view.tensor;
      check_arena(tensor, program_.engine());
      address = static_cast<char*>(tensor.data) + tensor.byte_offset;
      bytes = bytes_of(tensor);
    }
  }
  BusyScope scope(*this);
  check_unlocked(
      [&](husk_error* error) { return husk_session_set_arena(handle, address, bytes, error); });
  arena_.swap(arena);
  // A resize makes the graph, if the arena is large enough.
  forget_shapes();
}

void bind_session(nb::module_& module) {
  nb::class_<SessionObject>(module, "Session", nb::type_slots(session_slots))
      .def(
          "__init__",
          [](nb::pointer_and_handle<SessionObject> self, nb::object program, nb::dict options) {
            Program& of = held<Program>(program);
            husk_session_options all = of.options;
            set_options(all, options);
            initialise(self, std::make_unique<Session>(std::move(program), of, all));
          },
          nb::arg("program"), nb::arg("options"))
      .def("set_range",
           [](SessionObject& self, uint32_t function, uint32_t input, uint32_t dim, int64_t min,
              int64_t max) {
             SessionState& session = self.value->state;
             BusyScope busy(session);
             check_unlocked([&](husk_error* error) {
               return husk_session_set_range(session.handle, function, input, dim, min, max, error);
             });
             session.forget_shapes();
           })
      .def("wait",
           [](SessionObject& self) {
             check_unlocked([&](husk_error* error) {
               return husk_session_wait(self.value->state.handle, error);
             });
           })
      .def(
          "set_arena",
          [](SessionObject& self, nb::object memory) {
            self.value->state.set_arena(std::move(memory));
          },
          nb::arg("memory").none())
      .def("set_output_limit",
           [](SessionObject& self, uint64_t bytes) { self.value->state.output_limit = bytes; })
      .def_prop_ro("arena_bytes",
                   [](const SessionObject& self) {
                     return husk_session_arena_bytes(self.value->state.handle);
                   })
      .def("state_get", &state_get)
      .def("state_set", &state_set)
      .def("state_reset", &state_reset)
      .def("state_copy", &state_copy)
      .def("stats", &stats);
  nb::class_<FunctionObject>(module, "Function", nb::type_slots(function_slots))
      .def(
          "__init__",
          [](nb::pointer_and_handle<FunctionObject> self, nb::object owner, uint32_t index) {
            initialise(self, std::make_unique<Function>(std::move(owner), index));
          },
          nb::arg("owner"), nb::arg("index"))
      .def_prop_ro("index", [](const FunctionObject& self) { return self.value->index; });
}

}  // namespace husk::python
