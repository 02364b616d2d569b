#include "program.h"

#include <cstdlib>
#include <cstring>

#include "call.h"
#include "error.h"
#include "session.h"

namespace husk::python {
namespace {

// Bytes of Python that a program borrows, at an address that is a multiple of 64: the object's own
// memory if that is so aligned (an mmap is), otherwise a copy.
class SourceBytes {
 public:
  static constexpr size_t kAlign = 64;

  explicit SourceBytes(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) != 0) throw nb::python_error();
    data_ = buffer_.buf;
    if (reinterpret_cast<uintptr_t>(data_) % kAlign == 0) return;
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
    out.push_back({info.name, info.kind, info.dtype, info.rank, info.alignment, info.on_host != 0});
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
    value["name"] = info.name;
    value["kind"] = kinds[info.kind];
    if (info.kind == HUSK_VALUE_TENSOR) {
      value["dtype"] = husk_dtype_name(info.dtype);
      value["rank"] = info.rank;
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
  out["name"] = info.name;
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

PyObject* program_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  Program& program = *nb::inst_ptr<Program>(self);
  return call_slot(program, nullptr, program.called_function, args, kwargs);
}

PyType_Slot program_slots[] = {{Py_tp_call, reinterpret_cast<void*>(&program_call)}, {0, nullptr}};

}  // namespace

Program::Program(nb::object engine, nb::object source)
    : engine_object_(std::move(engine)), engine_(nb::cast<Engine*>(engine_object_)) {
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
    const std::string path = nb::cast<std::string>(source);
    nb::gil_scoped_release unlocked;
    status = husk_program_open(engine_->handle(), path.c_str(), &handle_, &error);
  }
  interrupt.rethrow();
  if (status != HUSK_OK) throw_error(error);
  const uint32_t count = husk_program_function_count(handle_);
  for (uint32_t f = 0; f < count; ++f) {
    FunctionInfo info;
    info.name = husk_program_function_name(handle_, f);
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

void Program::set_trees(uint32_t function, nb::tuple positional, nb::dict keywords,
                        nb::object results) {
  FunctionInfo& info = functions_.at(function);
  info.positional.clear();
  info.positional_names.clear();
  for (nb::handle one : positional) {
    Tree tree = Tree::read(one);
    nb::object name = nb::none();
    if (tree.is_leaf()) name = nb::str(info.inputs.at(tree.leaf()).name.c_str());
    info.positional_names.push_back(std::move(name));
    info.positional.push_back(std::move(tree));
  }
  info.keywords = Tree::read(keywords);
  info.results = Tree::read(results);
}

SessionState* Program::take_session() {
  if (!idle_.empty()) {
    if (has_states()) return idle_.back().get();
    SessionState* session = idle_.back().release();
    idle_.pop_back();
    return session;
  }
  auto session = std::make_unique<SessionState>(*this, options);
  if (!has_states()) return session.release();
  idle_.push_back(std::move(session));
  return idle_.back().get();
}

void Program::give_back(SessionState* session) {
  if (!has_states()) idle_.emplace_back(session);
}

void bind_program(nb::module_& module) {
  nb::class_<Engine>(module, "Engine")
      .def(nb::init<const char*, nb::dict>(), nb::arg("device"), nb::arg("options"))
      .def("add_op", &Engine::add_op, nb::arg("name"), nb::arg("function"))
      .def_prop_ro("device_name", [](const Engine& self) { return self.properties().name; })
      .def_prop_ro("arch", [](const Engine& self) { return self.properties().arch; });
  nb::class_<Program>(module, "Program", nb::type_slots(program_slots))
      .def(nb::init<nb::object, nb::object>(), nb::arg("engine"), nb::arg("source"))
      .def("set_trees", &Program::set_trees)
      .def_prop_ro("pytree", [](const Program& self) { return husk_program_pytree(self.handle()); })
      .def("function_names",
           [](const Program& self) {
             nb::list out;
             for (const FunctionInfo& info : self.functions()) out.append(info.name.c_str());
             return out;
           })
      .def("function_target",
           [](const Program& self, uint32_t function) {
             return husk_program_function_target(self.handle(), function);
           })
      .def("inputs", [](const Program& self,
                        uint32_t function) { return describe(self.handle(), function, true); })
      .def("outputs", [](const Program& self,
                         uint32_t function) { return describe(self.handle(), function, false); })
      .def("states",
           [](const Program& self) {
             return describe_all(self.handle(), husk_program_state_count(self.handle()),
                                 &husk_program_state);
           })
      .def("constants",
           [](const Program& self) {
             return describe_all(self.handle(), husk_program_constant_count(self.handle()),
                                 &husk_program_constant);
           })
      .def("metadata",
           [](const Program& self) {
             nb::dict out;
             for (uint32_t i = 0; i < husk_program_metadata_count(self.handle()); ++i)
               out[husk_program_metadata_key(self.handle(), i)] = husk_program_metadata_value(
                   self.handle(), i);
             return out;
           })
      .def_rw("called_function", &Program::called_function);
}

}  // namespace husk::python
