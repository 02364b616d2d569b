#include "call.h"

#include <cstdio>
#include <ctime>
#include <string>

#include "error.h"
#include "owned.h"
#include "program.h"
#include "session.h"
#include "text.h"

namespace husk::python {
namespace {

thread_local Interrupt* current_interrupt = nullptr;
constexpr int64_t kSignalMilliseconds = 50;

[[noreturn]] void throw_type_error(const std::string& text) { throw nb::type_error(text.c_str()); }

std::string argument_names(const Nesting& nesting) {
  std::string names;
  for (size_t i = 0; i < nesting.positional.size(); ++i)
    names += (names.empty() ? "" : ", ") + (nesting.positional_names[i].is_none()
                                                ? "argument " + std::to_string(i)
                                                : printable(nesting.positional_names[i]));
  for (const nb::object& key : nesting.keywords.keys())
    names += (names.empty() ? "" : ", ") + printable(key) + "=";
  return names.empty() ? "no arguments" : names;
}

// Finds which keyword is not an argument of the function.
[[noreturn]] void throw_unknown_keyword(const FunctionInfo& info, const Nesting& nesting,
                                        size_t positional_count, PyObject* kwargs) {
  for (nb::handle key : dict_keys(kwargs)) {
    bool known = false, twice = false;
    for (size_t i = 0; i < nesting.positional_names.size(); ++i)
      if (nesting.positional_names[i].equal(key)) (i < positional_count ? twice : known) = true;
    for (const nb::object& expected : nesting.keywords.keys()) known |= expected.equal(key);
    if (twice) throw_type_error(info.name + "() got two values for '" + printable(key) + "'");
    if (!known)
      throw_type_error(info.name + "() has no argument '" + printable(key) +
                       "', it was exported with " + argument_names(nesting));
  }
  throw_type_error(info.name + "() was exported with " + argument_names(nesting));
}

// Writes the leaves of the arguments to `leaves`.
void flatten_arguments(const FunctionInfo& info, const Nesting& nesting, PyObject* args,
                       PyObject* kwargs, nb::object* leaves) {
  const size_t positional_count = static_cast<size_t>(PyTuple_Size(args)),
               n = nesting.positional.size();
  if (positional_count > n)
    throw_type_error(info.name + "() takes " + std::to_string(n) + " positional arguments, " +
                     std::to_string(positional_count) + " were passed: it was exported with " +
                     argument_names(nesting));
  size_t used = 0;
  for (size_t i = 0; i < n; ++i) {
    const nb::object& name = nesting.positional_names[i];
    nb::object value;
    if (i < positional_count) {
      value = nb::borrow(PyTuple_GetItem(args, static_cast<Py_ssize_t>(i)));
    } else if (kwargs && !name.is_none()) {
      value = dict_item(kwargs, name.ptr());
      used += value.is_valid();
    }
    if (!value.is_valid())
      throw_type_error(
          info.name + "() lacks " +
          (name.is_none() ? "argument " + std::to_string(i) : "'" + printable(name) + "'") +
          ": it was exported with " + argument_names(nesting));
    const Tree& tree = nesting.positional[i];
    if (tree.is_leaf())
      leaves[tree.leaf()] = std::move(value);
    else
      tree.flatten(value, leaves, "argument " + std::to_string(i));
  }
  const std::vector<nb::object>& keys = nesting.keywords.keys();
  for (size_t i = 0; i < keys.size(); ++i) {
    nb::object value = kwargs ? dict_item(kwargs, keys[i].ptr()) : nb::object();
    const std::string key = printable(keys[i]);
    if (!value.is_valid())
      throw_type_error(info.name + "() lacks " + key + "=: it was exported with " +
                       argument_names(nesting));
    ++used;
    nesting.keywords.children()[i].flatten(value, leaves, key);
  }
  if (kwargs && static_cast<size_t>(PyDict_Size(kwargs)) != used)
    throw_unknown_keyword(info, nesting, positional_count, kwargs);
}

[[noreturn]] void throw_wrong_kind(const FunctionInfo::Value& input, const char* expected,
                                   PyObject* object) {
  PyErr_Format(PyExc_TypeError, "input '%s' is %s, not %R", input.name.c_str(), expected,
               reinterpret_cast<PyObject*>(Py_TYPE(object)));
  throw nb::python_error();
}

int64_t to_int(const FunctionInfo::Value& input, PyObject* object) {
  nb::object index = nb::steal(PyNumber_Index(object));
  if (!index.is_valid()) {
    PyErr_Clear();
    throw_wrong_kind(input, "an int", object);
  }
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow) throw_invalid_input("input '%s' does not fit into 64 bits", input.name.c_str());
  return number;
}

double to_float(const FunctionInfo::Value& input, PyObject* object) {
  const double number = PyFloat_AsDouble(object);
  if (number == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    throw_wrong_kind(input, "a float", object);
  }
  return number;
}

bool to_bool(const FunctionInfo::Value& input, PyObject* object) {
  const int truth = PyBool_Check(object) || PyIndex_Check(object) || PyNumber_Check(object)
                        ? PyObject_IsTrue(object)
                        : -1;
  if (truth >= 0) return truth != 0;
  PyErr_Clear();
  throw_wrong_kind(input, "a bool", object);
}

// A device as PyTorch names it.
std::string device_text(int type, int index) {
  if (type == kDLCPU) return "cpu";
  if (type == kDLCUDA) return "cuda:" + std::to_string(index);
  return "DLPack device " + std::to_string(type) + ":" + std::to_string(index);
}

// The device on which an input or output lies.
DLDevice device_of(const FunctionInfo::Value& value, const Engine& engine) {
  if (value.on_host) return {kDLCPU, 0};
  const husk_port_properties& own = engine.properties();
  return {static_cast<DLDeviceType>(own.dl_device_type), own.device_index};
}

// Whether a run copies an input or output to the device and back. That is so for arrays of NumPy,
// which has no other memory. A tensor of PyTorch on the CPU is refused instead: whoever has it can
// keep it on the device, and a copy in each call would go unnoticed.
bool is_staged(const FunctionInfo::Value& value, const View& view, const Engine& engine) {
  return view.tensor.device.device_type == kDLCPU && !view.api && !value.on_host &&
         !engine.on_host();
}

// Refuses an input on another device before results are allocated, so that the error is about the
// input, and an output of the caller there. `what` is "input" or "output".
void check_device(const char* what, const FunctionInfo::Value& input, const View& view,
                  const Engine& engine) {
  const DLDevice own = device_of(input, engine), device = view.tensor.device;
  if ((device.device_type == own.device_type &&
       (device.device_type == kDLCPU || device.device_id == own.device_id)) ||
      is_staged(input, view, engine))
    return;
  const std::string lies = device_text(device.device_type, device.device_id);
  const std::string runs = device_text(own.device_type, own.device_id);
  const std::string remedy = std::string(what) == "output" ? "pass memory of that device"
                             : view.api ? "pass " + input.name + ".to(\"" + runs + "\")"
                                        : "copy it there";
  throw_invalid_input("%s '%s' lies on %s, the program %s %s: %s", what, input.name.c_str(),
                      lies.c_str(), input.on_host ? "takes it on" : "runs on", runs.c_str(),
                      remedy.c_str());
}

// The table of PyTorch if the process has imported it.
const ExchangeApi* torch_api() {
  nb::object modules = nb::borrow(PyImport_GetModuleDict());
  if (!modules.is_valid() || !PyDict_Check(modules.ptr())) return nullptr;
  nb::object torch = dict_item(modules.ptr(), nb::str("torch").ptr());
  if (!torch.is_valid()) return nullptr;
  nb::object type = nb::steal(PyObject_GetAttrString(torch.ptr(), "Tensor"));
  PyErr_Clear();
  return type.is_valid() ? exchange_api_of_type(type) : nullptr;
}

// One call: the phases of run() in order.
class Call {
 public:
  Call(Program& program, SessionState& session, uint32_t function)
      : program_(program),
        session_(session),
        function_(function),
        info_(program.function(function)),
        nesting_(program.nesting(function)),
        frame_(session.frame(function)) {}
  ~Call() {
    for (size_t i = 0; i < info_.inputs.size(); ++i) frame_.views[i].close();
    for (Result& result : frame_.results) result.discard();
    for (nb::object& leaf : frame_.leaves) leaf.reset();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  nb::object run(PyObject* args, PyObject* kwargs, nb::handle out, nb::handle stream) {
    flatten_arguments(info_, *nesting_, args, kwargs, frame_.leaves.data());
    bind_inputs();
    if (!frame_.prepared.equal(frame_.inputs)) resize();
    bind_outputs(out);
    enqueue(stream);
    return results();
  }

 private:
  void bind_inputs() {
    bool tensors = false, staged = false;
    for (size_t i = 0; i < info_.inputs.size(); ++i) {
      const FunctionInfo::Value& input = info_.inputs[i];
      husk_value& value = frame_.inputs[i];
      PyObject* leaf = frame_.leaves[i].ptr();
      value.kind = input.kind;
      switch (input.kind) {
        case HUSK_VALUE_TENSOR: {
          View& view = frame_.views[i];
          view.open(leaf, input.access, "input", input.name.c_str());
          check_device("input", input, view, program_.engine());
          staged |= is_staged(input, view, program_.engine());
          value.as.tensor = &view.tensor;
          if (view.api && !api_) api_ = view.api;
          tensors = true;
          break;
        }
        case HUSK_VALUE_INT: value.as.i = to_int(input, leaf); break;
        case HUSK_VALUE_FLOAT: value.as.f = to_float(input, leaf); break;
        case HUSK_VALUE_BOOL: value.as.i = to_bool(input, leaf); break;
        default:
          if (leaf != Py_None) throw_wrong_kind(input, "None", leaf);
      }
    }
    numpy_results_ = staged && !api_;
    if (!tensors || (!api_ && !staged && !program_.engine().on_host())) api_ = torch_api();
  }

  // Plans for the shapes of the inputs and asks for those of the outputs.
  void resize() {
    const bool first = !frame_.prepared.known();
    frame_.prepared.forget();
    check_unlocked([&](husk_error* error) {
      return husk_session_resize(session_.handle, function_, frame_.inputs.data(),
                                 static_cast<uint32_t>(frame_.inputs.size()), error);
    });
    for (uint32_t i = 0; i < info_.outputs.size(); ++i) {
      const FunctionInfo::Value& output = info_.outputs[i];
      Result& result = frame_.results[i];
      result.alignment = output.alignment;
      if (output.kind != HUSK_VALUE_TENSOR || (result.dynamic && !first)) continue;
      const auto rank = static_cast<size_t>(output.rank);
      std::vector<int64_t> shape(2 * rank);
      husk_error error = {};
      const husk_status status = husk_session_output_shape(
          session_.handle, function_, i, shape.data(), shape.data() + rank, &error);
      // No run of this session has ended, so the call fails if only the data decides the shape.
      result.dynamic = status != HUSK_OK;
      if (!result.dynamic)
        result.set_shape(output.dtype, device_of(output, program_.engine()), shape);
    }
    frame_.prepared.remember();
  }

  void bind_outputs(nb::handle out) {
    std::vector<nb::object> destinations(out.is_none() ? 0 : info_.outputs.size());
    if (!out.is_none()) nesting_->results.flatten(out, destinations.data(), "out");
    uint64_t free_bytes = session_.output_limit;
    for (size_t i = 0; i < info_.outputs.size(); ++i) {
      const FunctionInfo::Value& output = info_.outputs[i];
      Result& result = frame_.results[i];
      husk_value& value = frame_.outputs[i];
      const bool is_given = !out.is_none() && !destinations[i].is_none();
      value.kind = output.kind;
      if (output.kind != HUSK_VALUE_TENSOR || result.dynamic) {
        if (is_given)
          throw_invalid_input(
              "output '%s' %s: pass None for it in out=", output.name.c_str(),
              result.dynamic ? "has a size that only the data decides" : "is no tensor");
        if (result.dynamic) value.kind = HUSK_VALUE_NONE;
        continue;
      }
      if (is_given) {
        result.use(destinations[i].ptr(), output.name.c_str());
        check_device("output", output, result.view(), program_.engine());
      } else {
        if (result.bytes() > free_bytes) throw_output_limit(output);
        free_bytes -= result.bytes();
        result.allocate(api_, numpy_results_, output.name.c_str());
      }
      value.as.tensor = result.tensor();
    }
  }

  [[noreturn]] void throw_output_limit(const FunctionInfo::Value& output) {
    husk_error error = {HUSK_LIMIT, 0, -1, {0}};
    snprintf(error.text, sizeof error.text,
             "with output '%s' the results need more than the output_limit of %llu bytes",
             output.name.c_str(), static_cast<unsigned long long>(session_.output_limit));
    throw_error(error);
  }

  void enqueue(nb::handle stream) {
    const Engine& engine = program_.engine();
    void* on = nullptr;
    if (!stream.is_none())
      on = reinterpret_cast<void*>(nb::cast<uintptr_t>(stream));
    else if (!engine.on_host() && api_ &&
             api_->current_stream(static_cast<DLDeviceType>(engine.properties().dl_device_type),
                                  engine.properties().device_index, &on) != 0)
      throw nb::python_error();
    Interrupt interrupt(api_);
    husk_error error = {};
    husk_status status;
    {
      nb::gil_scoped_release unlocked;
      status = husk_session_run(session_.handle, function_, on, frame_.inputs.data(),
                                static_cast<uint32_t>(frame_.inputs.size()), frame_.outputs.data(),
                                static_cast<uint32_t>(frame_.outputs.size()), &error);
      // NumPy knows nothing of streams, so its arrays are complete when the call returns. PyTorch
      // copies results whose size the data decided, on its current stream.
      // Outputs on the host are copied at once.
      if (status == HUSK_OK && !engine.on_host() &&
          (!api_ || has_dynamic(true) || (!stream.is_none() && has_dynamic(false))))
        status = husk_session_wait(session_.handle, &error);
    }
    interrupt.rethrow();
    if (status != HUSK_OK) throw_error(error);
  }

  // Returns whether only the data decides the size of an output; with `on_host`, of one on the CPU.
  bool has_dynamic(bool on_host) const {
    for (size_t i = 0; i < info_.outputs.size(); ++i)
      if (frame_.results[i].dynamic && (!on_host || info_.outputs[i].on_host)) return true;
    return false;
  }

  nb::object results() {
    const size_t n = info_.outputs.size();
    std::vector<nb::object> leaves(n);
    for (size_t i = 0; i < n; ++i) {
      const husk_value& value = frame_.outputs[i];
      Result& result = frame_.results[i];
      switch (info_.outputs[i].kind) {
        case HUSK_VALUE_TENSOR:
          if (result.dynamic)
            result.copy(*value.as.tensor, api_,
                        numpy_results_ ? program_.engine().handle() : nullptr,
                        info_.outputs[i].name.c_str());
          leaves[i] = result.finish();
          break;
        case HUSK_VALUE_INT: leaves[i] = nb::int_(value.as.i); break;
        case HUSK_VALUE_FLOAT: leaves[i] = nb::float_(value.as.f); break;
        case HUSK_VALUE_BOOL: leaves[i] = nb::bool_(value.as.i != 0); break;
        default: leaves[i] = nb::none();
      }
    }
    return nesting_->results.unflatten(leaves.data());
  }

  Program& program_;
  SessionState& session_;
  uint32_t function_;
  const FunctionInfo& info_;
  const std::shared_ptr<const Nesting> nesting_;
  Frame& frame_;
  const ExchangeApi* api_ = nullptr;  // the library of the results; NULL: NumPy
  bool numpy_results_ = false;        // results are arrays of NumPy also on a device
};

// A session of the program for one call.
class LentSession {
 public:
  explicit LentSession(Program& program) : program_(program), session_(program.take_session()) {}
  ~LentSession() { program_.give_back(session_); }
  LentSession(const LentSession&) = delete;
  LentSession& operator=(const LentSession&) = delete;
  SessionState& operator*() { return *session_; }

 private:
  Program& program_;
  SessionState* session_;
};

nb::object call(const Callee& callee, PyObject* args, PyObject* kwargs, nb::handle out,
                nb::handle stream) {
  Program& program = *callee.program;
  if (callee.session) {
    BusyScope busy(*callee.session);
    return Call(program, *callee.session, callee.function).run(args, kwargs, out, stream);
  }
  LentSession lent(program);
  BusyScope busy(*lent);
  return Call(program, *lent, callee.function).run(args, kwargs, out, stream);
}

// Returns whether the model itself has an argument of that name.
bool has_argument(const Nesting& nesting, const nb::str& name) {
  for (const nb::object& one : nesting.keywords.keys())
    if (one.equal(name)) return true;
  for (const nb::object& one : nesting.positional_names)
    if (one.equal(name)) return true;
  return false;
}

}  // namespace

PyObject* call_slot(Callee (*find)(PyObject* self), PyObject* self, PyObject* args,
                    PyObject* kwargs) {
  try {
    nb::object kept = nb::borrow(self), out = nb::none(), stream = nb::none(), rest;
    const Callee callee = find(self);
    if (kwargs) {
      const std::shared_ptr<const Nesting> nesting = callee.program->nesting(callee.function);
      for (auto [name, value] : {std::pair{"out", &out}, std::pair{"stream", &stream}}) {
        nb::str key(name);
        if (has_argument(*nesting, key)) continue;
        nb::object found = dict_item(kwargs, key.ptr());
        if (!found.is_valid()) continue;
        *value = std::move(found);
        if (!rest.is_valid()) rest = nb::steal(PyDict_Copy(kwargs));
        if (!rest.is_valid() || PyDict_DelItem(rest.ptr(), key.ptr()) != 0)
          throw nb::python_error();
      }
      if (rest.is_valid()) kwargs = rest.ptr();
    }
    return call(callee, args, kwargs, out, stream).release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (nb::builtin_exception& error) {
    PyErr_SetString(
        error.type() == nb::exception_type::type_error ? PyExc_TypeError : PyExc_ValueError,
        error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

Interrupt::Interrupt(const ExchangeApi* library) : outer_(current_interrupt), library_(library) {
  current_interrupt = this;
}

Interrupt::~Interrupt() {
  current_interrupt = outer_;
  Py_XDECREF(exception_);
}

const ExchangeApi* Interrupt::library() {
  return current_interrupt ? current_interrupt->library_ : nullptr;
}

void Interrupt::rethrow() {
  if (!exception_) return;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception_)), exception_);
  throw nb::python_error();
}

void Interrupt::keep(nb::python_error& error) {
  if (!current_interrupt || current_interrupt->exception_)
    error.discard_as_unraisable("a callback of Husk");
  else
    current_interrupt->exception_ = error.value().inc_ref().ptr();
}

// Python's handlers of signals run when the main thread asks for them. Taking the GIL before each
// step would cost more than the step.
int32_t Interrupt::requested(void*) {
  Interrupt* scope = current_interrupt;
  if (!scope) return 0;
  if (scope->exception_) return 1;
  timespec time;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  const int64_t now = int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1000000;
  if (scope->next_check_ == 0) scope->next_check_ = now + kSignalMilliseconds;
  if (now < scope->next_check_) return 0;
  scope->next_check_ = now + kSignalMilliseconds;
  nb::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() == 0) return 0;
  keep_raised();
  return 1;
}

void Interrupt::keep_raised() {
  nb::python_error error;
  keep(error);
}

}  // namespace husk::python
