#include "error.h"

#include <cctype>
#include <cstdarg>
#include <cstdio>
#include <string>
#include <string_view>

#include "text.h"

namespace husk::python {
namespace {

PyObject* error_classes = nullptr;  // a list, from set_error_classes

// The words of the C interface in messages, and those of Python. A struct's name with a dot stands
// for each of its fields.
constexpr struct {
  std::string_view c, python;
  bool is_struct;
} kWords[] = {
    {"husk_engine_options.", "husk.load(", true},
    {"husk_session_options.", "program.session(", true},
    {"call husk_session_resize with", "make another session for", false},
    {"husk_session_set_arena with more", "call session.lend with more memory", false},
    {"husk_session_set_range narrowed it", "the session's ranges narrowed it", false},
    {"husk_ops_add_all (libhusk_ops) registers the host's operators, husk_engine_add_op one of "
     "your own",
     "register a function for it in ops= of husk.load", false},
    {"husk_engine_add_op", "ops= of husk.load", false},
    {"husk_weights_open", "husk.load with the path of the file", false},
};

// The length of the name of a field at the beginning of a text.
size_t field_length(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && (isalnum(static_cast<unsigned char>(text[n])) || text[n] == '_')) ++n;
  return n;
}

// A message of the C interface in the words of Python.
std::string in_python(std::string text) {
  for (const auto& word : kWords)
    for (size_t at = 0; (at = text.find(word.c, at)) != text.npos; at += word.python.size()) {
      const size_t field = at + word.c.size();
      const size_t length = word.is_struct ? field_length(std::string_view(text).substr(field)) : 0;
      if (word.is_struct) text.insert(field + length, "=...)");
      text.replace(at, word.c.size(), word.python);
    }
  return text;
}

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
  nb::object exception = classes[status](to_str(in_python(printable(error.text)).c_str()),
                                         error.code, error.driver_code, error.step);
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
