#include "session/frame.h"

#include "session/session.h"

namespace husk::runtime {

Status Frame::prepare(Session* owner, uint32_t function, const Interval* narrowed,
                      husk_error* error) {
  session = owner;
  program = owner->program;
  code = program->code(function);
  HUSK_TRY(io.prepare(session, code, narrowed, error));
  HUSK_TRY(prologue.prepare(code, io.ranges.data(), session->allocator(), error));
  HUSK_TRY(io.prepare_outputs(prologue, error));
  HUSK_TRY(memory.prepare(session, code, prologue, io, error));
  HUSK_TRY(prepared.allocate(session->allocator(), code.segments.size, error));
  return arguments.prepare(session, code, prologue, memory, program->packed.of(function), error);
}

void Frame::release() {
  graph.release(*this);
  memory.release_scratch();
  io.release_scratch();
}

Status Frame::bind_inputs(const husk_value* inputs, uint32_t n, bool with_data, husk_error* error) {
  HUSK_TRY(io.bind_inputs(inputs, n, with_data, error));
  prologue.evaluated = 0;
  return prologue.evaluate_segment(0, io.inputs.data(), error);
}

void Frame::prepare_later_segments() {
  husk_error ignored;  // the segment may not run for these inputs, and a run makes all checks
  for (uint32_t s = 1; s < code.segments.size; ++s)
    prepared[s] = prologue.depends_on_inputs(s, prepared.data()) &&
                  !failed(prologue.evaluate_segment(s, io.inputs.data(), &ignored)) &&
                  !failed(arguments.prepare_segment(s, &ignored));
  prologue.evaluated = 1;
}

Status Frame::check_memory(uint32_t segment, husk_error* error) const {
  HUSK_TRY(memory.check_outer_buffers(segment, error));
  for (uint32_t i = io.segment_outputs[segment].checked; i != kNone;
       i = io.output_states[i].next_checked)
    HUSK_TRY(arguments.check_tensor(code.results[i].index(), error));
  return Status::ok;
}

void Frame::remember() {
  io.remember();
  prologue.remember();
  remembered = true;
}

}  // namespace husk::runtime
