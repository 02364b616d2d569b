#include "read/constant_bytes.h"

#include <algorithm>
#include <set>

#include "ir/op_table.h"
#include "model/shape.h"

namespace husk::compiler {
namespace {

bool is_step(const Code& code, const StepName& wanted) {
  if (wanted.step >= code.steps.size) return false;
  const fb::Instruction& step = code.steps[wanted.step];
  const StepOp* row = step_op(step.op());
  std::string name;
  if (row->row == StepRow::kernel) name = code.program->kernels()->Get(step.a())->name()->str();
  if (row->row == StepRow::op) name = code.program->ops()->Get(step.a())->str();
  return row->name == wanted.kind && name == wanted.name;
}

uint64_t bytes_of(const Code& code, uint32_t index) {
  const fb::Instruction& step = code.steps[index];
  std::set<uint32_t> constants;
  for (uint32_t i = 0; i < step.c(); ++i) {
    const fb::Argument& argument = code.arguments[step.b() + i];
    const uint32_t view = code.view_of(argument);
    if (view == kNone) continue;
    const fb::Buffer& buffer = code.buffers[code.views[view].buffer()];
    if (static_cast<Space>(buffer.space()) == Space::constant) constants.insert(buffer.index());
  }
  uint64_t bytes = 0;
  for (const uint32_t constant : constants)
    bytes += verified_bytes(code.program->constants()->Get(constant));
  return bytes;
}

}  // namespace

std::vector<uint64_t> constant_bytes(const fb::Program& program, const std::string& function,
                                     const std::vector<StepName>& steps) {
  for (const fb::Function* row : *program.functions()) {
    if (row->name()->str() != function) continue;
    for (uint32_t i = 0; i < count(row->variants()); ++i) {
      const Code code(&program, row, row->variants()->Get(i));
      if (!std::all_of(steps.begin(), steps.end(),
                       [&](const StepName& step) { return is_step(code, step); }))
        continue;
      std::vector<uint64_t> bytes;
      for (const StepName& step : steps) bytes.push_back(bytes_of(code, step.step));
      return bytes;
    }
  }
  return {};
}

}  // namespace husk::compiler
