#include "passes/lower.h"

#include <husk/husk.h>

#include <bit>

#include "ir/failure.h"
#include "ir/words.h"
#include "passes/hull.h"
#include "passes/pack.h"
#include "passes/registers.h"

namespace husk::compiler {
namespace {

template <class T>
std::map<std::string, uint32_t> number(const std::vector<T>& rows) {
  std::map<std::string, uint32_t> out;
  for (const T& row : rows) out.emplace(row.name.text, static_cast<uint32_t>(out.size()));
  return out;
}

int64_t dense_bytes(husk_dtype dtype, const std::vector<int64_t>& dims) {
  int64_t bytes = dtype_bytes(dtype);
  for (int64_t dim : dims) bytes *= dim;
  return bytes;
}

// Row numbers of the program's names.
struct Names {
  std::map<std::string, uint32_t> targets, constants, states, kernels;
};

class VariantLowering {
 public:
  VariantLowering(const Program& program, const Names& names, const Function& function, ProgramRows& shared)
      : program_(program), names_(names), function_(function), shared_(shared), registers_(function),
        inputs_(number(function.inputs)), outputs_(number(function.outputs)) {}

  VariantRows run(const Variant& variant);

 private:
  using Ids = std::vector<uint32_t>;

  uint32_t expr(const Expr& e);
  uint32_t call(const Expr& e);
  uint32_t named(const Expr& e);
  Ids exprs(const Exprs& all);
  bool is_float(uint32_t id) const { return scalar_word(registers_.at(id).op())->holds == Holds::Float; }

  void statement(const Statement& s);
  void check(const Statement& s);
  void buffer(const Statement& s);
  void step(Step kind, const Statement& s, uint32_t row, const std::vector<fb::Argument>& arguments);
  void launch(const Statement& s);
  void copy(const Statement& s);
  void end_segment();

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
  std::map<Ids, uint32_t> lists_;
  VariantRows rows_;
  uint32_t step_begin_ = 0;
  bool has_origins_ = false;
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
  const ScalarWord* word = scalar_word(std::string_view(e.name));
  uint32_t fields[3] = {0, 0, 0};
  for (size_t i = 0; i < e.operands.size(); ++i) {
    const Expr& operand = e.operands[i];
    switch (word->slots[i]) {
      case Slot::Value: fields[i] = inputs_.at(operand.name); break;
      case Slot::Dim:
      case Slot::Nth: fields[i] = static_cast<uint32_t>(operand.integer); break;
      default: fields[i] = expr(operand);
    }
  }
  return registers_.op(static_cast<Scalar>(word->code), e.place, fields[0], fields[1], fields[2]);
}

VariantLowering::Ids VariantLowering::exprs(const Exprs& all) {
  Ids ids;
  for (const Expr& e : all) ids.push_back(expr(e));
  return ids;
}

void VariantLowering::check(const Statement& s) {
  const ScalarWord* word = scalar_word(std::string_view(s.name.text));
  uint32_t fields[3] = {0, 0, 0};
  for (size_t i = 0; i < 3; ++i) {
    switch (word->slots[i]) {
      case Slot::_: break;
      case Slot::Text: fields[i] = s.has_text ? shared_.strings.intern(s.text) : kNone; break;
      case Slot::Value: fields[i] = inputs_.at(s.exprs[i].name); break;
      case Slot::Dim: fields[i] = static_cast<uint32_t>(s.exprs[i].integer); break;
      default: fields[i] = expr(s.exprs[i]);
    }
  }
  registers_.guard(static_cast<Scalar>(word->code), s.place, fields[0], fields[1], fields[2]);
}

void VariantLowering::buffer(const Statement& s) {
  const uint32_t bytes = expr(s.exprs[0]);
  if (registers_.range(bytes).high < 0) fail(s.place, "buffer '{}' has fewer than 0 bytes", s.name.text);
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
  rows_.buffers.push_back(fb::Buffer(static_cast<uint8_t>(space), 0, align_log2(s.align), 0, index, bytes, 0));
}

uint32_t VariantLowering::buffer_of(const Name& name) {
  if (auto known = buffers_.find(name.text); known != buffers_.end()) return known->second;
  Space space = Space::constant;
  uint32_t index;
  int64_t bytes;
  if (auto constant = names_.constants.find(name.text); constant != names_.constants.end()) {
    index = constant->second;
    bytes = dense_bytes(program_.constants[index].dtype, program_.constants[index].dims);
  } else {
    space = Space::state;
    index = names_.states.at(name.text);
    bytes = dense_bytes(program_.states[index].dtype, program_.states[index].dims);
  }
  const auto row = static_cast<uint32_t>(rows_.buffers.size());
  buffers_.emplace(name.text, row);
  rows_.buffers.push_back(fb::Buffer(static_cast<uint8_t>(space), 0, 0, 0, index, registers_.integer(bytes), 0));
  return row;
}

uint32_t VariantLowering::view(Place place, uint32_t buffer, uint32_t offset, uint32_t extent) {
  const Interval from = registers_.range(offset), bytes = registers_.range(extent);
  const Interval whole = registers_.range(rows_.buffers[buffer].size());
  if (from.high < 0 || bytes.high < 0) fail(place, "the offset or the extent of this view is always below 0");
  int64_t end;
  if (__builtin_add_overflow(from.low > 0 ? from.low : 0, bytes.low > 0 ? bytes.low : 0, &end) || end > whole.high)
    fail(place, "this view never lies in its buffer: it ends at byte {} or later, the buffer has {} at the most", end,
         whole.high);
  auto [row, made] = views_.try_emplace({buffer, offset, extent}, static_cast<uint32_t>(rows_.views.size()));
  if (made) rows_.views.push_back(fb::View(buffer, offset, extent, 0));
  return row->second;
}

uint32_t VariantLowering::view(const Operand& o) {
  const uint32_t buffer = buffer_of(o.name);
  if (o.whole) return view(o.place, buffer, registers_.integer(0), rows_.buffers[buffer].size());
  const uint32_t offset = expr(o.exprs[0]);
  return view(o.place, buffer, offset, expr(o.exprs[1]));
}

uint32_t VariantLowering::operands(const Ids& ids) {
  auto [first, made] = lists_.try_emplace(ids, static_cast<uint32_t>(rows_.operands.size()));
  if (made) rows_.operands.insert(rows_.operands.end(), ids.begin(), ids.end());
  return first->second;
}

uint32_t VariantLowering::tensor(const Operand& o) {
  const uint32_t buffer = buffer_of(o.name);
  Ids ids = exprs(o.sizes);
  const Ids sizes = ids, strides = exprs(o.strides);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (registers_.range(sizes[i]).high < 0) fail(o.sizes[i].place, "this size is always below 0");
    if (registers_.range(strides[i]).high < 0) fail(o.strides[i].place, "this stride is always below 0");
  }
  const uint32_t width = registers_.integer(dtype_bytes(o.dtype));
  const uint32_t offset = o.whole ? registers_.integer(0) : registers_.mul(expr(o.exprs[0]), width);
  const uint32_t extent = registers_.mul(hull(registers_, sizes, strides), width);
  const uint32_t bytes = view(o.place, buffer, offset, extent);
  ids.insert(ids.end(), strides.begin(), strides.end());
  const uint32_t first = operands(ids);
  const auto rank = static_cast<uint32_t>(sizes.size());
  auto [row, made] = tensors_.try_emplace({bytes, first, static_cast<uint32_t>(o.dtype) << 16 | rank},
                                          static_cast<uint32_t>(rows_.tensors.size()));
  if (made)
    rows_.tensors.push_back(fb::Tensor(bytes, first, static_cast<uint8_t>(o.dtype), static_cast<uint8_t>(rank), 0, 0));
  return row->second;
}

fb::Argument VariantLowering::scalar(uint32_t id, husk_dtype type) {
  const auto kind = is_float(id) ? ArgumentKind::floating : ArgumentKind::integer;
  return fb::Argument(static_cast<uint8_t>(kind), 0, static_cast<uint8_t>(type), 0, id, 0, 0);
}

fb::Argument VariantLowering::argument(const Operand& o) {
  auto make = [&](ArgumentKind kind, uint32_t index, uint32_t count = 0) {
    return fb::Argument(static_cast<uint8_t>(kind), o.access, static_cast<uint8_t>(o.dtype), 0, index, count, 0);
  };
  switch (o.kind) {
    case OperandKind::view: return make(ArgumentKind::view, view(o));
    case OperandKind::tensor: {
      fb::Argument out = make(ArgumentKind::tensor, tensor(o));
      out = fb::Argument(out.kind(), out.access(), 0, 0, out.index(), 0, 0);   // the row has the dtype
      return out;
    }
    case OperandKind::scalar: return scalar(expr(o.exprs[0]), HUSK_DTYPE_NONE);
    case OperandKind::list:
      return make(ArgumentKind::integers, operands(exprs(o.exprs)), static_cast<uint32_t>(o.exprs.size()));
    case OperandKind::string: return make(ArgumentKind::string, shared_.strings.intern(o.name.text));
    case OperandKind::dtype: return make(ArgumentKind::dtype, 0);
    case OperandKind::null: return make(ArgumentKind::null, 0);
    case OperandKind::none: break;
  }
  return make(ArgumentKind::none, 0);
}

void VariantLowering::step(Step kind, const Statement& s, uint32_t row, const std::vector<fb::Argument>& arguments) {
  const auto first = static_cast<uint32_t>(rows_.arguments.size());
  rows_.arguments.insert(rows_.arguments.end(), arguments.begin(), arguments.end());
  rows_.steps.push_back(
      fb::Instruction(static_cast<uint16_t>(kind), 0, row, first, static_cast<uint32_t>(arguments.size())));
  rows_.origins.push_back(s.has_text ? shared_.strings.intern(s.text) : kNone);
  has_origins_ = has_origins_ || s.has_text;
}

void VariantLowering::launch(const Statement& s) {
  constexpr int64_t kMost[3] = {INT32_MAX, 65535, 65535};
  std::vector<fb::Argument> arguments;
  for (size_t i = 0; i < 3; ++i) {
    const uint32_t id = expr(s.exprs[i]);
    const Interval range = registers_.range(id);
    if (range.high < 0 || range.low > kMost[i])
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
  if (x.high < y.low || y.high < x.low)
    fail(s.place, "a copy between views of different extents: {}..{} and {}..{} bytes", x.low, x.high, y.low, y.high);
  const auto a = registers_.constant(target.offset()), b = registers_.constant(source.offset());
  if (target.buffer() == source.buffer() && a && b && x.low > 0 && std::max(*a, *b) - std::min(*a, *b) < x.low)
    fail(s.place, "the views of this copy overlap");
  step(Step::op_copy, s, 0, {to, from});
}

void VariantLowering::end_segment() {
  const auto end = static_cast<uint32_t>(rows_.steps.size());
  rows_.segments.push_back(fb::Segment(0, 0, step_begin_, end));
  step_begin_ = end;
  registers_.end_segment();
}

void VariantLowering::statement(const Statement& s) {
  std::vector<fb::Argument> arguments;
  switch (s.kind) {
    case StatementKind::let: lets_.emplace(s.name.text, expr(s.exprs[0])); break;
    case StatementKind::check: check(s); break;
    case StatementKind::buffer: buffer(s); break;
    case StatementKind::launch: launch(s); break;
    case StatementKind::external:
      for (const Operand& o : s.operands) arguments.push_back(argument(o));
      step(Step::op_extern, s, shared_.ops.intern(s.name.text), arguments);
      break;
    case StatementKind::copy: copy(s); break;
    case StatementKind::fill:
      arguments.push_back(argument(s.operands[0]));
      arguments.push_back(scalar(expr(s.exprs[0]), s.dtype));
      step(Step::op_fill, s, 0, arguments);
      break;
    case StatementKind::read: {
      const fb::Argument view = argument(s.operands[0]);
      const Interval bytes = registers_.range(rows_.views[view.index()].extent());
      const int64_t width = dtype_bytes(s.dtype);
      if (bytes.high < width || bytes.low > width)
        fail(s.place, "read {} wants a view of {} bytes: write offset and extent", dtype_name(s.dtype), width);
      step(Step::op_read, s, 0,
           {fb::Argument(view.kind(), view.access(), static_cast<uint8_t>(s.dtype), 0, view.index(), 0, 0)});
      end_segment();
      break;
    }
  }
}

VariantRows VariantLowering::run(const Variant& variant) {
  rows_.target = names_.targets.at(variant.target.text);
  for (const Statement& s : variant.statements) statement(s);
  for (const ResultItem& item : variant.results) rows_.results.push_back(argument(item.operand));
  end_segment();
  if (!has_origins_) rows_.origins.clear();
  pack(registers_, rows_);
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
