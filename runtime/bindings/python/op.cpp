#include "op.h"

#include <cstdio>
#include <string>
#include <vector>

#include "call.h"
#include "dlpack.h"
#include "error.h"
#include "text.h"

namespace husk::python {
namespace {

const char* buffer_format(int32_t dtype) {
  switch (dtype) {
#define HUSK_NUMPY(NAME, name, npy, format) \
  case HUSK_##NAME: return #format;
#include <dtypes.def>
    default: return nullptr;
  }
}

// A tensor of the library that the inputs of the run belong to.
nb::object exchange_tensor(const husk_op_arg& arg, DLDevice device, const ExchangeApi* api) {
  auto* managed = new ManagedTensor{{1, 3}, nullptr, nullptr, 0, {}};
  DLTensor& to = managed->dl_tensor;
  to.data = arg.data;
  to.device = device;
  to.ndim = arg.rank;
  to.dtype = husk_dtype_to_dlpack(arg.dtype);
  to.shape = const_cast<int64_t*>(arg.sizes);
  to.strides = const_cast<int64_t*>(arg.strides);
  managed->deleter = [](ManagedTensor* self) { delete self; };
  void* object = nullptr;
  if (api->object_from_managed(managed, &object) != 0) throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

nb::object numpy_array(const husk_op_arg& arg) {
  const char* format = buffer_format(arg.dtype);
  if (!format) {
    PyErr_Format(PyExc_TypeError,
                 "a tensor of the operator has dtype %s, which NumPy does not have: run the "
                 "program with torch tensors",
                 husk_dtype_name(arg.dtype));
    throw nb::python_error();
  }
  const auto bytes = static_cast<Py_ssize_t>(husk_dtype_size(arg.dtype));
  std::vector<Py_ssize_t> sizes(arg.sizes, arg.sizes + arg.rank), strides;
  Py_ssize_t elements = 1;
  for (int32_t d = 0; d < arg.rank; ++d) {
    strides.push_back(arg.strides[d] * bytes);
    elements *= sizes[static_cast<size_t>(d)];
  }
  Py_buffer buffer = {};
  buffer.buf = arg.data;
  buffer.len = elements * bytes;
  buffer.itemsize = bytes;
  buffer.readonly = !(arg.access & HUSK_ACCESS_WRITE);
  buffer.ndim = arg.rank;
  buffer.format = const_cast<char*>(format);
  buffer.shape = sizes.data();
  buffer.strides = strides.data();
  nb::object view = nb::steal(PyMemoryView_FromBuffer(&buffer));
  if (!view.is_valid()) throw nb::python_error();
  return nb::module_::import_("numpy").attr("asarray")(view);
}

nb::object to_tuple(const int64_t* ints, const double* floats, int64_t count) {
  nb::list list;
  for (int64_t i = 0; i < count; ++i) {
    if (ints)
      list.append(ints[i]);
    else
      list.append(floats[i]);
  }
  return nb::tuple(list);
}

}  // namespace

husk_status PythonOp::call(const husk_op_context* context, const husk_op_arg* args,
                           uint32_t arg_count, husk_error* error) {
  nb::gil_scoped_acquire locked;
  if (Interrupt::calls([&] { static_cast<PythonOp*>(context->user)->run(args, arg_count); }))
    return HUSK_OK;
  error->code = HUSK_CANCELLED;
  error->step = -1;
  snprintf(error->text, sizeof error->text, "an operator in Python raised an exception");
  return HUSK_CANCELLED;
}

void PythonOp::run(const husk_op_arg* args, uint32_t arg_count) {
  nb::list values;
  std::vector<const husk_op_arg*> results;
  for (uint32_t i = 0; i < arg_count; ++i) {
    if (args[i].kind == HUSK_ARG_RESULT)
      results.push_back(&args[i]);
    else
      values.append(argument(args[i]));
  }
  nb::object returned = function_(*nb::tuple(values));
  if (results.empty()) {
    if (returned.is_none()) return;
    PyErr_SetString(PyExc_TypeError,
                    "an operator writes its outputs, which are its last arguments, and returns "
                    "None");
    throw nb::python_error();
  }
  if (results.size() == 1 && !nb::isinstance<nb::tuple>(returned))
    returned = nb::make_tuple(returned);
  if (!nb::isinstance<nb::tuple>(returned) || nb::len(returned) != results.size()) {
    PyErr_Format(PyExc_TypeError, "the operator must return %zu numbers", results.size());
    throw nb::python_error();
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i]->dtype == HUSK_I64)
      *static_cast<int64_t*>(results[i]->data) = PyLong_AsLongLong(nb::object(returned[i]).ptr());
    else
      *static_cast<double*>(results[i]->data) = PyFloat_AsDouble(nb::object(returned[i]).ptr());
    if (PyErr_Occurred()) throw nb::python_error();
  }
}

nb::object PythonOp::argument(const husk_op_arg& arg) const {
  switch (arg.kind) {
    case HUSK_ARG_TENSOR: return tensor(arg);
    case HUSK_ARG_INT: return nb::int_(arg.i);
    case HUSK_ARG_FLOAT: return nb::float_(arg.f);
    case HUSK_ARG_INTS: return to_tuple(arg.sizes, nullptr, arg.count);
    case HUSK_ARG_FLOATS: return to_tuple(nullptr, arg.floats, arg.count);
    case HUSK_ARG_STRING: return to_str(arg.string);
    case HUSK_ARG_DTYPE: return nb::str(husk_dtype_name(arg.dtype));
    case HUSK_ARG_TENSORS: {
      nb::list list;
      for (int64_t i = 0; i < arg.count; ++i) list.append(argument(arg.tensors[i]));
      return list;
    }
    default: return nb::none();
  }
}

nb::object PythonOp::tensor(const husk_op_arg& arg) const {
  if (const ExchangeApi* api = Interrupt::library()) return exchange_tensor(arg, device_, api);
  return numpy_array(arg);
}

}  // namespace husk::python
