#include "session/prologue.h"

#include <cstring>

namespace husk::runtime {
namespace {

// By code of a scalar op: bit i is set if operand i is a register.
struct RegisterOperands {
  uint8_t mask[128];
};

constexpr RegisterOperands find_register_operands() {
  constexpr uint8_t I = 1, F = 1, Imm = 0, Value = 0, Dim = 0, Text = 0, Nth = 0, _ = 0;
  RegisterOperands table = {};
#define HUSK_SCALAR(code, name, result, a, b, c) \
  table.mask[code] = static_cast<uint8_t>(a | b << 1 | c << 2);
#include <ops.def>
  return table;
}

constexpr RegisterOperands kRegisterOperands = find_register_operands();

}  // namespace

Status Prologue::prepare(const Code& code, const Interval* ranges, const husk_allocator& allocator,
                         husk_error* error) {
  code_ = &code;
  HUSK_TRY(registers.allocate(allocator, code.scalars.size, error));
  HUSK_TRY(intervals.allocate(allocator, code.scalars.size, error));
  HUSK_TRY(remembered_.allocate(allocator, code.scalars.size, error));
  HUSK_TRY(known_.allocate(allocator, code.scalars.size, error));
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

void Prologue::evaluate_known(const InputValue* inputs) {
  for (uint32_t s = 0; s < code_->segments.size; ++s) {
    const fb::Segment& range = code_->segments[s];
    for (uint32_t r = range.scalar_begin(); r < range.scalar_end(); ++r) {
      const fb::Instruction& op = code_->scalars[r];
      const auto kind = static_cast<Scalar>(op.op());
      const uint32_t operands[] = {op.a(), op.b(), op.c()};
      known_[r] = kind != Scalar::op_result && kind != Scalar::op_fresult;
      for (int i = 0; i < 3; ++i)
        if (kRegisterOperands.mask[op.op()] >> i & 1) known_[r] &= is_known(s, operands[i]);
    }
    husk_error ignored;  // the segment may not run for these inputs, and a run makes all checks
    if (s &&
        failed(evaluate(*code_, s, inputs, nullptr, registers.data(), &ignored, known_.data())))
      for (uint32_t r = range.scalar_begin(); r < range.scalar_end(); ++r) known_[r] = 0;
  }
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
