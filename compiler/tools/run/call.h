// A function with its inputs and outputs on the device, which can run repeatedly.
#pragma once

#include <vector>

#include <husk/husk.h>

#include "run/inputs.h"
#include "run/machine.h"
#include "run/report.h"

namespace husk::run {

// Microseconds from the start of a run.
struct RunTime {
  double until_return, until_done;
};

// Machine, program and session must outlive the call, which does not own them.
class Call {
 public:
  // Uploads the inputs, resizes the session to their shapes and allocates the outputs. Runs are
  // enqueued on `stream`.
  Call(Machine& machine, const husk_program* program, uint32_t function, husk_session* session,
       void* stream, const std::vector<Value>& inputs);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Runs once and waits.
  RunTime run();
  // Enqueues `runs` runs without waiting for each. Returns the microseconds per run.
  double run_queued(int runs);
  // Prepares the session for these shapes again, as the constructor did.
  void resize();
  // The outputs of the last run except those of kind none.
  std::vector<Output> results();

 private:
  void enqueue();

  // A tensor on the device, or on the host beside it. It never moves, since a husk_value points to
  // its DLTensor, which points to its sizes.
  struct DeviceTensor {
    DLTensor tensor;
    std::vector<int64_t> sizes, strides;
  };

  husk_value_info output_info(uint32_t index) const;
  DeviceTensor& device_tensor_make(const husk_value_info& info, husk_dtype dtype,
                                   std::vector<int64_t> sizes, std::vector<int64_t> strides);
  husk_value input_make(uint32_t index, const Value& input);
  husk_value output_make(uint32_t index);
  Tensor result(const husk_value& value);

  Machine& machine_;
  const husk_program* program_;
  husk_session* session_;
  void* stream_;
  uint32_t function_;
  std::vector<DeviceTensor> tensors_;  // reserved once
  std::vector<husk_value> inputs_, outputs_;
};

}  // namespace husk::run
