// A function with its inputs and outputs on the device, ready to run again and again.
#pragma once

#include <husk/husk.h>

#include <vector>

#include "run/inputs.h"
#include "run/machine.h"
#include "run/report.h"

namespace husk::run {

// Microseconds from the start of a run.
struct RunTime {
  double until_return, until_done;
};

// Owned by the caller of its parts: machine, program and session outlive the call.
class Call {
 public:
  // Uploads the inputs, resizes the session to them, allocates the outputs.
  Call(Machine& machine, const husk_program* program, uint32_t function, husk_session* session,
       const std::vector<Value>& inputs);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Runs once and waits.
  RunTime run();
  // Runs so many times without waiting in between; microseconds a run.
  double run_queued(int runs);
  // The outputs of the last run; those of kind none are left out.
  std::vector<Output> results();

 private:
  void enqueue();

  // A tensor on the device. A husk_value points at its DLTensor, which points at its sizes: rows never move.
  struct Row {
    DLTensor tensor;
    std::vector<int64_t> sizes, strides;
  };

  husk_value_info output_info(uint32_t index) const;
  Row& row_make(husk_dtype dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides);
  husk_value input_make(uint32_t index, const Value& value);
  husk_value output_make(uint32_t index);
  Tensor result(const husk_value& value);

  Machine& machine_;
  const husk_program* program_;
  husk_session* session_;
  uint32_t function_;
  std::vector<Row> rows_;
  std::vector<husk_value> inputs_, outputs_;
};

}  // namespace husk::run
