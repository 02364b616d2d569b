// The scalar program of a function: one prologue for each segment.
#pragma once

#include "base/memory.h"
#include "model/interval.h"

namespace husk::runtime {

// Calls `visit` with each register that decides an argument of a step.
template <class Visit>
void visit_registers(const Code& code, const fb::Argument& argument, const Visit& visit) {
  uint32_t first = argument.index(), count = 0;
  switch (static_cast<ArgumentKind>(argument.kind())) {
    case ArgumentKind::integer:
    case ArgumentKind::floating: visit(first); break;
    case ArgumentKind::integers:
    case ArgumentKind::floats: count = argument.count(); break;
    case ArgumentKind::tensor:
      count = 2u * code.tensors[first].rank();
      first = code.tensors[first].first();
      break;
    default: break;
  }
  for (uint32_t d = first; d < first + count; ++d) visit(code.operands[d]);
  const uint32_t view = code.view_of(argument);
  if (view == kNone) return;
  visit(code.views[view].offset());
  visit(code.views[view].extent());
  visit(code.buffers[code.views[view].buffer()].size());
}

struct Prologue {
  Array<Register> registers;
  Array<Interval> intervals;  // by register: its values for all shapes that the session allows
  uint32_t evaluated = 0;     // the registers of the first so many segments are of the current run

  // `ranges` are the sizes that the session allows (IoBinding::ranges).
  Status prepare(const Code& code, const Interval* ranges, const husk_allocator& allocator,
                 husk_error* error);

  // Computes the registers of a segment from the inputs and the results of the segment before it.
  Status evaluate_segment(uint32_t segment, const InputValue* inputs, husk_error* error);
  // Computes the registers of later segments that depend on the inputs alone, after the first
  // segment, for a resize.
  void evaluate_known(const InputValue* inputs);
  // Returns whether evaluate_known() knows the value that a register has when `segment` runs.
  bool is_known(uint32_t segment, uint32_t reg) const {
    const uint32_t from = segment_of(reg);
    // The registers of a segment that is skipped are 0.
    return known_[reg] && (from == segment || code_->segments[from].when() == kNone);
  }
  // Writes zeros to the registers and results of a segment that does not run.
  void skip(uint32_t segment);
  // Returns whether the condition of a segment holds.
  bool is_selected(uint32_t segment) const {
    const uint32_t when = code_->segments[segment].when();
    return when == kNone || registers[when].i != 0;
  }
  // Place for the next result that a step of the current segment reads back for later segments.
  Register* next_result() { return &results_[next_result_++]; }

  // Returns whether the first segment's registers are as remember() saw them. The plan depends on
  // them alone; later segments are checked in every run.
  bool unchanged() const;
  void remember();

  bool is_fixed(uint32_t reg) const { return intervals[reg].low == intervals[reg].high; }
  // Returns the segment that computes a register.
  uint32_t segment_of(uint32_t reg) const { return code_->segment_of(reg); }

 private:
  const Code* code_ = nullptr;
  Array<Register> remembered_;
  Array<uint8_t> known_;          // by register
  Array<Register> results_;       // of all segments
  Array<uint32_t> first_result_;  // by segment: its first entry of `results_`; then the end
  uint32_t next_result_ = 0;
};

}  // namespace husk::runtime
