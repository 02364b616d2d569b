// Entries of containers of Python as references of their own. The container may change while the
// entry is used: by code of Python that a later step runs, and by other threads.
#ifndef HUSK_PYTHON_OWNED_H
#define HUSK_PYTHON_OWNED_H

#include <nanobind/nanobind.h>

namespace husk::python {

namespace nb = nanobind;

// Returns entry `index` of a list; an invalid object if the list has become too short.
inline nb::object list_item(PyObject* list, Py_ssize_t index) {
#ifdef Py_GIL_DISABLED
  nb::object item = nb::steal(PyList_GetItemRef(list, index));
#else
  nb::object item = nb::borrow(PyList_GetItem(list, index));  // no other thread runs in between
#endif
  if (!item.is_valid()) PyErr_Clear();
  return item;
}

// Returns the value of a key; an invalid object if the dict does not have the key. Throws what the
// comparison of the keys raises.
inline nb::object dict_item(PyObject* dict, PyObject* key) {
#ifdef Py_GIL_DISABLED
  PyObject* found = nullptr;
  if (PyDict_GetItemRef(dict, key, &found) < 0) throw nb::python_error();
  return nb::steal(found);
#else
  nb::object item = nb::borrow(PyDict_GetItemWithError(dict, key));
  if (!item.is_valid() && PyErr_Occurred()) throw nb::python_error();
  return item;
#endif
}

// Returns the keys that a dict has now, as a list.
inline nb::list dict_keys(PyObject* dict) {
  nb::object keys = nb::steal(PyDict_Keys(dict));
  if (!keys.is_valid()) throw nb::python_error();
  return nb::borrow<nb::list>(keys);
}

}  // namespace husk::python

#endif
