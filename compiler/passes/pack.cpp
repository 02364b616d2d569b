#include "passes/pack.h"

#include "ir/words.h"

namespace husk::compiler {
namespace {

bool is_register(Slot slot) { return slot == Slot::I || slot == Slot::F; }

// Calls `visit(uint32_t)` with every register that a row names, and takes what it returns as the new one.
template <class F>
void each_register(VariantRows& rows, F visit) {
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

void drop_buffers(VariantRows& rows) {
  std::vector<bool> used(rows.buffers.size());
  for (const fb::View& v : rows.views) used[v.buffer()] = true;
  std::vector<uint32_t> number(rows.buffers.size());
  std::vector<fb::Buffer> kept;
  for (size_t i = 0; i < rows.buffers.size(); ++i) {
    number[i] = static_cast<uint32_t>(kept.size());
    if (used[i] || rows.buffers[i].space() != static_cast<uint8_t>(Space::arena)) kept.push_back(rows.buffers[i]);
  }
  rows.buffers = std::move(kept);
  for (fb::View& v : rows.views) v = fb::View(number[v.buffer()], v.offset(), v.extent(), 0);
}

std::vector<bool> find_used(const Registers& registers, VariantRows& rows) {
  std::vector<bool> used(registers.size());
  each_register(rows, [&](uint32_t id) {
    used[id] = true;
    return id;
  });
  for (uint32_t id = registers.size(); id-- > 0;) {
    const fb::Instruction& op = registers.at(id);
    const ScalarWord* word = scalar_word(op.op());
    if (word->holds == Holds::None || registers.is(id, Scalar::op_range)) used[id] = true;
    if (!used[id]) continue;
    const uint32_t fields[3] = {op.a(), op.b(), op.c()};
    for (int i = 0; i < 3; ++i)
      if (is_register(word->slots[i])) used[fields[i]] = true;
  }
  return used;
}

}  // namespace

void pack(const Registers& registers, VariantRows& rows) {
  drop_buffers(rows);
  const std::vector<bool> used = find_used(registers, rows);
  std::vector<uint32_t> number(registers.size());
  uint32_t begin = 0, segment = 0;
  auto close_segments = [&](uint32_t id) {
    for (; segment < rows.segments.size() && registers.segment_ends()[segment] == id; ++segment) {
      fb::Segment& s = rows.segments[segment];
      const auto end = static_cast<uint32_t>(rows.scalars.size());
      s = fb::Segment(begin, end, s.step_begin(), s.step_end());
      begin = end;
    }
  };
  for (uint32_t id = 0; id < registers.size(); ++id) {
    close_segments(id);
    if (!used[id]) continue;
    number[id] = static_cast<uint32_t>(rows.scalars.size());
    const fb::Instruction& op = registers.at(id);
    const ScalarWord* word = scalar_word(op.op());
    uint32_t fields[3] = {op.a(), op.b(), op.c()};
    for (int i = 0; i < 3; ++i)
      if (is_register(word->slots[i])) fields[i] = number[fields[i]];
    rows.scalars.push_back(fb::Instruction(op.op(), 0, fields[0], fields[1], fields[2]));
  }
  close_segments(registers.size());
  each_register(rows, [&](uint32_t id) { return number[id]; });
}

}  // namespace husk::compiler
