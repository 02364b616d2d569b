#include "error.h"

#include <cstdarg>
#include <cstdio>

#include "text.h"

namespace husk::python {
namespace {

PyObject* error_classes = nullptr;  // a list, from set_error_classes

}  // namespace

void set_error_classes(nb::object classes) {
  Py_XDECREF(error_classes);
  error_classes = classes.release().ptr();
}

void forget_error_classes() { Py_CLEAR(error_classes); }

void throw_error(const husk_error& error) {
  nb::list classes = nb::borrow<nb::list>(error_classes);
  const size_t known = nb::len(classes);
  // A newer library may have statuses that this module does not know; the class at 0 is for them.
  const size_t status = size_t(error.code) < known ? size_t(error.code) : 0;
  nb::object exception = classes[status](to_str(printable(error.text).c_str()), error.code,
                                         error.driver_code, error.step);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

namespace {

[[noreturn]] void throw_status(husk_status status, const char* format, va_list arguments) {
  husk_error error = {status, 0, -1, {0}};
  vsnprintf(error.text, sizeof error.text, format, arguments);
  va_end(arguments);
  throw_error(error);
}

}  // namespace

void throw_invalid_input(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  throw_status(HUSK_INVALID_INPUT, format, arguments);
}

void throw_invalid_argument(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  throw_status(HUSK_INVALID_ARGUMENT, format, arguments);
}

void throw_invalid_file(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  throw_status(HUSK_INVALID_FILE, format, arguments);
}

}  // namespace husk::python
