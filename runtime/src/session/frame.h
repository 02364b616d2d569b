// One function of one session.
#pragma once

#include "session/graph.h"
#include "session/step_arguments.h"

namespace husk::runtime {

struct Program;

// The state of a function in four parts, in the order in which a run uses them: the caller's
// values, the registers, the places of the buffers, the arguments of the steps.
struct Frame {
  Session* session = nullptr;
  Program* program = nullptr;
  Code code;
  IoBinding io;
  Prologue prologue;
  MemoryPlan memory;
  StepArguments arguments;
  Graph graph;
  Array<uint8_t> prepared;  // by step: the last resize wrote its arguments
  uint64_t runs_as_list = 0, runs_as_graph = 0;

  // Does everything that does not depend on shapes. `narrowed` are the ranges of the frame that
  // this one replaces, or null.
  Status prepare(Session* session, uint32_t function, const Interval* narrowed, husk_error* error);
  // Gives device resources back. The session's work must be done.
  void release();

  // Binds the inputs and evaluates the first prologue. Tensors need memory only if `with_data` is
  // set.
  Status bind_inputs(const husk_value* inputs, uint32_t n, bool with_data, husk_error* error);
  // Writes the arguments of steps of later segments if they depend on the inputs alone, for a
  // resize, after those of the first segment. Notes in `prepared` which steps have arguments.
  void prepare_later_segments();
  // Checks the memory outside of the arena whose size `segment` computes, and the outputs that it
  // shapes. Views of steps are checked when their addresses are written.
  Status check_memory(uint32_t segment, husk_error* error) const;

  // Returns whether everything that the checks look at is as remember() saw it.
  bool unchanged() const { return remembered && io.unchanged() && prologue.unchanged(); }
  void remember();

  bool remembered = false;  // a run passed its checks, and its sizes are remembered
};

}  // namespace husk::runtime
