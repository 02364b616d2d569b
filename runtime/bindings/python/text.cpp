#include "text.h"

#include <cstring>

#include <husk/detail/printable.h>

namespace husk::python {

nb::object to_str(const char* text) {
  nb::object result = nb::steal(
      PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(strlen(text)), "backslashreplace"));
  if (!result.is_valid()) throw nb::python_error();
  return result;
}

std::string printable(const char* text) {
  std::string result(4 * strlen(text) + 1, 0);
  detail::write_printable(text, result.data(), result.size());
  result.resize(strlen(result.c_str()));
  return result;
}

std::string printable(nb::handle text) {
  // A str may hold halves of surrogate pairs, which UTF-8 does not have.
  nb::object bytes = nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
  if (!bytes.is_valid()) throw nb::python_error();
  return printable(PyBytes_AsString(bytes.ptr()));
}

}  // namespace husk::python
