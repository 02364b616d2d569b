// The state of an object of a class of this module.
#ifndef HUSK_PYTHON_OBJECT_H
#define HUSK_PYTHON_OBJECT_H

#include <nanobind/nanobind.h>

#include <memory>

#include "error.h"

namespace husk::python {

namespace nb = nanobind;

// The value of an object of Python: a T, complete from the first moment on.
template <class T>
struct Held {
  std::unique_ptr<T> value;
};

// Puts `value` into an object whose `__init__` runs. Code of Python that ran meanwhile, or another
// thread, may have initialised the object already; then this throws.
template <class T>
void initialise(nb::pointer_and_handle<Held<T>> self, std::unique_ptr<T> value) {
  nb::ft_object_guard guard(self.h);
  if (nb::inst_ready(self.h))
    throw_invalid_argument("the object has been initialised: __init__ is called once");
  new (self.p) Held<T>{std::move(value)};
  nb::inst_mark_ready(self.h);
}

// Returns the T of an object of the class. Throws if the object comes from `__new__` alone.
template <class T>
T& held(nb::handle object) {
  if (!nb::isinstance<Held<T>>(object))
    throw nb::type_error("the object is of another class of husk");
  if (!nb::inst_ready(object))
    throw_invalid_argument("the object has not been initialised: husk.load makes programs");
  return *nb::inst_ptr<Held<T>>(object)->value;
}

}  // namespace husk::python

#endif
