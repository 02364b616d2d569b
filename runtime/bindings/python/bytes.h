// Memory of an object of Python, for the length of a call.
#ifndef HUSK_PYTHON_BYTES_H
#define HUSK_PYTHON_BYTES_H

#include <nanobind/nanobind.h>

#include <cstdint>

namespace husk::python {

namespace nb = nanobind;

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

}  // namespace husk::python

#endif
