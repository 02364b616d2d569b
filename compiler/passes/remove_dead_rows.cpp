#include "passes/remove_dead_rows.h"

#include <algorithm>

#include "ir/op_table.h"

namespace husk::compiler {
namespace {

bool is_register(Slot slot) { return slot == Slot::integer || slot == Slot::floating; }

fb::Segment with_scalars(const fb::Segment& s, uint32_t begin, uint32_t end, uint32_t when) {
  return fb::Segment(begin, end, s.step_begin(), s.step_end(), when, s.back());
}

// Replaces every register that a row names by `visit(register)`.
template <class F>
void replace_registers(VariantRows& rows, F visit) {
  for (fb::Segment& s : rows.segments)
    if (s.when() != kNone) s = with_scalars(s, s.scalar_begin(), s.scalar_end(), visit(s.when()));
  for (fb::Buffer& b : rows.buffers)
    b = fb::Buffer(b.space(), b.device(), b.align_log2(), 0, b.index(), visit(b.size()), 0);
  for (fb::View& v : rows.views) v = fb::View(v.buffer(), visit(v.offset()), visit(v.extent()), 0);
  for (uint32_t& operand : rows.operands) operand = visit(operand);
  for (auto* arguments : {&rows.arguments, &rows.results}) {
    for (fb::Argument& a : *arguments) {
      const auto kind = static_cast<ArgumentKind>(a.kind());
      if (kind == ArgumentKind::integer || kind == ArgumentKind::floating)
        a = fb::Argument(a.kind(), a.access(), a.type(), 0, visit(a.index()), 0, 0);
    }
  }
}

void remove_unused_buffers(VariantRows& rows) {
  std::vector<bool> used(rows.buffers.size());
  for (const fb::View& v : rows.views) used[v.buffer()] = true;
  std::vector<uint32_t> number(rows.buffers.size());
  std::vector<fb::Buffer> kept;
  std::vector<uint32_t> names;
  for (size_t i = 0; i < rows.buffers.size(); ++i) {
    number[i] = static_cast<uint32_t>(kept.size());
    if (!used[i] && rows.buffers[i].space() == static_cast<uint8_t>(Space::arena)) continue;
    kept.push_back(rows.buffers[i]);
    names.push_back(rows.names[i]);
  }
  rows.buffers = std::move(kept);
  rows.names = std::move(names);
  for (fb::View& v : rows.views) v = fb::View(number[v.buffer()], v.offset(), v.extent(), 0);
}

// By register: whether it is kept.
std::vector<bool> find_used(const Registers& registers, VariantRows& rows) {
  std::vector<bool> used(registers.size());
  replace_registers(rows, [&](uint32_t id) {
    used[id] = true;
    return id;
  });
  for (uint32_t id = registers.size(); id-- > 0;) {
    const fb::Instruction& op = registers.at(id);
    const ScalarOp* row = scalar_op(op.op());
    if (row->result == ResultKind::none || op.op() == static_cast<uint16_t>(Scalar::op_range))
      used[id] = true;
    if (!used[id]) continue;
    const uint32_t fields[3] = {op.a(), op.b(), op.c()};
    for (int i = 0; i < 3; ++i)
      if (is_register(row->slots[i])) used[fields[i]] = true;
  }
  return used;
}

bool has_results(const VariantRows& rows, const fb::Segment& s) {
  for (uint32_t n = s.step_begin(); n < s.step_end(); ++n) {
    const fb::Instruction& step = rows.steps[n];
    if (step.op() == static_cast<uint16_t>(Step::op_read)) return true;
    for (uint32_t i = step.b(); i < step.b() + step.aux(); ++i)
      if (rows.arguments[i].kind() == static_cast<uint8_t>(ArgumentKind::result)) return true;
  }
  return false;
}

// Removes segments without scalars and steps. The last segment stays if the segment before it has
// results, since such a segment needs a successor.
void remove_empty_segments(VariantRows& rows) {
  const auto count = static_cast<uint32_t>(rows.segments.size());
  std::vector<uint32_t> number(count);
  std::vector<fb::Segment> kept;
  for (uint32_t i = 0; i < count; ++i) {
    number[i] = static_cast<uint32_t>(kept.size());
    const fb::Segment& s = rows.segments[i];
    const bool empty = s.scalar_begin() == s.scalar_end() && s.step_begin() == s.step_end() &&
                       s.back() == kNone;
    const bool last = i + 1 == count;
    const bool needed = last && (kept.empty() || has_results(rows, rows.segments[i - 1]));
    if (!empty || needed) kept.push_back(s);
  }
  for (fb::Segment& s : kept)
    if (s.back() != kNone)
      s = fb::Segment(s.scalar_begin(), s.scalar_end(), s.step_begin(), s.step_end(), s.when(),
                      number[s.back()]);
  rows.segments = std::move(kept);
}

// Whether each segment runs exactly once: a run may skip one with a condition, and repeats a loop.
std::vector<bool> find_run_once(const VariantRows& rows) {
  std::vector<bool> once(rows.segments.size());
  for (size_t s = 0; s < once.size(); ++s) once[s] = rows.segments[s].when() == kNone;
  for (size_t s = 0; s < once.size(); ++s)
    if (const uint32_t back = rows.segments[s].back(); back != kNone)
      std::fill(once.begin() + back, once.begin() + static_cast<ptrdiff_t>(s) + 1, false);
  return once;
}

// By register: the first segment that can compute it, or kNone if it must stay where it is. It
// leaves no segment that may not run, and goes to none that may run more often or not at all: its
// arithmetic may fail for numbers that only such a segment has.
std::vector<uint32_t> find_first_segments(const Registers& registers, const VariantRows& rows) {
  const std::vector<bool> once = find_run_once(rows);
  std::vector<uint32_t> first(registers.size(), kNone);
  uint32_t segment = 0;
  for (uint32_t id = 0; id < registers.size(); ++id) {
    while (id >= registers.segment_ends()[segment]) ++segment;
    const fb::Instruction& op = registers.at(id);
    const ScalarOp* row = scalar_op(op.op());
    if (registers.is_global(id)) {
      first[id] = 0;
    } else if (registers.is(id, static_cast<Scalar>(op.op()))) {  // in no block
      const uint32_t fields[3] = {op.a(), op.b(), op.c()};
      // An op without operands is a result of the segment before it.
      uint32_t last = 0, operands = 0;
      for (int i = 0; i < 3; ++i) {
        if (!is_register(row->slots[i])) continue;
        last = std::max(last, first[fields[i]]);
        ++operands;
      }
      const bool stays = !operands || last == kNone || row->result == ResultKind::none ||
                         op.op() == static_cast<uint16_t>(Scalar::op_range) || !once[segment] ||
                         !once[last];
      first[id] = stays ? segment : last;
    }
  }
  return first;
}

// By register: the segment that computes it. That is where the text has it, but for the shapes of
// outputs, which are known as early as possible: the memory of an output is the caller's, who
// learns from its shape how large it must be, and the buffer's size may be known earlier than a
// shape that is written at the end.
std::vector<uint32_t> find_segments(const Registers& registers, const VariantRows& rows) {
  const std::vector<uint32_t> first = find_first_segments(registers, rows);
  std::vector<bool> early(registers.size());
  for (const fb::Argument& result : rows.results) {
    if (result.kind() != static_cast<uint8_t>(ArgumentKind::tensor)) continue;
    const fb::Tensor& tensor = rows.tensors[result.index()];
    for (uint32_t i = 0; i < 2u * tensor.rank(); ++i)
      early[rows.operands[tensor.first() + i]] = true;
  }
  std::vector<uint32_t> segments(registers.size());
  auto segment = static_cast<uint32_t>(registers.segment_ends().size()) - 1;
  for (uint32_t id = registers.size(); id-- > 0;) {
    while (segment && id < registers.segment_ends()[segment - 1]) --segment;
    segments[id] = registers.is_global(id) ? 0 : segment;
    if (!early[id] || first[id] == kNone) continue;
    segments[id] = first[id];
    const fb::Instruction& op = registers.at(id);
    const uint32_t fields[3] = {op.a(), op.b(), op.c()};
    for (int i = 0; i < 3; ++i)
      if (is_register(scalar_op(op.op())->slots[i])) early[fields[i]] = true;
  }
  return segments;
}

// Fills in the scalars of all segments. Returns the new number of each register.
std::vector<uint32_t> fill_in_scalars(const Registers& registers, VariantRows& rows) {
  const std::vector<bool> used = find_used(registers, rows);
  const std::vector<uint32_t> segments = find_segments(registers, rows);
  std::vector<uint32_t> number(registers.size());
  auto keep = [&](uint32_t id) {
    number[id] = static_cast<uint32_t>(rows.scalars.size());
    const fb::Instruction& op = registers.at(id);
    const ScalarOp* row = scalar_op(op.op());
    uint32_t fields[3] = {op.a(), op.b(), op.c()};
    for (int i = 0; i < 3; ++i)
      if (is_register(row->slots[i])) fields[i] = number[fields[i]];
    rows.scalars.push_back(fb::Instruction(op.op(), 0, fields[0], fields[1], fields[2]));
  };
  std::vector<std::vector<uint32_t>> kept(rows.segments.size());
  for (uint32_t id = 0; id < registers.size(); ++id)
    if (used[id]) kept[segments[id]].push_back(id);
  for (size_t s = 0; s < rows.segments.size(); ++s) {
    const auto begin = static_cast<uint32_t>(rows.scalars.size());
    for (uint32_t id : kept[s]) keep(id);
    const auto end = static_cast<uint32_t>(rows.scalars.size());
    rows.segments[s] = with_scalars(rows.segments[s], begin, end, rows.segments[s].when());
  }
  return number;
}

}  // namespace

void remove_dead_rows(const Registers& registers, VariantRows& rows) {
  remove_unused_buffers(rows);
  const std::vector<uint32_t> number = fill_in_scalars(registers, rows);
  replace_registers(rows, [&](uint32_t id) { return number[id]; });
  remove_empty_segments(rows);
}

}  // namespace husk::compiler
