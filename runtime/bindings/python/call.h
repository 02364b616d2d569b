// A call of a function from Python.
#ifndef HUSK_PYTHON_CALL_H
#define HUSK_PYTHON_CALL_H

#include <nanobind/nanobind.h>

#include <cstdint>

#include "dlpack.h"

namespace husk::python {

namespace nb = nanobind;

class Program;
class SessionState;

// Runs a function. `session` is NULL for a session of the program. `args` is a tuple and `kwargs` a
// dict or NULL. `out` is None, or what the results are written to; `stream` is None, or the address
// of a stream of CUDA.
nb::object call(Program& program, SessionState* session, uint32_t function, PyObject* args,
                PyObject* kwargs, nb::handle out, nb::handle stream);

// The same for `tp_call`: `kwargs` may contain `out` and `stream`, and an exception is set for
// Python.
PyObject* call_slot(Program& program, SessionState* session, uint32_t function, PyObject* args,
                    PyObject* kwargs);

// While it exists, exceptions of Python that callbacks of this thread raise are kept, and Ctrl-C
// ends a run.
class Interrupt {
 public:
  // `library` is the table of the tensors that operators in Python get; NULL: NumPy.
  explicit Interrupt(const ExchangeApi* library);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Throws the exception that was kept, if there is one.
  void rethrow();

  // husk_engine_options.cancel.
  static int32_t requested(void*);
  // Keeps an exception until the call of libhusk has returned.
  static void keep(nb::python_error& error);
  static const ExchangeApi* library();

 private:
  Interrupt* outer_;
  const ExchangeApi* library_;
  int64_t next_check_ = 0;  // milliseconds
  PyObject* exception_ = nullptr;
};

}  // namespace husk::python

#endif
