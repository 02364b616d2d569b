#include "result.h"

#include <cstring>

#include "error.h"

namespace husk::python {
namespace {

// The parts of NumPy that results need, looked up when it is first needed.
struct Numpy {
  nb::object empty, ndarray, dtypes[HUSK_POINTER];
};
Numpy* numpy = nullptr;
nb::ft_mutex numpy_mutex;  // of `numpy`; nothing that may run code of Python is called under it

// Returns what the place `of(numpy)` has. `find` looks it up if that is nothing yet.
template <class Of, class Find>
nb::object numpy_object(Of of, Find find) {
  {
    nb::ft_lock_guard guard(numpy_mutex);
    if (numpy && of(*numpy).is_valid()) return of(*numpy);
  }
  nb::object found = find(nb::module_::import_("numpy"));
  nb::ft_lock_guard guard(numpy_mutex);
  if (!numpy) numpy = new Numpy;
  nb::object& kept = of(*numpy);
  if (!kept.is_valid()) kept = std::move(found);
  return kept;
}

const char* numpy_name(husk_dtype dtype) {
  switch (dtype) {
#define HUSK_NUMPY(NAME, name, npy, format) \
  case HUSK_##NAME: return #name;
#include <dtypes.def>
    default: return nullptr;
  }
}

void set_error(void*, const char* kind, const char* message) {
  nb::gil_scoped_acquire locked;
  PyErr_Format(!strcmp(kind, "MemoryError") ? PyExc_MemoryError : PyExc_RuntimeError, "%s: %s",
               kind, message);
}

constexpr uint32_t kNumpyAlignment = 16;

// The address of the memory of an array.
int64_t address(const nb::object& array) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_SIMPLE) != 0) throw nb::python_error();
  const auto number = reinterpret_cast<uintptr_t>(buffer.buf);
  PyBuffer_Release(&buffer);
  return static_cast<int64_t>(number);
}

nb::object to_tuple(const int64_t* numbers, size_t n, int64_t factor = 1) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(n)));
  for (size_t i = 0; i < n; ++i)
    PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i),
                    PyLong_FromLongLong(numbers[i] * factor));
  return tuple;
}

}  // namespace

void forget_numpy() {
  delete numpy;
  numpy = nullptr;
}

void Result::set_shape(husk_dtype dtype, DLDevice device, const std::vector<int64_t>& sizes) {
  dtype_ = dtype;
  device_ = device;
  shape = sizes;
  numpy_shape_.reset();
  const size_t rank = shape.size() / 2;
  contiguous_ = true;
  extent_ = 1;
  int64_t expected = 1;
  for (size_t d = rank; d-- > 0;) {
    if (shape[d] != 1 && shape[rank + d] != expected) contiguous_ = false;
    expected *= shape[d];
    extent_ += (shape[d] - 1) * shape[rank + d];
  }
  for (size_t d = 0; d < rank; ++d)
    if (shape[d] == 0) {
      extent_ = 0;
      contiguous_ = true;
    }
}

void Result::allocate(const ExchangeApi* api, bool is_staged, const char* name) {
  api_ = api;
  if (api)
    allocate_exchange();
  else
    allocate_numpy(is_staged, name);
}

// The allocator of the table has no strides. If the output needs strides, it is asked for as many
// elements as they span, and the tensor gets the sizes and strides before it becomes an object.
void Result::allocate_exchange() {
  const size_t rank = shape.size() / 2;
  DLTensor prototype = {};
  prototype.device = device_;
  prototype.dtype = husk_dtype_to_dlpack(dtype_);
  prototype.ndim = static_cast<int32_t>(rank);
  prototype.shape = shape.data();
  std::vector<int64_t> row;
  if (!contiguous_) {
    row.assign(rank, 1);
    row[0] = extent_;
    prototype.shape = row.data();
  }
  int failed;
  if (device_.device_type == kDLCPU) {
    failed = api_->allocate(&prototype, &managed_, nullptr, &set_error);
  } else {
    // The driver may be asked for memory, and may wait for a thread that needs the GIL:
    // compute-sanitizer takes it in each launch.
    nb::gil_scoped_release unlocked;
    failed = api_->allocate(&prototype, &managed_, nullptr, &set_error);
  }
  if (failed != 0) {
    managed_ = nullptr;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_MemoryError, "the output could not be allocated");
    throw nb::python_error();
  }
  if (!contiguous_) {
    managed_->dl_tensor.shape = shape.data();
    managed_->dl_tensor.strides = shape.data() + rank;
  }
}

void Result::allocate_numpy(bool is_staged, const char* name) {
  if (device_.device_type != kDLCPU && !is_staged)
    throw_invalid_input(
        "output '%s' lies on a GPU, where NumPy has no memory: pass torch tensors, or out=", name);
  const char* text = numpy_name(dtype_);
  if (!text)
    throw_invalid_input("output '%s' has dtype %s, which NumPy does not have: pass torch tensors",
                        name, husk_dtype_name(dtype_));
  nb::object dtype = numpy_object(
      [this](Numpy& all) -> nb::object& { return all.dtypes[dtype_]; },
      [&](const nb::object& module) { return nb::object(module.attr("dtype")(text)); });
  nb::object empty = numpy_object(
      [](Numpy& all) -> nb::object& { return all.empty; },
      [](const nb::object& module) { return nb::object(module.attr("empty")); });
  const size_t rank = shape.size() / 2;
  if (!numpy_shape_.is_valid()) numpy_shape_ = to_tuple(shape.data(), rank);
  if (contiguous_ && alignment <= kNumpyAlignment) {
    object_ = empty(numpy_shape_, dtype);
  } else {
    const auto element = static_cast<int64_t>(husk_dtype_size(dtype_));
    const int64_t slack = alignment <= kNumpyAlignment ? 0 : alignment;
    nb::object memory = empty(extent_ * element + slack, "uint8");
    const int64_t offset = slack ? slack - address(memory) % slack : 0;
    nb::object ndarray = numpy_object(
        [](Numpy& all) -> nb::object& { return all.ndarray; },
        [](const nb::object& module) { return nb::object(module.attr("ndarray")); });
    object_ = ndarray(numpy_shape_, dtype, memory, offset,
                      to_tuple(shape.data() + rank, rank, element));
  }
  if (!view_) view_ = std::make_unique<View>();
  view_->open(object_.ptr(), Access::write, "output", name);
}

void Result::use(PyObject* object, const char* name) {
  object_ = nb::borrow(object);
  if (!view_) view_ = std::make_unique<View>();
  view_->open(object, Access::write, "output", name);
}

void Result::copy(const DLTensor& from, const ExchangeApi* api, husk_engine* engine,
                  const char* name) {
  const auto rank = static_cast<size_t>(from.ndim);
  std::vector<int64_t> sizes(from.shape, from.shape + rank);
  int64_t stride = 1;
  std::vector<int64_t> strides(rank);
  for (size_t d = rank; d-- > 0; stride *= from.shape[d])
    strides[d] = from.strides ? from.strides[d] : stride;
  sizes.insert(sizes.end(), strides.begin(), strides.end());
  set_shape(husk_dtype_from_dlpack(from.dtype), from.device, sizes);
  if (device_.device_type == kDLCPU) {
    allocate(api, false, name);
    DLTensor* to = tensor();
    if (extent_)
      memcpy(static_cast<char*>(to->data) + to->byte_offset,
             static_cast<const char*>(from.data) + from.byte_offset,
             static_cast<size_t>(extent_) * husk_dtype_size(dtype_));
    return;
  }
  if (!api) {
    allocate_numpy(engine != nullptr, name);
    if (!extent_) return;
    DLTensor* to = tensor();
    husk_error error = {};
    husk_status status;
    {
      nb::gil_scoped_release unlocked;
      status = husk_engine_download(engine, nullptr, static_cast<char*>(to->data) + to->byte_offset,
                                    static_cast<const char*>(from.data) + from.byte_offset, bytes(),
                                    &error);
    }
    if (status != HUSK_OK) throw_error(error);
    return;
  }
  // PyTorch copies, on its current stream, from a tensor over the session's memory.
  auto* borrowed = new ManagedTensor{{1, 3}, nullptr, nullptr, 0, from};
  borrowed->dl_tensor.shape = shape.data();
  borrowed->dl_tensor.strides = shape.data() + rank;
  borrowed->deleter = [](ManagedTensor* self) { delete self; };
  void* object = nullptr;
  if (api->object_from_managed(borrowed, &object) != 0) {
    delete borrowed;
    throw nb::python_error();
  }
  object_ = nb::steal(static_cast<PyObject*>(object)).attr("clone")();
}

nb::object Result::finish() {
  if (managed_) {
    void* object = nullptr;
    ManagedTensor* managed = managed_;
    managed_ = nullptr;  // the function takes the tensor, and frees it if it fails
    if (api_->object_from_managed(managed, &object) != 0) throw nb::python_error();
    return nb::steal(static_cast<PyObject*>(object));
  }
  if (view_) view_->close();
  return std::move(object_);
}

void Result::discard() {
  if (managed_ && managed_->deleter) managed_->deleter(managed_);
  managed_ = nullptr;
  if (view_) view_->close();
  object_.reset();
}

}  // namespace husk::python
