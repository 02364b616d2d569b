// Steps, blocks and segments.
#include <husk/husk.h>

#include <algorithm>

#include "ir/failure.h"
#include "passes/lowering.h"
#include "passes/pack.h"

namespace husk::compiler {

// `own`: of an extern, how many of the arguments are no items of lists.
void VariantLowering::step(Step kind, const Statement& s, uint32_t row, const std::vector<fb::Argument>& arguments,
                           size_t own) {
  const auto first = static_cast<uint32_t>(rows_.arguments.size());
  rows_.arguments.insert(rows_.arguments.end(), arguments.begin(), arguments.end());
  rows_.steps.push_back(
      fb::Instruction(static_cast<uint16_t>(kind), static_cast<uint16_t>(own), row, first,
                      static_cast<uint32_t>(arguments.size())));
  rows_.origins.push_back(s.has_text ? shared_.strings.intern(s.text) : kNone);
  has_origins_ = has_origins_ || s.has_text;
}

void VariantLowering::launch(const Statement& s) {
  constexpr int64_t kMost[3] = {INT32_MAX, 65535, 65535};
  std::vector<fb::Argument> arguments;
  for (size_t i = 0; i < 3; ++i) {
    const uint32_t id = expr(s.exprs[i]);
    const Interval range = registers_.range(id);
    if ((range.high < 0 || range.low > kMost[i]) && !registers_.in_block())
      fail(s.exprs[i].place, "this side of the grid never lies in 0..{}", kMost[i]);
    arguments.push_back(scalar(id, HUSK_DTYPE_NONE));
  }
  for (const Operand& o : s.operands) arguments.push_back(argument(o));
  step(Step::op_launch, s, names_.kernels.at(s.name.text), arguments);
}

void VariantLowering::copy(const Statement& s) {
  const fb::Argument to = argument(s.operands[0]), from = argument(s.operands[1]);
  const fb::View &target = rows_.views[to.index()], &source = rows_.views[from.index()];
  const Interval x = registers_.range(target.extent()), y = registers_.range(source.extent());
  if ((x.high < y.low || y.high < x.low) && !registers_.in_block())
    fail(s.place, "a copy between views of different extents: {}..{} and {}..{} bytes", x.low, x.high, y.low, y.high);
  const auto a = registers_.constant(target.offset()), b = registers_.constant(source.offset());
  if (target.buffer() == source.buffer() && a && b && x.low > 0 && std::max(*a, *b) - std::min(*a, *b) < x.low)
    fail(s.place, "the views of this copy overlap");
  step(Step::op_copy, s, 0, {to, from});
}

void VariantLowering::external(const Statement& s) {
  std::vector<fb::Argument> arguments;
  for (const Operand& o : s.operands) arguments.push_back(argument(o));
  const size_t own = arguments.size();
  for (size_t i = 0; i < own; ++i) {
    if (s.operands[i].kind == OperandKind::result) brings_ = true;
    if (s.operands[i].kind != OperandKind::tensors) continue;
    const fb::Argument& list = arguments[i];
    arguments[i] = fb::Argument(list.kind(), 0, 0, 0, static_cast<uint32_t>(arguments.size()), list.count(), 0);
    for (const Operand& item : s.operands[i].items) arguments.push_back(argument(item));
  }
  step(Step::op_extern, s, shared_.ops.intern(s.name.text), arguments, own);
}

void VariantLowering::fill(const Statement& s) {
  const fb::Argument target = argument(s.operands[0]);
  step(Step::op_fill, s, 0, {target, scalar(expr(s.exprs[0]), s.dtype)});
}

void VariantLowering::read(const Statement& s) {
  const fb::Argument view = argument(s.operands[0]);
  const Interval bytes = registers_.range(rows_.views[view.index()].extent());
  const int64_t width = dtype_bytes(s.dtype);
  if ((bytes.high < width || bytes.low > width) && !registers_.in_block())
    fail(s.place, "read {} wants a view of {} bytes: write offset and extent", dtype_name(s.dtype), width);
  step(Step::op_read, s, 0,
       {fb::Argument(view.kind(), view.access(), static_cast<uint8_t>(s.dtype), 0, view.index(), 0, 0)});
  brings_ = true;
}

void VariantLowering::end_segment(uint32_t back) {
  const auto end = static_cast<uint32_t>(rows_.steps.size());
  rows_.segments.push_back(fb::Segment(0, 0, step_begin_, end, when_, back));
  step_begin_ = end;
  brings_ = false;
  registers_.end_segment();
}

void VariantLowering::settle() {
  if (brings_) end_segment();
}

// What a block in the one under way runs by: a register that is 0 where this one does not run.
uint32_t VariantLowering::holding(uint32_t condition) {
  return when_ == kNone ? condition : registers_.op(Scalar::op_and, {}, when_, condition);
}

void VariantLowering::when(const Statement& s) {
  settle();
  const uint32_t condition = expr(s.exprs[0]);
  const Interval range = registers_.range(condition);
  const bool always = range.low > 0 || range.high < 0, never = range.low == 0 && range.high == 0;
  if (always || never) {
    if (never) leave_out(s.body);   // what follows may name what it defines
    statements(always ? s.body : s.other);
    settle();
    if (always) leave_out(s.other);
    return;
  }
  const uint32_t first = holding(condition);
  const uint32_t second = s.has_else ? holding(registers_.op(Scalar::op_not, {}, condition)) : kNone;
  end_segment();
  const Lets made = block(first, s.body, kNone);
  if (s.has_else) {
    for (const auto& [name, id] : made) lets_.at(name) = zero(is_float(id));
    const Lets others = block(second, s.other, kNone);
    join(second, others);
  }
  join(first, made);
}

void VariantLowering::loop(const Statement& s) {
  end_segment();
  const auto head = static_cast<uint32_t>(rows_.segments.size());
  statements(s.body);
  settle();
  const uint32_t condition = expr(s.exprs[0]);
  const Interval range = registers_.range(condition);
  if (range.low == 0 && range.high == 0) return leave_out(s.other);
  if (when_ == kNone && (range.low > 0 || range.high < 0))
    fail(s.exprs[0].place, "this loop never ends: its condition is never 0");
  const uint32_t more = holding(condition);
  end_segment();
  block(more, s.other, head);
  clear_lets(s.other);   // the last thing that a loop does is not to run this part
}

// Segments that run by `condition`; with `back` the rest of a loop whose first segment that is. Returns the names that it
// gave to numbers which were not made in it: behind it they are join()ed.
VariantLowering::Lets VariantLowering::block(uint32_t condition, const std::vector<Statement>& all, uint32_t back) {
  const uint32_t outer = when_;
  const size_t first_let = block_lets_.size();
  const Registers::Block registers = registers_.open_block();
  when_ = condition;
  statements(all);
  if (back != kNone) settle();
  end_segment(back);
  when_ = outer;
  Lets lets;
  for (size_t i = first_let; i < block_lets_.size(); ++i) {
    const uint32_t id = lets_.at(block_lets_[i]);
    if (!registers_.belongs(id, registers)) lets.emplace_back(block_lets_[i], id);
  }
  registers_.close_block(registers);
  if (outer == kNone) block_lets_.resize(first_let);
  return lets;
}

void VariantLowering::clear_lets(const std::vector<Statement>& all) {
  for (const Statement& s : all) {
    if (s.kind == StatementKind::let) {
      uint32_t& id = lets_.at(s.name.text);
      id = zero(is_float(id));
    }
    clear_lets(s.body);
    clear_lets(s.other);
  }
}

// Behind a block its names are 0 where it did not run. So is what was made in it; other numbers are made so here.
void VariantLowering::join(uint32_t condition, const Lets& lets) {
  for (const auto& [name, id] : lets)
    lets_.at(name) = registers_.op(is_float(id) ? Scalar::op_fselect : Scalar::op_select, {}, condition, id,
                                   zero(is_float(id)));
}

// What statements that never run leave: their names, as zeros.
void VariantLowering::leave_out(const std::vector<Statement>& all) {
  for (const Statement& s : all) {
    if (s.kind == StatementKind::let) {
      lets_.emplace(s.name.text, zero(holds(s.exprs[0]) == Holds::Float));
      block_lets_.push_back(s.name.text);
    } else if (s.kind == StatementKind::buffer) {
      declare(s, registers_.integer(0));
      left_out_.insert(s.name.text);
    }
    leave_out(s.body);
    leave_out(s.other);
  }
}

Holds VariantLowering::holds(const Expr& e) const {
  switch (e.kind) {
    case ExprKind::integer:
    case ExprKind::boolean: return Holds::Int;
    case ExprKind::floating: return Holds::Float;
    case ExprKind::call: return scalar_word(std::string_view(e.name))->holds;
    case ExprKind::name: break;
  }
  if (auto let = lets_.find(e.name); let != lets_.end()) return is_float(let->second) ? Holds::Float : Holds::Int;
  return function_.inputs[inputs_.at(e.name)].kind == HUSK_VALUE_FLOAT ? Holds::Float : Holds::Int;
}

void VariantLowering::statements(const std::vector<Statement>& all) {
  for (const Statement& s : all) statement(s);
}

void VariantLowering::statement(const Statement& s) {
  if (!brings_values(s)) settle();
  registers_.stand_at(s.place);
  switch (s.kind) {
    case StatementKind::let:
      lets_.emplace(s.name.text, expr(s.exprs[0]));
      if (when_ != kNone) block_lets_.push_back(s.name.text);
      break;
    case StatementKind::check: check(s); break;
    case StatementKind::buffer: declare(s, expr(s.exprs[0])); break;
    case StatementKind::launch: launch(s); break;
    case StatementKind::external: external(s); break;
    case StatementKind::copy: copy(s); break;
    case StatementKind::fill: fill(s); break;
    case StatementKind::read: read(s); break;
    case StatementKind::when: when(s); break;
    case StatementKind::loop: loop(s); break;
  }
}

VariantRows VariantLowering::run(const Variant& variant) {
  rows_.target = names_.targets.at(variant.target.text);
  statements(variant.statements);
  settle();
  for (const ResultItem& item : variant.results) rows_.results.push_back(argument(item.operand));
  end_segment();
  if (!has_origins_) rows_.origins.clear();
  pack(registers_, rows_);
  return std::move(rows_);
}

ProgramRows lower(const Program& program) {
  ProgramRows rows;
  const Names names = {number(program.targets), number(program.constants), number(program.states),
                       number(program.kernels)};
  for (const Function& function : program.functions) {
    rows.functions.emplace_back();
    for (const Variant& variant : function.variants)
      rows.functions.back().push_back(VariantLowering(program, names, function, rows).run(variant));
  }
  return rows;
}

}  // namespace husk::compiler
