#include "session/prologue.h"

#include <cstring>

namespace husk::runtime {

Status Prologue::prepare(const Code& code, const Interval* ranges, const husk_allocator& allocator,
                         husk_error* error) {
  code_ = &code;
  HUSK_TRY(registers.allocate(allocator, code.scalars.size, error));
  HUSK_TRY(intervals.allocate(allocator, code.scalars.size, error));
  HUSK_TRY(remembered_.allocate(allocator, code.scalars.size, error));
  HUSK_TRY(first_result_.allocate(allocator, code.segments.size + size_t{1}, error));
  uint32_t results = 0;
  for (uint32_t s = 0; s < code.segments.size; ++s) {
    const fb::Segment& segment = code.segments[s];
    for (uint32_t n = segment.step_begin(); n < segment.step_end(); ++n)
      results += code.result_count(code.steps[n]);
    first_result_[s + 1] = results;
  }
  HUSK_TRY(results_.allocate(allocator, results, error));
  find_intervals(code, ranges, intervals.data());
  return Status::ok;
}

Status Prologue::evaluate_segment(uint32_t segment, const InputValue* inputs, husk_error* error) {
  const Register* before = segment ? results_.data() + first_result_[segment - 1] : nullptr;
  HUSK_TRY(evaluate(*code_, segment, inputs, before, registers.data(), error));
  next_result_ = first_result_[segment];
  if (evaluated <= segment) evaluated = segment + 1;
  return Status::ok;
}

void Prologue::skip(uint32_t segment) {
  const fb::Segment& range = code_->segments[segment];
  for (uint32_t r = range.scalar_begin(); r < range.scalar_end(); ++r) registers[r].i = 0;
  for (uint32_t i = first_result_[segment]; i < first_result_[segment + 1]; ++i) results_[i].i = 0;
  if (evaluated <= segment) evaluated = segment + 1;
}

bool Prologue::unchanged() const {
  const size_t n = code_->segments[0].scalar_end();
  return n == 0 || memcmp(registers.data(), remembered_.data(), n * sizeof(Register)) == 0;
}

void Prologue::remember() {
  const size_t n = code_->segments[0].scalar_end();
  if (n) memcpy(remembered_.data(), registers.data(), n * sizeof(Register));
}

}  // namespace husk::runtime
