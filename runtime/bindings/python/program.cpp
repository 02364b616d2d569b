#include "program.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <husk/weights.h>

#include "bytes.h"
#include "call.h"
#include "error.h"
#include "session.h"
#include "text.h"

namespace husk::python {
namespace {

// Whether nobody changes the bytes of a buffer: read-only memory, and an mmap, whose user keeps
// that promise.
bool is_constant(nb::handle object, const Py_buffer& buffer) {
  if (buffer.readonly) return true;
  nb::object mmap = nb::module_::import_("mmap").attr("mmap");
  return nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()))).is(mmap);
}

// Bytes of Python that a program borrows, at an address that is a multiple of 64: the object's own
// memory if that is constant and so aligned, otherwise a copy.
class SourceBytes {
 public:
  static constexpr size_t kAlign = 64;

  explicit SourceBytes(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) != 0) throw nb::python_error();
    data_ = buffer_.buf;
    try {
      if (reinterpret_cast<uintptr_t>(data_) % kAlign == 0 && is_constant(object, buffer_)) return;
    } catch (...) {
      PyBuffer_Release(&buffer_);
      throw;
    }
    const auto bytes = static_cast<size_t>(buffer_.len);
    copy_ = std::aligned_alloc(kAlign, (bytes + kAlign) / kAlign * kAlign);
    if (!copy_) {
      PyBuffer_Release(&buffer_);
      throw std::bad_alloc();
    }
    memcpy(copy_, data_, bytes);
    data_ = copy_;
    size_ = bytes;
    PyBuffer_Release(&buffer_);
  }
  ~SourceBytes() {
    if (copy_) {
      std::free(copy_);
    } else {
      nb::gil_scoped_acquire locked;
      PyBuffer_Release(&buffer_);
    }
  }
  SourceBytes(const SourceBytes&) = delete;
  SourceBytes& operator=(const SourceBytes&) = delete;

  const void* data() const { return data_; }
  size_t size() const { return copy_ ? size_ : static_cast<size_t>(buffer_.len); }

  // For husk_program_load.
  static void release(void* self, const void*) { delete static_cast<SourceBytes*>(self); }

 private:
  Py_buffer buffer_ = {};
  void* data_;
  void* copy_ = nullptr;
  size_t size_ = 0;
};

std::vector<FunctionInfo::Value> values(const husk_program* program, uint32_t function,
                                        uint32_t count,
                                        husk_status (*describe)(const husk_program*, uint32_t,
                                                                uint32_t, husk_value_info*,
                                                                husk_error*)) {
  std::vector<FunctionInfo::Value> out;
  for (uint32_t i = 0; i < count; ++i) {
    husk_value_info info = HUSK_VALUE_INFO_INIT;
    check([&](husk_error* error) { return describe(program, function, i, &info, error); });
    out.push_back({printable(info.name), to_str(info.name), info.kind, info.dtype, info.rank,
                   info.alignment, info.on_host != 0,
                   info.is_written ? Access::write : Access::read});
  }
  return out;
}

// Describes inputs or outputs for Python.
nb::list describe(const husk_program* program, uint32_t function, bool inputs) {
  nb::list out;
  const uint32_t count = inputs ? husk_program_input_count(program, function)
                                : husk_program_output_count(program, function);
  static const char* kinds[] = {"none", "tensor", "int", "float", "bool"};
  for (uint32_t i = 0; i < count; ++i) {
    husk_value_info info = HUSK_VALUE_INFO_INIT;
    check([&](husk_error* error) {
      return inputs ? husk_program_input(program, function, i, &info, error)
                    : husk_program_output(program, function, i, &info, error);
    });
    nb::dict value;
    value["name"] = to_str(info.name);
    value["kind"] = kinds[info.kind];
    if (info.kind == HUSK_VALUE_TENSOR) {
      value["dtype"] = husk_dtype_name(info.dtype);
      value["rank"] = info.rank;
      if (inputs) value["written"] = info.is_written != 0;
    }
    if (info.ranges) {
      nb::list ranges;
      const int32_t dims = info.kind == HUSK_VALUE_TENSOR ? info.rank : 1;
      for (int32_t d = 0; d < dims; ++d)
        ranges.append(nb::make_tuple(info.ranges[2 * d], info.ranges[2 * d + 1]));
      value["ranges"] = ranges;
    }
    out.append(value);
  }
  return out;
}

nb::dict describe_storage(const husk_storage_info& info) {
  nb::dict out;
  nb::list dims;
  for (int32_t d = 0; d < info.rank; ++d) dims.append(info.dims[d]);
  out["name"] = to_str(info.name);
  out["dtype"] = husk_dtype_name(info.dtype);
  out["shape"] = nb::tuple(dims);
  out["bytes"] = info.bytes;
  return out;
}

nb::list describe_all(const husk_program* program, uint32_t count,
                      husk_status (*query)(const husk_program*, uint32_t, husk_storage_info*,
                                           husk_error*)) {
  nb::list out;
  for (uint32_t i = 0; i < count; ++i) {
    husk_storage_info info = HUSK_STORAGE_INFO_INIT;
    check([&](husk_error* error) { return query(program, i, &info, error); });
    out.append(describe_storage(info));
  }
  return out;
}

// A path as the file system has it.
nb::object encoded(nb::handle path) {
  PyObject* out = nullptr;
  if (!PyUnicode_FSConverter(path.ptr(), &out)) throw nb::python_error();
  return nb::steal(out);
}

// Replaces parts of constants. Each entry of `parts` is (constant, offset in bytes, memory).
void update_constants(Program& program, nb::list parts) {
  std::vector<std::unique_ptr<Bytes>> memory;
  std::vector<husk_constant_part> entries;
  for (nb::handle part : parts) {
    const auto [constant, offset,
                object] = nb::cast<std::tuple<uint32_t, uint64_t, nb::object>>(part);
    memory.push_back(std::make_unique<Bytes>(object, false));
    entries.push_back({constant, 0, memory.back()->data(), offset, memory.back()->size()});
  }
  check_unlocked([&](husk_error* error) {
    return husk_program_update_constant_parts(program.handle(), entries.data(),
                                              static_cast<uint32_t>(entries.size()), error);
  });
}

PyObject* program_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  return call_slot(
      [](PyObject* object) {
        Program& program = held<Program>(object);
        return Callee{&program, nullptr, program.called_function};
      },
      self, args, kwargs);
}

PyType_Slot program_slots[] = {{Py_tp_call, reinterpret_cast<void*>(&program_call)}, {0, nullptr}};

}  // namespace

Program::Program(nb::object engine, nb::object source, nb::object weights)
    : engine_object_(std::move(engine)), engine_(&held<Engine>(engine_object_)) {
  options.copy_misaligned = 1;  // NumPy aligns its arrays to 16 bytes only
  options.stage_host_tensors = !engine_->on_host();
  Interrupt interrupt(nullptr);
  husk_error error = {};
  husk_status status;
  if (PyObject_CheckBuffer(source.ptr())) {
    auto bytes = std::make_unique<SourceBytes>(source);
    {
      nb::gil_scoped_release unlocked;
      status = husk_program_load(engine_->handle(), bytes->data(), bytes->size(),
                                 &SourceBytes::release, bytes.get(), &handle_, &error);
    }
    if (status == HUSK_OK) (void)bytes.release();
  } else {
    const nb::object path = encoded(source),
                     folder = weights.is_none() ? nb::object() : encoded(weights);
    const char* name = PyBytes_AsString(path.ptr());
    const char* in = folder.is_valid() ? PyBytes_AsString(folder.ptr()) : nullptr;
    nb::gil_scoped_release unlocked;
    status = husk_weights_open(engine_->handle(), name, in, &handle_, &error);
  }
  try {
    interrupt.rethrow();
    if (status != HUSK_OK) throw_error(error);
    describe_functions();
  } catch (...) {
    husk_program_release(handle_);
    throw;
  }
}

void Program::describe_functions() {
  const uint32_t count = husk_program_function_count(handle_);
  for (uint32_t f = 0; f < count; ++f) {
    FunctionInfo info;
    info.name = printable(husk_program_function_name(handle_, f));
    info.inputs = values(handle_, f, husk_program_input_count(handle_, f), &husk_program_input);
    info.outputs = values(handle_, f, husk_program_output_count(handle_, f), &husk_program_output);
    functions_.push_back(std::move(info));
  }
}

Program::~Program() {
  idle_.clear();
  nb::gil_scoped_release unlocked;
  husk_program_release(handle_);
}

const FunctionInfo& Program::function(uint32_t index) const {
  if (index >= functions_.size())
    throw_invalid_argument("there is no function %u: there are %zu", index, functions_.size());
  return functions_[index];
}

std::shared_ptr<const Nesting> Program::nesting(uint32_t index) const {
  const FunctionInfo& info = function(index);
  {
    nb::ft_lock_guard guard(mutex_);
    if (info.nesting) return info.nesting;
  }
  throw_invalid_argument("function '%s' cannot be called before set_trees", info.name.c_str());
}

void Program::set_trees(uint32_t index, nb::tuple positional, nb::dict keywords,
                        nb::object results) {
  const FunctionInfo& info = function(index);
  auto nesting = std::make_shared<Nesting>();
  std::vector<uint32_t> inputs(info.inputs.size()), outputs(info.outputs.size());
  for (nb::handle one : positional) {
    Tree tree = Tree::read(one, inputs);
    nesting->positional_names.push_back(tree.is_leaf() ? info.inputs[tree.leaf()].key : nb::none());
    nesting->positional.push_back(std::move(tree));
  }
  nesting->keywords = Tree::read(keywords, inputs);
  nesting->results = Tree::read(results, outputs);
  for (const std::vector<uint32_t>* uses : {&inputs, &outputs})
    for (uint32_t count : *uses)
      if (count != 1)
        throw_invalid_file(
            "function '%s': the arguments or results nest a value %u times, not once",
            info.name.c_str(), count);
  std::shared_ptr<const Nesting> old = std::move(nesting);  // dropped after the mutex
  nb::ft_lock_guard guard(mutex_);
  functions_[index].nesting.swap(old);
}

SessionState* Program::take_session() {
  {
    nb::ft_lock_guard guard(mutex_);
    if (SessionState* session = take_idle()) return session;
  }
  // Another thread may do the same meanwhile; the states are in the session that is done first.
  auto session = std::make_unique<SessionState>(*this, options);
  if (!has_states()) return session.release();
  nb::ft_lock_guard guard(mutex_);
  if (idle_.empty()) idle_.push_back(std::move(session));
  return take_idle();
}

SessionState* Program::take_idle() {
  if (idle_.empty()) return nullptr;
  if (has_states()) return idle_.back().get();
  SessionState* session = idle_.back().release();
  idle_.pop_back();
  return session;
}

void Program::give_back(SessionState* session) {
  if (has_states()) return;
  nb::ft_lock_guard guard(mutex_);
  idle_.emplace_back(session);
}

void bind_program(nb::module_& module) {
  using ProgramObject = Held<Program>;
  using EngineObject = Held<Engine>;
  nb::class_<EngineObject>(module, "Engine")
      .def(
          "__init__",
          [](nb::pointer_and_handle<EngineObject> self, nb::str device, nb::dict options) {
            initialise(self, std::make_unique<Engine>(printable(device).c_str(), options));
          },
          nb::arg("device"), nb::arg("options"))
      .def(
          "add_op",
          [](EngineObject& self, nb::str name, nb::callable function) {
            self.value->add_op(nb::cast<std::string>(name).c_str(), std::move(function));
          },
          nb::arg("name"), nb::arg("function"))
      .def_prop_ro("device_name",
                   [](const EngineObject& self) { return to_str(self.value->properties().name); })
      .def_prop_ro("arch",
                   [](const EngineObject& self) { return to_str(self.value->properties().arch); });
  nb::class_<ProgramObject>(module, "Program", nb::type_slots(program_slots))
      .def(
          "__init__",
          [](nb::pointer_and_handle<ProgramObject> self, nb::object engine, nb::object source,
             nb::object weights) {
            initialise(self, std::make_unique<Program>(std::move(engine), std::move(source),
                                                       std::move(weights)));
          },
          nb::arg("engine"), nb::arg("source"), nb::arg("weights") = nb::none())
      .def("set_trees",
           [](ProgramObject& self, uint32_t function, nb::tuple positional, nb::dict keywords,
              nb::object results) {
             self.value->set_trees(function, std::move(positional), std::move(keywords),
                                   std::move(results));
           })
      .def_prop_ro("pytree",
                   [](const ProgramObject& self) {
                     return to_str(husk_program_pytree(self.value->handle()));
                   })
      .def("function_names",
           [](const ProgramObject& self) {
             nb::list out;
             for (uint32_t f = 0; f < self.value->function_count(); ++f)
               out.append(to_str(husk_program_function_name(self.value->handle(), f)));
             return out;
           })
      .def("function_target",
           [](const ProgramObject& self, uint32_t function) {
             return to_str(husk_program_function_target(self.value->handle(), function));
           })
      .def("inputs",
           [](const ProgramObject& self, uint32_t function) {
             return describe(self.value->handle(), function, true);
           })
      .def("outputs",
           [](const ProgramObject& self, uint32_t function) {
             return describe(self.value->handle(), function, false);
           })
      .def("states",
           [](const ProgramObject& self) {
             const husk_program* program = self.value->handle();
             return describe_all(program, husk_program_state_count(program), &husk_program_state);
           })
      .def("constants",
           [](const ProgramObject& self) {
             const husk_program* program = self.value->handle();
             return describe_all(program, husk_program_constant_count(program),
                                 &husk_program_constant);
           })
      .def("find_constant",
           [](const ProgramObject& self, nb::str name) {
             const std::string text = nb::cast<std::string>(name);
             uint32_t constant = 0;
             check([&](husk_error* error) {
               return husk_program_find_constant(self.value->handle(), text.c_str(), &constant,
                                                 error);
             });
             return constant;
           })
      .def("update_constants",
           [](ProgramObject& self, nb::list parts) {
             update_constants(*self.value, std::move(parts));
           })
      .def("metadata",
           [](const ProgramObject& self) {
             const husk_program* program = self.value->handle();
             nb::dict out;
             for (uint32_t i = 0; i < husk_program_metadata_count(program); ++i)
               out[to_str(husk_program_metadata_key(program, i))] = to_str(
                   husk_program_metadata_value(program, i));
             return out;
           })
      .def_prop_rw(
          "called_function",
          [](const ProgramObject& self) { return self.value->called_function.load(); },
          [](ProgramObject& self, uint32_t function) {
            (void)self.value->function(function);
            self.value->called_function = function;
          });
}

}  // namespace husk::python
