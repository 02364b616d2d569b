// The steps of a function with their arguments, ready to be enqueued.
#pragma once

#include <husk/op.h>
#include <husk/port.h>

#include "session/memory_plan.h"

namespace husk::runtime {

struct StepState {
  husk_launch launch;
  const uint8_t* types;    // dtypes of a kernel's parameters
  uint64_t length;         // bytes of a copy, elements of a fill
  uint32_t first_dynamic;  // index of the step's first argument in the list of dynamic arguments
  uint32_t first_pair;     // index of the step's first pair in the list of written tensors
  Device device;           // the host does its steps itself, after the work on the stream
};

// A tensor that an op writes, and another argument of the same call in the same memory; or only the
// written tensor. `written` and `other` are arguments of the variant, and equal in the second case.
struct WrittenPair {
  uint32_t written, other;
  bool may_be_same;  // the contract allows that both are one tensor
};

// The launches that one call of the port takes, from a certain step on.
struct LaunchGroup {
  uint32_t end;               // the step after them; 0 if the step is no launch
  husk_linked_launches code;  // of the object file; null if there is none for them
};

// Arguments that the session's ranges fix are written once per assignment of addresses; the others,
// the dynamic ones, in each run in which something changed.
struct StepArguments {
  Array<uint64_t> values;  // by argument: the bytes of a kernel parameter, an address, a fill value
  Array<StepState> states;  // by step, with one more at the end

  // `prologue` and `memory` must be prepared. `packed` has the copies of the function's constants
  // (PackedConstants::of).
  Status prepare(Session* session, const Code& code, Prologue& prologue, const MemoryPlan& memory,
                 const void* const* packed, husk_error* error);

  // Writes the arguments of a segment's steps and checks the views among them. With
  // `nothing_changed`, arguments that were written for the current addresses stay. Fails if a
  // number does not fit its parameter, or a view does not lie in its buffer.
  Status write_segment(uint32_t segment, bool nothing_changed, husk_error* error);
  // Writes the arguments as write_segment does, and calls `prepare` of the operators instead of
  // leaving them for the run.
  Status prepare_segment(uint32_t segment, husk_error* error);
  // Does the same for one step.
  Status prepare_step(uint32_t step, husk_error* error);

  // Begins a run of the list of steps, on a stream that may have work.
  void begin_list() { stream_is_idle_ = false; }
  // Enqueues a step. Does nothing for an empty grid, copy or fill.
  Status run_step(uint32_t step, void* stream, husk_error* error);
  // Enqueues the steps from `*step` to `end`, as many at once as the port allows: advances `*step`
  // past those that were enqueued, and to the one that failed.
  Status run_steps(uint32_t* step, uint32_t end, void* stream, husk_error* error);
  bool is_empty(uint32_t step) const;
  // Bytes of an element of a fill.
  uint32_t fill_width(uint32_t step) const;
  template <class Work>
  Status in_blocks(uint32_t step, uint64_t width, husk_error* error, const Work& work) const;
  // The name of the kernel or operator; "" for other steps.
  const char* step_name(uint32_t step) const;
  // Puts the step before the message of `error`, which may be null.
  void add_step_context(uint32_t step, husk_error* error) const;

  // An argument of an operator's call, as it was written last.
  const husk_op_arg& operand(uint32_t argument) const { return op_args_[argument]; }
  // Changes the address of a tensor in an operator's call until the arguments are written again.
  void set_operand_address(uint32_t argument, void* data) { op_args_[argument].data = data; }
  // Returns whether operators may find packed copies of constants.
  bool has_packed() const { return packed_ != nullptr; }

  // Checks that a tensor lies in its view, and the view in its buffer.
  Status check_tensor(uint32_t tensor, husk_error* error) const;

 private:
  bool is_static(const fb::Argument& argument) const;
  Status prepare_groups(husk_error* error);
  Status write_step(uint32_t step, bool all, husk_error* error);
  Status write_operator_arguments(uint32_t step, husk_error* error);
  Status prepare_pairs(uint32_t step, Array<uint32_t>* first_in, Array<uint32_t>* next,
                       husk_error* error);
  Status check_elements(uint32_t step, husk_error* error) const;
  Status check_pairs(uint32_t step, husk_error* error);
  Status check_copy(uint32_t step, husk_error* error) const;
  Status check_view(const fb::View& view, const Register* registers, husk_error* error) const;
  Status read_result(uint32_t step, void* stream, husk_error* error);
  Status wait_for_stream(void* stream, husk_error* error);
  Status call_operator(uint32_t step, bool prepare, void* stream, husk_error* error);

  Session* session_ = nullptr;
  const Code* code_ = nullptr;
  Prologue* prologue_ = nullptr;
  const MemoryPlan* memory_ = nullptr;
  const void* const* packed_ = nullptr;  // by argument
  Array<void*> params_;                  // by argument: the address of its entry of `values`
  // By step; empty if the port takes one launch at a time.
  Array<husk_listed_launch> launches_;
  Array<LaunchGroup> groups_;
  Array<uint32_t> dynamic_;      // arguments that may change from run to run, in the order of steps
  Array<uint64_t> written_for_;  // by segment: the binding generation that its arguments are for
  bool preparing_ = false;       // operators prepare themselves for the arguments that are written
  uint32_t unasked_pairs_ = 0;   // that were checked since the application was asked
  bool stream_is_idle_ = false;  // the run has enqueued nothing since it last waited
  // Only if the function has extern steps:
  Array<husk_op_arg> op_args_;  // by argument
  Array<int64_t> op_sizes_;     // by operand: a size, a stride or another number of a list
  List<WrittenPair> pairs_;     // of the ops that have a contract, in the order of steps
  uint64_t search_work_ = 0;    // that checks of pairs of the segment may still take
};

}  // namespace husk::runtime
