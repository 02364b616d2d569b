#include "passes/lower.h"

#include <algorithm>
#include <bit>
#include <set>

#include <husk/husk.h>

#include "base/limits.h"
#include "ir/compile_error.h"
#include "ir/op_table.h"
#include "model/shape.h"
#include "passes/extent.h"
#include "passes/registers.h"
#include "passes/remove_dead_rows.h"

namespace husk::compiler {
namespace {

// The bytes of a constant or state, whose dtype and dims check() has accepted.
int64_t storage_bytes(husk_dtype dtype, const std::vector<int64_t>& dims) {
  uint64_t bytes = 0;
  dense_bytes(static_cast<uint8_t>(dtype), dims.data(), static_cast<uint32_t>(dims.size()), &bytes);
  return static_cast<int64_t>(bytes);
}

// The row number of each name.
template <class T>
std::map<std::string, uint32_t> number(const std::vector<T>& rows) {
  std::map<std::string, uint32_t> out;
  for (const T& row : rows) out.emplace(row.name.text, static_cast<uint32_t>(out.size()));
  return out;
}

// Row numbers of the names of the program's tables.
struct Names {
  std::map<std::string, uint32_t> targets, constants, states, kernels;
};

// Lowers one variant, statement by statement.
class VariantLowering {
 public:
  VariantLowering(const Program& program, const Names& names, const Function& function,
                  ProgramRows& shared)
      : program_(program),
        names_(names),
        function_(function),
        shared_(shared),
        registers_(function),
        inputs_(number(function.inputs)),
        outputs_(number(function.outputs)) {}

  VariantRows run(const Variant& variant);

 private:
  using Ids = std::vector<uint32_t>;
  using Lets = std::vector<std::pair<std::string, uint32_t>>;  // name and register

  uint32_t expr(const Expr& e);
  uint32_t call(const Expr& e);
  uint32_t named(const Expr& e);
  Ids exprs(const Exprs& all);
  bool is_float(uint32_t id) const {
    return scalar_op(registers_.at(id).op())->result == ResultKind::floating;
  }

  void statements(const std::vector<Statement>& all);
  void statement(const Statement& s);
  void when(const Statement& s);
  void loop(const Statement& s);
  Lets block(uint32_t condition, const std::vector<Statement>& all, uint32_t back);
  void zero_lets(const std::vector<Statement>& all);
  void merge_lets(uint32_t condition, const Lets& lets);
  uint32_t zero(bool floating) { return floating ? registers_.floating(0) : registers_.integer(0); }
  void skip(const std::vector<Statement>& all);
  uint32_t nested_condition(uint32_t condition);
  void check(const Statement& s);
  void declare_buffer(const Statement& s, uint32_t bytes);
  ResultKind result_kind_of(const Expr& e) const;
  void step(Step kind, const Statement& s, uint32_t row, const std::vector<fb::Argument>& arguments,
            size_t extern_arguments = 0);
  void launch(const Statement& s);
  void external(const Statement& s);
  void copy(const Statement& s);
  void fill(const Statement& s);
  void read(const Statement& s);
  void end_segment(uint32_t back = kNone);
  // Ends the segment if it has results, since only the next segment can use them.
  void end_segment_with_results();

  fb::Argument argument(const Operand& o);
  fb::Argument scalar(uint32_t id, husk_dtype type);
  uint32_t buffer_of(const Name& name);
  uint32_t view(Place place, uint32_t buffer, uint32_t offset, uint32_t extent);
  uint32_t view(const Operand& o);
  uint32_t tensor(const Operand& o);
  uint32_t operands(const Ids& ids);

  const Program& program_;
  const Names& names_;
  const Function& function_;
  ProgramRows& shared_;
  Registers registers_;
  std::map<std::string, uint32_t> inputs_, outputs_, lets_, buffers_;
  std::map<std::array<uint32_t, 3>, uint32_t> views_;
  std::map<std::array<uint32_t, 3>, uint32_t> tensors_;
  std::map<Ids, uint32_t> operand_lists_;
  VariantRows rows_;
  uint32_t when_ = kNone;                  // condition of the innermost open block, or kNone
  std::vector<std::string> block_lets_;    // names of the lets in all open blocks
  std::set<std::string> skipped_buffers_;  // buffers declared in blocks that never run
  uint32_t step_begin_ = 0;                // first step of the current segment
  bool has_results_ = false;               // whether the current segment has a result
  bool has_origins_ = false;               // whether some step says where in the model it is from
};

uint32_t VariantLowering::expr(const Expr& e) {
  switch (e.kind) {
    case ExprKind::integer:
    case ExprKind::boolean: return registers_.integer(e.integer);
    case ExprKind::floating: return registers_.floating(std::bit_cast<double>(e.bits));
    case ExprKind::name: return named(e);
    case ExprKind::call: break;
  }
  return call(e);
}

uint32_t VariantLowering::named(const Expr& e) {
  if (auto let = lets_.find(e.name); let != lets_.end()) return let->second;
  const uint32_t input = inputs_.at(e.name);
  const bool floating = function_.inputs[input].kind == HUSK_VALUE_FLOAT;
  return registers_.op(floating ? Scalar::op_finput : Scalar::op_input, e.place, input);
}

uint32_t VariantLowering::call(const Expr& e) {
  const ScalarOp* row = scalar_op(std::string_view(e.name));
  uint32_t fields[3] = {0, 0, 0};
  for (size_t i = 0; i < e.operands.size(); ++i) {
    const Expr& operand = e.operands[i];
    switch (row->slots[i]) {
      case Slot::value: fields[i] = inputs_.at(operand.name); break;
      case Slot::dim:
      case Slot::nth: fields[i] = static_cast<uint32_t>(operand.integer); break;
      default: fields[i] = expr(operand);
    }
  }
  return registers_.op(static_cast<Scalar>(row->code), e.place, fields[0], fields[1], fields[2]);
}

VariantLowering::Ids VariantLowering::exprs(const Exprs& all) {
  Ids ids;
  for (const Expr& e : all) ids.push_back(expr(e));
  return ids;
}

void VariantLowering::check(const Statement& s) {
  const ScalarOp* row = scalar_op(std::string_view(s.name.text));
  uint32_t fields[3] = {0, 0, 0};
  for (size_t i = 0; i < 3; ++i) {
    switch (row->slots[i]) {
      case Slot::unused: break;
      case Slot::text: fields[i] = s.has_text ? shared_.strings.intern(s.text) : kNone; break;
      case Slot::value: fields[i] = inputs_.at(s.exprs[i].name); break;
      case Slot::dim: fields[i] = static_cast<uint32_t>(s.exprs[i].integer); break;
      default: fields[i] = expr(s.exprs[i]);
    }
  }
  registers_.guard(static_cast<Scalar>(row->code), s.place, fields[0], fields[1], fields[2]);
}

void VariantLowering::declare_buffer(const Statement& s, uint32_t bytes) {
  if (registers_.range(bytes).high < 0 && !registers_.in_block())
    fail(s.place, "buffer '{}' has fewer than 0 bytes", s.name.text);
  Space space = Space::arena;
  uint32_t index = kNone;
  if (s.of == BufferOf::input) {
    space = Space::input;
    index = inputs_.at(s.name.text);
  } else if (s.of == BufferOf::output) {
    space = Space::output;
    index = outputs_.at(s.name.text);
  }
  buffers_.emplace(s.name.text, static_cast<uint32_t>(rows_.buffers.size()));
  const Device device = s.on_host ? Device::host : Device::target;
  rows_.buffers.push_back(fb::Buffer(static_cast<uint8_t>(space), static_cast<uint8_t>(device),
                                     align_log2(s.align), 0, index, bytes, 0));
  rows_.names.push_back(shared_.strings.intern(s.name.text));
}

uint32_t VariantLowering::buffer_of(const Name& name) {
  if (auto known = buffers_.find(name.text); known != buffers_.end()) return known->second;
  Space space = Space::constant;
  uint32_t index;
  int64_t bytes;
  if (auto constant = names_.constants.find(name.text); constant != names_.constants.end()) {
    index = constant->second;
    bytes = storage_bytes(program_.constants[index].dtype, program_.constants[index].dims);
  } else {
    space = Space::state;
    index = names_.states.at(name.text);
    bytes = storage_bytes(program_.states[index].dtype, program_.states[index].dims);
  }
  const auto row = static_cast<uint32_t>(rows_.buffers.size());
  buffers_.emplace(name.text, row);
  rows_.buffers.push_back(
      fb::Buffer(static_cast<uint8_t>(space), 0, 0, 0, index, registers_.integer(bytes), 0));
  rows_.names.push_back(shared_.strings.intern(name.text));
  return row;
}

uint32_t VariantLowering::view(Place place, uint32_t buffer, uint32_t offset, uint32_t extent) {
  const Interval from = registers_.range(offset), bytes = registers_.range(extent);
  const Interval whole = registers_.range(rows_.buffers[buffer].size());
  if ((from.high < 0 || bytes.high < 0) && !registers_.in_block())
    fail(place, "the offset or the extent of this view is always below 0");
  int64_t end;
  const bool fits = !__builtin_add_overflow(std::max<int64_t>(from.low, 0),
                                            std::max<int64_t>(bytes.low, 0), &end) &&
                    end <= whole.high;
  if (!fits && !registers_.in_block() &&
      !skipped_buffers_.count(shared_.strings.all()[rows_.names[buffer]]))
    fail(place,
         "this view never lies in its buffer: it ends at byte {} or later, the buffer has {} at "
         "the most",
         end, whole.high);
  auto [row, inserted] = views_.try_emplace({buffer, offset, extent},
                                            static_cast<uint32_t>(rows_.views.size()));
  if (inserted) rows_.views.push_back(fb::View(buffer, offset, extent, 0));
  return row->second;
}

uint32_t VariantLowering::view(const Operand& o) {
  const uint32_t buffer = buffer_of(o.name);
  if (o.whole) return view(o.place, buffer, registers_.integer(0), rows_.buffers[buffer].size());
  const uint32_t offset = expr(o.exprs[0]);
  return view(o.place, buffer, offset, expr(o.exprs[1]));
}

uint32_t VariantLowering::operands(const Ids& ids) {
  auto [first, inserted] = operand_lists_.try_emplace(ids,
                                                      static_cast<uint32_t>(rows_.operands.size()));
  if (inserted) rows_.operands.insert(rows_.operands.end(), ids.begin(), ids.end());
  return first->second;
}

uint32_t VariantLowering::tensor(const Operand& o) {
  registers_.set_default_place(o.place);
  const uint32_t buffer = buffer_of(o.name);
  Ids ids = exprs(o.sizes);
  const Ids sizes = ids, strides = exprs(o.strides);
  for (size_t i = 0; i < sizes.size() && !registers_.in_block(); ++i) {
    if (registers_.range(sizes[i]).high < 0) fail(o.sizes[i].place, "this size is always below 0");
    if (registers_.range(strides[i]).high < 0)
      fail(o.strides[i].place, "this stride is always below 0");
  }
  const uint32_t width = registers_.integer(dtype_bytes(o.dtype));
  const uint32_t offset = o.whole ? registers_.integer(0) : registers_.mul(expr(o.exprs[0]), width);
  const uint32_t extent = registers_.mul(strided_extent(registers_, sizes, strides), width);
  const uint32_t bytes = view(o.place, buffer, offset, extent);
  ids.insert(ids.end(), strides.begin(), strides.end());
  const uint32_t first = operands(ids);
  const auto rank = static_cast<uint32_t>(sizes.size());
  auto [row, inserted] = tensors_.try_emplace(
      {bytes, first, static_cast<uint32_t>(o.dtype) << 16 | rank},
      static_cast<uint32_t>(rows_.tensors.size()));
  if (inserted)
    rows_.tensors.push_back(
        fb::Tensor(bytes, first, static_cast<uint8_t>(o.dtype), static_cast<uint8_t>(rank), 0, 0));
  return row->second;
}

fb::Argument VariantLowering::scalar(uint32_t id, husk_dtype type) {
  const auto kind = is_float(id) ? ArgumentKind::floating : ArgumentKind::integer;
  return fb::Argument(static_cast<uint8_t>(kind), 0, static_cast<uint8_t>(type), 0, id, 0, 0);
}

fb::Argument VariantLowering::argument(const Operand& o) {
  auto make = [&](ArgumentKind kind, uint32_t index, uint32_t count = 0) {
    return fb::Argument(static_cast<uint8_t>(kind), o.access, static_cast<uint8_t>(o.dtype), 0,
                        index, count, 0);
  };
  switch (o.kind) {
    case OperandKind::view: return make(ArgumentKind::view, view(o));
    case OperandKind::tensor:
      // The dtype stands in the tensor's row, not in the argument.
      return fb::Argument(static_cast<uint8_t>(ArgumentKind::tensor), o.access, 0, 0, tensor(o), 0,
                          0);
    case OperandKind::scalar: return scalar(expr(o.exprs[0]), HUSK_DTYPE_NONE);
    case OperandKind::list:
      return make(ArgumentKind::integers, operands(exprs(o.exprs)),
                  static_cast<uint32_t>(o.exprs.size()));
    case OperandKind::string:
      return make(ArgumentKind::string, shared_.strings.intern(o.name.text));
    case OperandKind::dtype: return make(ArgumentKind::dtype, 0);
    case OperandKind::null: return make(ArgumentKind::null, 0);
    case OperandKind::asserts: return make(ArgumentKind::null, 1);
    case OperandKind::result: return make(ArgumentKind::result, 0);
    case OperandKind::floats:
      return make(ArgumentKind::floats, operands(exprs(o.exprs)),
                  static_cast<uint32_t>(o.exprs.size()));
    case OperandKind::tensors:  // external() sets the index of the first item
      return make(ArgumentKind::tensors, 0, static_cast<uint32_t>(o.items.size()));
    case OperandKind::none: break;
  }
  return make(ArgumentKind::none, 0);
}

// Appends a step. `extern_arguments` is the number of an extern's arguments without the items of
// its tensor lists; 0 for other steps.
void VariantLowering::step(Step kind, const Statement& s, uint32_t row,
                           const std::vector<fb::Argument>& arguments, size_t extern_arguments) {
  const auto first = static_cast<uint32_t>(rows_.arguments.size());
  rows_.arguments.insert(rows_.arguments.end(), arguments.begin(), arguments.end());
  rows_.steps.push_back(fb::Instruction(static_cast<uint16_t>(kind),
                                        static_cast<uint16_t>(extern_arguments), row, first,
                                        static_cast<uint32_t>(arguments.size())));
  rows_.origins.push_back(s.has_text ? shared_.strings.intern(s.text) : kNone);
  has_origins_ = has_origins_ || s.has_text;
}

void VariantLowering::launch(const Statement& s) {
  constexpr int64_t kMost[3] = {limits::kMaxGridX, limits::kMaxGridY, limits::kMaxGridZ};
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
    fail(s.place, "a copy between views of different extents: {}..{} and {}..{} bytes", x.low,
         x.high, y.low, y.high);
  const auto a = registers_.constant(target.offset()), b = registers_.constant(source.offset());
  if (target.buffer() == source.buffer() && a && b && x.low > 0 &&
      std::max(*a, *b) - std::min(*a, *b) < x.low)
    fail(s.place, "the views of this copy overlap");
  step(Step::op_copy, s, 0, {to, from});
}

void VariantLowering::external(const Statement& s) {
  std::vector<fb::Argument> arguments;
  for (const Operand& o : s.operands) arguments.push_back(argument(o));
  const size_t count = arguments.size();
  for (size_t i = 0; i < count; ++i) {
    if (s.operands[i].kind == OperandKind::result) has_results_ = true;
    if (s.operands[i].kind != OperandKind::tensors) continue;
    const fb::Argument& list = arguments[i];
    arguments[i] = fb::Argument(list.kind(), 0, 0, 0, static_cast<uint32_t>(arguments.size()),
                                list.count(), 0);
    for (const Operand& item : s.operands[i].items) arguments.push_back(argument(item));
  }
  step(Step::op_extern, s, shared_.ops.intern(s.name.text), arguments, count);
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
    fail(s.place, "read {} wants a view of {} bytes: write offset and extent", dtype_name(s.dtype),
         width);
  step(Step::op_read, s, 0,
       {fb::Argument(view.kind(), view.access(), static_cast<uint8_t>(s.dtype), 0, view.index(), 0,
                     0)});
  has_results_ = true;
}

void VariantLowering::end_segment(uint32_t back) {
  const auto end = static_cast<uint32_t>(rows_.steps.size());
  rows_.segments.push_back(fb::Segment(0, 0, step_begin_, end, when_, back));
  step_begin_ = end;
  has_results_ = false;
  registers_.end_segment();
}

void VariantLowering::end_segment_with_results() {
  if (has_results_) end_segment();
}

// Condition of a nested block: `condition` and the condition of the enclosing block.
uint32_t VariantLowering::nested_condition(uint32_t condition) {
  return when_ == kNone ? condition : registers_.op(Scalar::op_and, {}, when_, condition);
}

void VariantLowering::when(const Statement& s) {
  end_segment_with_results();
  const uint32_t condition = expr(s.exprs[0]);
  const Interval range = registers_.range(condition);
  const bool always = range.low > 0 || range.high < 0, never = range.low == 0 && range.high == 0;
  if (always || never) {
    if (never) skip(s.body);  // statements of the else branch may use its names
    statements(always ? s.body : s.other);
    end_segment_with_results();
    if (always) skip(s.other);
    return;
  }
  const uint32_t then_condition = nested_condition(condition);
  const uint32_t else_condition = s.has_else ? nested_condition(
                                                   registers_.op(Scalar::op_not, {}, condition))
                                             : kNone;
  end_segment();
  const Lets then_lets = block(then_condition, s.body, kNone);
  if (s.has_else) {
    for (const auto& [name, id] : then_lets) lets_.at(name) = zero(is_float(id));
    const Lets else_lets = block(else_condition, s.other, kNone);
    merge_lets(else_condition, else_lets);
  }
  merge_lets(then_condition, then_lets);
}

void VariantLowering::loop(const Statement& s) {
  end_segment();
  const auto head = static_cast<uint32_t>(rows_.segments.size());
  statements(s.body);
  end_segment_with_results();
  const uint32_t condition = expr(s.exprs[0]);
  const Interval range = registers_.range(condition);
  if (range.low == 0 && range.high == 0) return skip(s.other);
  if (when_ == kNone && (range.low > 0 || range.high < 0))
    fail(s.exprs[0].place, "this loop never ends: its condition is never 0");
  const uint32_t again = nested_condition(condition);
  end_segment();
  block(again, s.other, head);
  zero_lets(s.other);  // the last iteration of a loop leaves this part out
}

// Lowers statements that run only if `condition` is not 0. If `back` names a segment, they are the
// tail of the loop that begins there. Returns the lets that name registers from outside of the
// block; the caller merges them with merge_lets().
VariantLowering::Lets VariantLowering::block(uint32_t condition, const std::vector<Statement>& all,
                                             uint32_t back) {
  const uint32_t outer = when_;
  const size_t first_let = block_lets_.size();
  const Registers::Block registers = registers_.open_block();
  when_ = condition;
  statements(all);
  if (back != kNone) end_segment_with_results();
  end_segment(back);
  when_ = outer;
  Lets lets;
  for (size_t i = first_let; i < block_lets_.size(); ++i) {
    const uint32_t id = lets_.at(block_lets_[i]);
    if (!registers_.is_in_block(id, registers)) lets.emplace_back(block_lets_[i], id);
  }
  registers_.close_block(registers);
  if (outer == kNone) block_lets_.resize(first_let);
  return lets;
}

void VariantLowering::zero_lets(const std::vector<Statement>& all) {
  for (const Statement& s : all) {
    if (s.kind == StatementKind::let) {
      uint32_t& id = lets_.at(s.name.text);
      id = zero(is_float(id));
    }
    zero_lets(s.body);
    zero_lets(s.other);
  }
}

// The names of a block must read 0 after a block that did not run. Registers created in the block
// already do; for `lets`, which name other registers, this inserts select(condition, value, 0).
void VariantLowering::merge_lets(uint32_t condition, const Lets& lets) {
  for (const auto& [name, id] : lets)
    lets_.at(name) = registers_.op(is_float(id) ? Scalar::op_fselect : Scalar::op_select, {},
                                   condition, id, zero(is_float(id)));
}

// Lowers statements that never run: their lets are 0, their buffers have 0 bytes.
void VariantLowering::skip(const std::vector<Statement>& all) {
  for (const Statement& s : all) {
    if (s.kind == StatementKind::let) {
      lets_.emplace(s.name.text, zero(result_kind_of(s.exprs[0]) == ResultKind::floating));
      block_lets_.push_back(s.name.text);
    } else if (s.kind == StatementKind::buffer) {
      declare_buffer(s, registers_.integer(0));
      skipped_buffers_.insert(s.name.text);
    }
    skip(s.body);
    skip(s.other);
  }
}

ResultKind VariantLowering::result_kind_of(const Expr& e) const {
  switch (e.kind) {
    case ExprKind::integer:
    case ExprKind::boolean: return ResultKind::integer;
    case ExprKind::floating: return ResultKind::floating;
    case ExprKind::call: return scalar_op(std::string_view(e.name))->result;
    case ExprKind::name: break;
  }
  if (auto let = lets_.find(e.name); let != lets_.end())
    return is_float(let->second) ? ResultKind::floating : ResultKind::integer;
  return function_.inputs[inputs_.at(e.name)].kind == HUSK_VALUE_FLOAT ? ResultKind::floating
                                                                       : ResultKind::integer;
}

void VariantLowering::statements(const std::vector<Statement>& all) {
  for (const Statement& s : all) statement(s);
}

void VariantLowering::statement(const Statement& s) {
  if (!has_results(s)) end_segment_with_results();
  registers_.set_default_place(s.place);
  switch (s.kind) {
    case StatementKind::let:
      lets_.emplace(s.name.text, expr(s.exprs[0]));
      if (when_ != kNone) block_lets_.push_back(s.name.text);
      break;
    case StatementKind::check: check(s); break;
    case StatementKind::buffer: declare_buffer(s, expr(s.exprs[0])); break;
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
  end_segment_with_results();
  for (const ResultItem& item : variant.results) rows_.results.push_back(argument(item.operand));
  end_segment();
  if (!has_origins_) rows_.origins.clear();
  remove_dead_rows(registers_, rows_);
  return std::move(rows_);
}

}  // namespace

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
