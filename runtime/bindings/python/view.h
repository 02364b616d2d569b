// Tensors of Python as DLTensors, without a copy.
#ifndef HUSK_PYTHON_VIEW_H
#define HUSK_PYTHON_VIEW_H

#include <nanobind/nanobind.h>

#include "dlpack.h"

namespace husk::python {

namespace nb = nanobind;

// Returns the functions of the library that the type of `object` belongs to, or NULL if the library
// has no such table (NumPy has none).
const ExchangeApi* exchange_api(PyObject* object);
// Returns the same for a type.
const ExchangeApi* exchange_api_of_type(nb::handle type);

// Drops what exchange_api() remembers about types.
void forget_types();

// Whether memory is only read, or written too.
enum class Access { read, write };

// The memory of a tensor of Python, from open() until close(). There are three ways: the exchange
// table of the tensor's library, the buffer protocol, and the capsule of `__dlpack__`.
class View {
 public:
  View() = default;
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  ~View() { close(); }

  // Throws if `object` is no tensor or, with Access::write, if its memory is read-only. The caller
  // keeps the object alive. `side` and `name` are for messages: "input", "x".
  void open(PyObject* object, Access access, const char* side, const char* name);
  // Does the same, and keeps the memory itself, whatever tensor the object refers to later.
  void keep(PyObject* object, Access access, const char* side, const char* name);
  void close();

  // The sizes and strides are copies, since those of the library may change during a call.
  DLTensor tensor = {};
  const ExchangeApi* api = nullptr;  // the table of the tensor's library; NULL: it has none

 private:
  static constexpr int kMaxRank = 16;

  // `side` and `name` of the tensor that is opened.
  struct Label {
    const char *side, *name;
  };

  void open(PyObject* object, Access access, bool keep, Label label);
  void open_managed(PyObject* object, Access access, Label label);
  bool open_buffer(PyObject* object, Access access, Label label);
  void open_capsule(PyObject* object, Access access, Label label);
  void copy_shape(Label label);

  enum class Owner { none, managed, buffer, capsule };
  Owner owner_ = Owner::none;
  ManagedTensor* managed_ = nullptr;
  Py_buffer buffer_ = {};
  PyObject* capsule_ = nullptr;
  int64_t shape_[kMaxRank], strides_[kMaxRank];
};

}  // namespace husk::python

#endif
