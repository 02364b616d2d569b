// Operators that are functions of Python.
#ifndef HUSK_PYTHON_OP_H
#define HUSK_PYTHON_OP_H

#include <nanobind/nanobind.h>

#include <husk/husk.h>

namespace husk::python {

namespace nb = nanobind;

// The function gets the arguments of the call in the order of husk_op_arg: tensors over the
// program's memory, which are valid during the call, then ints, floats, texts and tuples. It writes
// outputs in place, and returns the numbers of HUSK_ARG_RESULT arguments, if there are any.
class PythonOp {
 public:
  PythonOp(nb::callable function, const husk_port_properties& device)
      : function_(std::move(function)),
        device_{static_cast<DLDeviceType>(device.dl_device_type), device.device_index} {}

  static husk_status call(const husk_op_context* context, const husk_op_arg* args,
                          uint32_t arg_count, husk_error* error);

 private:
  void run(const husk_op_arg* args, uint32_t arg_count);
  nb::object argument(const husk_op_arg& arg) const;
  nb::object tensor(const husk_op_arg& arg) const;

  nb::callable function_;
  DLDevice device_;
};

}  // namespace husk::python

#endif
