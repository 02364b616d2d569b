// Texts of files for Python. A file may hold any bytes where a name is expected.
#ifndef HUSK_PYTHON_TEXT_H
#define HUSK_PYTHON_TEXT_H

#include <nanobind/nanobind.h>

#include <string>

namespace husk::python {

namespace nb = nanobind;

// Returns the text as a str; bytes that are no UTF-8 become \xHH.
nb::object to_str(const char* text);

// Returns the text for a message: everything that is no printable letter is escaped.
std::string printable(const char* text);
std::string printable(nb::handle text);  // of a str

}  // namespace husk::python

#endif
