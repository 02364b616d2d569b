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

// The function and the session that a call runs. `session` is NULL for a session of the program.
struct Callee {
  Program* program;
  SessionState* session;
  uint32_t function;
};

// Runs a function, for `tp_call`. `find` returns what a call of `self` runs, and may throw. `args`
// is a tuple; `kwargs` is a dict or NULL, and may contain `out`, what the results are written to,
// and `stream`, the address of a stream of CUDA. Returns NULL if an exception is set for Python.
PyObject* call_slot(Callee (*find)(PyObject* self), PyObject* self, PyObject* args,
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
  // Calls `body` in a callback of libhusk, which no exception may leave. Returns false if there was
  // one: it is kept until the call of libhusk has returned.
  template <class Body>
  static bool calls(Body body) {
    try {
      body();
      return true;
    } catch (nb::python_error& error) {
      keep(error);
    } catch (const std::bad_alloc&) {
      PyErr_NoMemory();
      keep_raised();
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      keep_raised();
    }
    return false;
  }
  static const ExchangeApi* library();

 private:
  static void keep(nb::python_error& error);
  // Keeps the exception that is set for Python.
  static void keep_raised();

  Interrupt* outer_;
  const ExchangeApi* library_;
  int64_t next_check_ = 0;  // milliseconds
  PyObject* exception_ = nullptr;
};

}  // namespace husk::python

#endif
