#include "session/frame.h"

#include "session/session.h"

namespace husk::runtime {

Status Frame::prepare(Session* owner, uint32_t function, const Interval* narrowed,
                      husk_error* error) {
  session = owner;
  program = owner->program;
  code = program->code(function);
  HUSK_TRY(io.prepare(session, code, program->input_places(function), narrowed, error));
  HUSK_TRY(prologue.prepare(code, io.ranges.data(), session->allocator(), error));
  HUSK_TRY(io.prepare_outputs(prologue, error));
  HUSK_TRY(memory.prepare(session, code, prologue, io, error));
  HUSK_TRY(prepared.allocate(session->allocator(), code.steps.size, error));
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
  husk_error ignored;  // the step may not run for these inputs, and a run makes all checks
  prologue.evaluate_known(io.inputs.data());
  for (uint32_t segment = 0; segment < code.segments.size; ++segment) {
    const fb::Segment& range = code.segments[segment];
    for (uint32_t s = range.step_begin(); s < range.step_end(); ++s) {
      const fb::Instruction& op = code.steps[s];
      bool known = true;
      for (uint32_t i = op.b(); known && i < op.b() + op.c(); ++i)
        visit_registers(code, code.arguments[i],
                        [&](uint32_t reg) { known = known && prologue.is_known(segment, reg); });
      prepared[s] = segment == 0 || (known && !failed(arguments.prepare_step(s, &ignored)));
    }
  }
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
