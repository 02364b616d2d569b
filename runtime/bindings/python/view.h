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

// Drops what exchange_api() remembers about types.
void forget_types();

// The memory of a tensor of Python, from open() until close(). There are three ways: the exchange
// table of the tensor's library, the buffer protocol, and the capsule of `__dlpack__`.
class View {
 public:
  View() = default;
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  ~View() { close(); }

  // Throws if `object` is no tensor or, when `writable` is set, if its memory is read-only. The
  // caller keeps the object alive. `side` and `name` are for messages: "input", "x".
  void open(PyObject* object, bool writable, const char* side, const char* name);
  void close();

  DLTensor tensor = {};
  const ExchangeApi* api = nullptr;  // the table of the tensor's library; NULL: it has none

 private:
  static constexpr int kMaxRank = 16;

  bool open_buffer(PyObject* object, bool writable, const char* side, const char* name);
  void open_capsule(PyObject* object, bool writable, const char* side, const char* name);

  enum class Owner { none, buffer, capsule };
  Owner owner_ = Owner::none;
  Py_buffer buffer_ = {};
  PyObject* capsule_ = nullptr;
  int64_t shape_[kMaxRank], strides_[kMaxRank];
};

}  // namespace husk::python

#endif
