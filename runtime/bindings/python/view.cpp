#include "view.h"

#include <cstring>
#include <vector>

#include "error.h"
#include "text.h"

namespace husk::python {
namespace {

struct KnownType {
  nb::object type;     // a reference, so that no other type gets this address
  nb::object capsule;  // owns the table
  const ExchangeApi* api;
};
std::vector<KnownType>* known_types = nullptr;
nb::ft_mutex known_types_mutex;
constexpr size_t kMaxKnownTypes = 64;

// Looks the table of a type up. This may run code of Python.
KnownType find_api(nb::object type) {
  nb::object capsule = nb::steal(PyObject_GetAttrString(type.ptr(), "__dlpack_c_exchange_api__"));
  const void* table = capsule.is_valid()
                          ? PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api")
                          : nullptr;
  if (!table) PyErr_Clear();
  const ExchangeApi* api = static_cast<const ExchangeApi*>(table);
  while (api && api->version.major != 1) api = api->previous;
  return {std::move(type), std::move(capsule), api};
}

struct BufferFormat {
  const char* format;
  husk_dtype dtype;
};
constexpr BufferFormat kBufferFormats[] = {
#define HUSK_NUMPY(NAME, name, npy, format) {#format, HUSK_##NAME},
#include <dtypes.def>
};

// The husk_dtype of a buffer's elements; `*swapped` is set for the byte order of other machines.
husk_dtype buffer_dtype(const char* format, Py_ssize_t bytes, bool* swapped) {
  *swapped = bytes > 1 && (*format == '>' || *format == '!');
  if (strchr("@=<>!", *format)) ++format;
  // A long or a size of C is as wide as an int or as a long long.
  if (!strcmp(format, "l") || !strcmp(format, "n")) format = bytes == 4 ? "i" : "q";
  if (!strcmp(format, "L") || !strcmp(format, "N")) format = bytes == 4 ? "I" : "Q";
  for (const BufferFormat& known : kBufferFormats)
    if (!strcmp(format, known.format)) return known.dtype;
  return HUSK_DTYPE_NONE;
}

// Conjugate and negative views of PyTorch have the bytes of the tensor that they are views of; the
// exchange table does not say so. A negative view is the imaginary part of a conjugate view, so
// its elements do not lie next to one another.
bool is_lazy_view(PyObject* object, const DLTensor& tensor) {
  const char* question = "is_conj";
  if (tensor.dtype.code != kDLComplex) {
    if (tensor.dtype.code != kDLFloat) return false;
    int64_t expected = 1, elements = 1;
    bool contiguous = true;
    for (int32_t d = tensor.ndim; d-- > 0;) {
      if (tensor.shape[d] != 1 && tensor.strides && tensor.strides[d] != expected)
        contiguous = false;
      expected *= tensor.shape[d];
      elements *= tensor.shape[d];
    }
    if (contiguous && elements != 1) return false;
    question = "is_neg";
  }
  nb::object answer = nb::steal(PyObject_CallMethod(object, question, nullptr));
  if (!answer.is_valid()) {
    PyErr_Clear();  // another library than PyTorch
    return false;
  }
  return PyObject_IsTrue(answer.ptr()) == 1;
}

}  // namespace

const ExchangeApi* exchange_api_of_type(nb::handle type) {
  {
    nb::ft_lock_guard guard(known_types_mutex);
    if (known_types)
      for (const KnownType& known : *known_types)
        if (known.type.is(type)) return known.api;
  }
  KnownType found = find_api(nb::borrow(type));
  const ExchangeApi* api = found.api;
  std::vector<KnownType> dropped;  // after the mutex, since dropping a type may run code of Python
  nb::ft_lock_guard guard(known_types_mutex);
  if (!known_types) known_types = new std::vector<KnownType>;
  if (known_types->size() >= kMaxKnownTypes) dropped.swap(*known_types);
  known_types->push_back(std::move(found));
  return api;
}

const ExchangeApi* exchange_api(PyObject* object) {
  return exchange_api_of_type(reinterpret_cast<PyObject*>(Py_TYPE(object)));
}

void forget_types() {
  delete known_types;
  known_types = nullptr;
}

void View::open(PyObject* object, Access access, const char* side, const char* name) {
  open(object, access, false, {side, name});
}

void View::keep(PyObject* object, Access access, const char* side, const char* name) {
  open(object, access, true, {side, name});
}

void View::open(PyObject* object, Access access, bool keep, Label label) {
  close();
  api = exchange_api(object);
  if (api) {
    // Only a managed tensor says whether its memory is read-only.
    if (keep || access == Access::write)
      open_managed(object, access, label);
    else if (api->borrow(object, &tensor) != 0)
      throw nb::python_error();
    copy_shape(label);
    if (is_lazy_view(object, tensor))
      throw_invalid_input(
          "%s '%s' is a conjugate or negative view: pass %s.resolve_conj().resolve_neg()",
          label.side, label.name, label.name);
    return;
  }
  if (PyObject_CheckBuffer(object) && open_buffer(object, access, label)) return;
  open_capsule(object, access, label);
  copy_shape(label);
}

namespace {

[[noreturn]] void throw_read_only(const char* side, const char* name) {
  if (!strcmp(side, "input"))
    throw_invalid_input(
        "input '%s' is read-only, and the program writes to it: pass a copy that may be "
        "written, such as numpy.array(%s)",
        name, name);
  throw_invalid_input("%s '%s' is read-only: pass memory that may be written", side, name);
}

}  // namespace

void View::open_managed(PyObject* object, Access access, Label label) {
  if (api->managed_from_object(object, &managed_) != 0) {
    managed_ = nullptr;
    throw nb::python_error();
  }
  owner_ = Owner::managed;
  if (access == Access::write && (managed_->flags & kReadOnlyFlag))
    throw_read_only(label.side, label.name);
  tensor = managed_->dl_tensor;
}

// Copies the sizes and strides of the library, which may also be wrong.
void View::copy_shape(Label label) {
  if (tensor.ndim < 0 || tensor.ndim > kMaxRank)
    throw_invalid_input("%s '%s' has %d dims, at most %d are possible", label.side, label.name,
                        static_cast<int>(tensor.ndim), kMaxRank);
  if (tensor.ndim > 0 && !tensor.shape)
    throw_invalid_input("%s '%s' has %d dims, and no sizes of them", label.side, label.name,
                        static_cast<int>(tensor.ndim));
  const auto bytes = static_cast<size_t>(tensor.ndim) * sizeof(int64_t);
  if (bytes) memcpy(shape_, tensor.shape, bytes);
  tensor.shape = shape_;
  if (!tensor.strides) return;
  if (bytes) memcpy(strides_, tensor.strides, bytes);
  tensor.strides = strides_;
}

// Returns false if the elements have no letter in the buffer protocol, as bfloat16 of JAX.
bool View::open_buffer(PyObject* object, Access access, Label label) {
  const auto [side, name] = label;
  if (PyObject_GetBuffer(object, &buffer_, PyBUF_FORMAT | PyBUF_STRIDES) != 0) {
    PyErr_Clear();
    return false;
  }
  owner_ = Owner::buffer;
  if (access == Access::write && buffer_.readonly) throw_read_only(side, name);
  bool swapped;
  const husk_dtype dtype = buffer_dtype(buffer_.format ? buffer_.format : "B", buffer_.itemsize,
                                        &swapped);
  if (swapped)
    throw_invalid_input(
        "%s '%s' has the byte order of other machines: pass %s.astype(%s.dtype.newbyteorder('='))",
        side, name, name, name);
  if (dtype == HUSK_DTYPE_NONE || static_cast<size_t>(buffer_.itemsize) != husk_dtype_size(dtype)) {
    const bool has_capsule = PyObject_HasAttrString(object, "__dlpack__") == 1;
    if (!has_capsule)
      throw_invalid_input("%s '%s' has elements of the format '%s', which Husk does not have", side,
                          name, printable(buffer_.format ? buffer_.format : "B").c_str());
    close();
    return false;
  }
  if (buffer_.ndim > kMaxRank)
    throw_invalid_input("%s '%s' has %d dims, at most %d are possible", side, name, buffer_.ndim,
                        kMaxRank);
  for (int d = 0; d < buffer_.ndim; ++d) {
    shape_[d] = buffer_.shape[d];
    strides_[d] = buffer_.strides[d] / buffer_.itemsize;
    if (shape_[d] > 1 && (buffer_.strides[d] < 0 || buffer_.strides[d] % buffer_.itemsize))
      throw_invalid_input(
          "%s '%s' has a stride of %lld bytes in dim %d: pass numpy.ascontiguousarray(%s)", side,
          name, static_cast<long long>(buffer_.strides[d]), d, name);
    if (shape_[d] <= 1) strides_[d] = strides_[d] < 0 ? 1 : strides_[d];
  }
  tensor = {};
  tensor.data = buffer_.buf;
  tensor.device = {kDLCPU, 0};
  tensor.ndim = buffer_.ndim;
  tensor.dtype = husk_dtype_to_dlpack(dtype);
  tensor.shape = shape_;
  tensor.strides = strides_;
  return true;
}

// Takes the capsule of `__dlpack__`, of DLPack 1 or, from older libraries, the one without a
// version.
void View::open_capsule(PyObject* object, Access access, Label label) {
  const auto [side, name] = label;
  nb::object method = nb::steal(PyObject_GetAttrString(object, "__dlpack__"));
  if (!method.is_valid()) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError,
                 "%s '%s' is a tensor: pass a torch.Tensor, a numpy.ndarray or an object with "
                 "__dlpack__, not %R",
                 side, name, reinterpret_cast<PyObject*>(Py_TYPE(object)));
    throw nb::python_error();
  }
  nb::object capsule;
  try {
    try {
      capsule = method(nb::arg("max_version") = nb::make_tuple(1, 3));
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
      capsule = method();
    }
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_BufferError)) throw;
    throw_invalid_input("%s '%s' cannot be read without a copy: %s", side, name,
                        printable(nb::str(error.value())).c_str());
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    auto* managed = static_cast<ManagedTensor*>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (managed->version.major != 1)
      throw_invalid_input("%s '%s' has DLPack %u, Husk reads version 1", side, name,
                          managed->version.major);
    if (access == Access::write && (managed->flags & kReadOnlyFlag)) throw_read_only(side, name);
    tensor = managed->dl_tensor;
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    tensor = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))
                 ->dl_tensor;
  } else {
    throw_invalid_input("%s '%s': __dlpack__ returned no capsule of a tensor", side, name);
  }
  // The capsule keeps its name, so it frees the tensor when the last reference is dropped.
  capsule_ = capsule.release().ptr();
  owner_ = Owner::capsule;
}

void View::close() {
  // A release may run code of Python, which finds a closed view.
  const Owner owner = owner_;
  owner_ = Owner::none;
  if (owner == Owner::buffer) PyBuffer_Release(&buffer_);
  if (owner == Owner::capsule) Py_CLEAR(capsule_);
  if (owner == Owner::managed && managed_->deleter) managed_->deleter(managed_);
}

}  // namespace husk::python
