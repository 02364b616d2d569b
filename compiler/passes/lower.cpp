// Numbers, memory and arguments.
#include <husk/husk.h>

#include <algorithm>
#include <bit>

#include "ir/failure.h"
#include "passes/hull.h"
#include "passes/lowering.h"

namespace husk::compiler {
namespace {

int64_t dense_bytes(husk_dtype dtype, const std::vector<int64_t>& dims) {
  int64_t bytes = dtype_bytes(dtype);
  for (int64_t dim : dims) bytes *= dim;
  return bytes;
}

}  // namespace

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

void VariantLowering::declare(const Statement& s, uint32_t bytes) {
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
  rows_.buffers.push_back(fb::Buffer(static_cast<uint8_t>(space), 0, align_log2(s.align), 0, index, bytes, 0));
  rows_.names.push_back(shared_.strings.intern(s.name.text));
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
  rows_.names.push_back(shared_.strings.intern(name.text));
  return row;
}

uint32_t VariantLowering::view(Place place, uint32_t buffer, uint32_t offset, uint32_t extent) {
  const Interval from = registers_.range(offset), bytes = registers_.range(extent);
  const Interval whole = registers_.range(rows_.buffers[buffer].size());
  if ((from.high < 0 || bytes.high < 0) && !registers_.in_block())
    fail(place, "the offset or the extent of this view is always below 0");
  int64_t end;
  const bool fits = !__builtin_add_overflow(std::max<int64_t>(from.low, 0), std::max<int64_t>(bytes.low, 0), &end) &&
                    end <= whole.high;
  if (!fits && !registers_.in_block() && !left_out_.count(shared_.strings.all()[rows_.names[buffer]]))
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
  registers_.stand_at(o.place);
  const uint32_t buffer = buffer_of(o.name);
  Ids ids = exprs(o.sizes);
  const Ids sizes = ids, strides = exprs(o.strides);
  for (size_t i = 0; i < sizes.size() && !registers_.in_block(); ++i) {
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
    case OperandKind::asserts: return make(ArgumentKind::null, 1);
    case OperandKind::result: return make(ArgumentKind::result, 0);
    case OperandKind::floats:
      return make(ArgumentKind::floats, operands(exprs(o.exprs)), static_cast<uint32_t>(o.exprs.size()));
    case OperandKind::tensors:   // external() says where the items are
      return make(ArgumentKind::tensors, 0, static_cast<uint32_t>(o.items.size()));
    case OperandKind::none: break;
  }
  return make(ArgumentKind::none, 0);
}

}  // namespace husk::compiler
