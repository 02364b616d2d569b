#include "passes/registers.h"

#include <algorithm>
#include <bit>

#include <husk/husk.h>

#include "ir/compile_error.h"
#include "ir/op_table.h"

namespace husk::compiler {
namespace {

Slot slot(Scalar kind, int i) { return scalar_op(static_cast<uint16_t>(kind))->slots[i]; }

// Whether the first operand is not a register.
bool takes_no_register(Scalar kind) {
  return slot(kind, 0) != Slot::integer && slot(kind, 0) != Slot::floating;
}

bool is_input_or_constant(Scalar kind) {
  return takes_no_register(kind) && kind != Scalar::op_result && kind != Scalar::op_fresult;
}

bool commutes(Scalar kind) {
  switch (kind) {
    case Scalar::op_add:
    case Scalar::op_mul:
    case Scalar::op_min:
    case Scalar::op_max:
    case Scalar::op_eq:
    case Scalar::op_ne:
    case Scalar::op_and:
    case Scalar::op_or:
    case Scalar::op_bit_and:
    case Scalar::op_bit_or:
    case Scalar::op_bit_xor:
    case Scalar::op_fadd:
    case Scalar::op_fmul:
    case Scalar::op_feq: return true;
    default: return false;
  }
}

// A function without contents. The evaluator needs one for its messages, which are not shown here.
struct EmptyFunction {
  flatbuffers::FlatBufferBuilder builder{256};
  const fb::Function* function;

  EmptyFunction() {
    auto name = builder.CreateString("");
    auto variants = builder.CreateVector(std::vector<flatbuffers::Offset<fb::Variant>>{});
    builder.Finish(fb::CreateFunction(builder, name, 0, 0, variants));
    function = flatbuffers::GetRoot<fb::Function>(builder.GetBufferPointer());
  }
};

}  // namespace

Registers::Registers(const Function& function) : function_(function) {}

uint32_t Registers::integer(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  return emit(Scalar::op_const, 0, static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32));
}

uint32_t Registers::floating(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  return emit(Scalar::op_fconst, 0, static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32));
}

std::optional<int64_t> Registers::constant(uint32_t id) const {
  if (!is(id, Scalar::op_const)) return std::nullopt;
  return immediate(ops_[id]);
}

std::optional<double> Registers::float_constant(uint32_t id) const {
  if (!is(id, Scalar::op_fconst)) return std::nullopt;
  return std::bit_cast<double>(immediate(ops_[id]));
}

uint32_t Registers::emit(Scalar kind, uint32_t a, uint32_t b, uint32_t c) {
  // result(n) differs from segment to segment, so its key has the segment's number.
  const bool reads = kind == Scalar::op_result || kind == Scalar::op_fresult;
  const Key key = {static_cast<uint32_t>(kind), a, b, c,
                   reads ? static_cast<uint32_t>(ends_.size()) : 0};
  uint32_t id;
  if (!insert(key, is_input_or_constant(kind), &id)) return id;
  const fb::Instruction op(static_cast<uint16_t>(kind), 0, a, b, c);
  push(op, range_of(op));
  return id;
}

void Registers::push(const fb::Instruction& op, Interval range) {
  ops_.push_back(op);
  ranges_.push_back(range);
  closed_.push_back(false);
}

bool Registers::insert(const Key& key, bool global, uint32_t* id) {
  auto [entry, inserted] = ids_.try_emplace(key, size());
  *id = entry->second;
  if (inserted && open_blocks_ && !global) block_keys_.push_back(key);
  return inserted;
}

bool Registers::is_global(uint32_t id) const {
  return is_input_or_constant(static_cast<Scalar>(ops_[id].op()));
}

Registers::Block Registers::open_block() {
  ++open_blocks_;
  return {size(), block_keys_.size()};
}

void Registers::close_block(const Block& block) {
  --open_blocks_;
  for (; block_keys_.size() > block.block_keys; block_keys_.pop_back())
    ids_.erase(block_keys_.back());
  for (uint32_t id = block.first; id < size(); ++id) {
    if (is_global(id)) continue;
    closed_[id] = true;
    ranges_[id] = {std::min<int64_t>(ranges_[id].low, 0), std::max<int64_t>(ranges_[id].high, 0)};
  }
}

Interval Registers::leaf_range(Scalar kind, uint32_t a, uint32_t b) const {
  const Value* value = &function_.inputs[a];
  if (kind == Scalar::op_size) return {value->ranges[b].min, value->ranges[b].max};
  if (value->kind == HUSK_VALUE_BOOL) return {0, 1};
  if (kind == Scalar::op_input && !value->ranges.empty())
    return {value->ranges[0].min, value->ranges[0].max};
  return {};
}

Interval Registers::range_of(const fb::Instruction& op) const {
  const auto kind = static_cast<Scalar>(op.op());
  if (kind == Scalar::op_size || kind == Scalar::op_input) return leaf_range(kind, op.a(), op.b());
  // The runtime's intervals take an end at the limit of int64 as "unbounded". The range of an op on
  // a constant at that limit is therefore unknown.
  const uint32_t operands[3] = {op.a(), op.b(), op.c()};
  for (int i = 0; i < 3; ++i) {
    if (slot(kind, i) != Slot::integer) continue;
    const Interval x = ranges_[operands[i]];
    if (x.low == INT64_MAX || x.high == INT64_MIN) return {};
  }
  Code code{};
  code.scalars = {&op, 1};
  return interval(code, 0, ranges_.data());
}

uint32_t Registers::op(Scalar kind, Place place, uint32_t a, uint32_t b, uint32_t c) {
  if (kind == Scalar::op_range) return checked_range(place, a, b, c);
  if (takes_no_register(kind)) {
    const Interval range = kind == Scalar::op_size || kind == Scalar::op_input
                               ? leaf_range(kind, a, b)
                               : Interval{};
    return range.low == range.high ? integer(range.low) : emit(kind, a, b, c);
  }
  if (auto folded = fold(kind, place, a, b, c)) return *folded;
  if (scalar_op(static_cast<uint16_t>(kind))->result == ResultKind::integer) {
    const Interval range = range_of(fb::Instruction(static_cast<uint16_t>(kind), 0, a, b, c));
    if (range.low == range.high && range.bounded()) return integer(range.low);
  }
  // Operands are put in a fixed order, so that equal sums have equal keys: a constant comes second,
  // otherwise the older register first.
  if (commutes(kind)) {
    const bool first = is(a, Scalar::op_const) || is(a, Scalar::op_fconst);
    const bool second = is(b, Scalar::op_const) || is(b, Scalar::op_fconst);
    if (first != second ? first : a > b) std::swap(a, b);
  }
  std::optional<uint32_t> simpler;
  if (kind == Scalar::op_select || kind == Scalar::op_fselect)
    simpler = simplify_choice(kind, a, b, c);
  else if (slot(kind, 0) == Slot::floating)
    simpler = simplify_float(kind, a, b);
  else
    simpler = simplify_int(kind, a, b);
  return simpler ? *simpler : emit(kind, a, b, c);
}

std::optional<uint32_t> Registers::fold(Scalar kind, Place place, uint32_t a, uint32_t b,
                                        uint32_t c) {
  const uint32_t operands[3] = {a, b, c};
  Register registers[4] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    if (slot(kind, static_cast<int>(i)) == Slot::unused) continue;
    if (!is(operands[i], Scalar::op_const) && !is(operands[i], Scalar::op_fconst))
      return std::nullopt;
    registers[i].i = immediate(ops_[operands[i]]);
  }
  static const EmptyFunction empty;
  fb::Instruction scalars[4] = {};
  scalars[3] = fb::Instruction(static_cast<uint16_t>(kind), 0, 0, 1, 2);
  const fb::Segment segment(3, 4, 0, 0, kNone, kNone);
  Code code{};
  code.function = empty.function;
  code.scalars = {scalars, 4};
  code.segments = {&segment, 1};
  husk_error error = {};
  if (evaluate(code, 0, nullptr, nullptr, registers, &error) != Status::ok) {
    if (open_blocks_) return std::nullopt;
    if (!place.line) place = default_place_;
    const bool divides = kind == Scalar::op_floordiv || kind == Scalar::op_mod ||
                         kind == Scalar::op_cdiv;
    const char* name = scalar_op(static_cast<uint16_t>(kind))->name;
    if (divides && registers[1].i == 0) fail(place, "{} divides by zero", name);
    if (kind == Scalar::op_shr) fail(place, "shr by a negative number of bits");
    fail(place, "the result of {} does not fit 64 bits", name);
  }
  if (scalar_op(static_cast<uint16_t>(kind))->result == ResultKind::floating)
    return floating(registers[3].f);
  return integer(registers[3].i);
}

uint32_t Registers::checked_range(Place place, uint32_t a, uint32_t b, uint32_t c) {
  const Interval x = ranges_[a], low = ranges_[b], high = ranges_[c];
  if (x.low >= low.high && x.high <= high.low) return a;
  if (!open_blocks_ && (x.high < low.low || x.low > high.high || low.low > high.high))
    fail(place, "this range can never hold: the value lies in {}..{}", x.low, x.high);
  return emit(Scalar::op_range, a, b, c);
}

bool Registers::holds_always(Scalar kind, Place place, uint32_t a, uint32_t b) const {
  if (kind == Scalar::op_check_stride) return function_.inputs[a].ranges[b].max <= 1;
  const Interval x = ranges_[a];
  if (kind == Scalar::op_check) {
    if (x.low == 0 && x.high == 0 && !open_blocks_) fail(place, "this check can never hold");
    return x.low > 0 || x.high < 0;
  }
  const Interval y = ranges_[b];
  const bool equal = kind == Scalar::op_check_eq;
  if (!open_blocks_ && (x.low > y.high || (equal && x.high < y.low)))
    fail(place, "this check can never hold: the sides lie in {}..{} and {}..{}", x.low, x.high,
         y.low, y.high);
  return a == b || (equal ? x.low == x.high && y.low == y.high && x.low == y.low : x.high <= y.low);
}

void Registers::guard(Scalar kind, Place place, uint32_t a, uint32_t b, uint32_t c) {
  // A check of a comparison becomes the guard that names both sides; a check of an `and` becomes
  // one guard for each operand.
  std::vector<uint32_t> conditions = {a};
  while (!conditions.empty()) {
    Scalar now = kind;
    uint32_t x = conditions.back(), y = b, z = c;
    conditions.pop_back();
    if (kind == Scalar::op_check && (is(x, Scalar::op_eq) || is(x, Scalar::op_le))) {
      now = is(x, Scalar::op_eq) ? Scalar::op_check_eq : Scalar::op_check_le;
      z = b;
      y = ops_[x].b();
      x = ops_[x].a();
    }
    if (holds_always(now, place, x, y)) continue;
    // The text is not part of the key: equal guards keep the first text.
    const Key key = {static_cast<uint32_t>(now), x, now == Scalar::op_check ? 0 : y,
                     now == Scalar::op_check_stride ? z : 0, UINT32_MAX};
    uint32_t id;
    if (!insert(key, false, &id)) continue;
    if (now == Scalar::op_check && is(x, Scalar::op_and)) {
      conditions.push_back(ops_[x].b());
      conditions.push_back(ops_[x].a());
      continue;
    }
    push(fb::Instruction(static_cast<uint16_t>(now), 0, x, y, z), {});
  }
}

}  // namespace husk::compiler
