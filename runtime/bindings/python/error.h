// Failures of libhusk as exceptions of Python.
#ifndef HUSK_PYTHON_ERROR_H
#define HUSK_PYTHON_ERROR_H

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <husk/husk.h>

namespace husk::python {

namespace nb = nanobind;

// Names the classes of exceptions: `classes[status]` is raised for a husk_status.
void set_error_classes(nb::object classes);

// Drops the references that this module keeps beside its types, before the interpreter ends.
void forget_error_classes();

// Throws the exception for a failed call.
[[noreturn]] void throw_error(const husk_error& error);

// Throw the exceptions for HUSK_INVALID_INPUT, for HUSK_INVALID_ARGUMENT and for HUSK_INVALID_FILE
// with a text of printf.
[[noreturn]] __attribute__((format(printf, 1, 2))) void throw_invalid_input(const char* format,
                                                                            ...);
[[noreturn]] __attribute__((format(printf, 1, 2))) void throw_invalid_argument(const char* format,
                                                                               ...);
[[noreturn]] __attribute__((format(printf, 1, 2))) void throw_invalid_file(const char* format, ...);

// Calls `call` with an error record, and throws if it fails.
template <class Call>
void check(Call call) {
  husk_error error = {};
  if (call(&error) != HUSK_OK) throw_error(error);
}

// The same without the GIL.
template <class Call>
void check_unlocked(Call call) {
  husk_error error = {};
  husk_status status;
  {
    nb::gil_scoped_release unlocked;
    status = call(&error);
  }
  if (status != HUSK_OK) throw_error(error);
}

}  // namespace husk::python

#endif
