// The registers of one variant while it is lowered: every expression once, folded as far as the inputs' ranges allow.
//
// Folding computes with the runtime's own evaluator and intervals, so that both sides agree by construction. An op
// whose value nothing needs is dropped later, and its failure with it; a guard and a `range` are kept unless they
// always hold.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "evaluate.h"
#include "ir/tree.h"

namespace husk::compiler {

class Registers {
 public:
  explicit Registers(const Function& function);

  // The registers made from now on belong to the next segment.
  void end_segment() { ends_.push_back(size()); }

  uint32_t integer(int64_t value);
  uint32_t floating(double value);
  // An op of ops.def that is no guard; operands as its row says. Throws Failure at `place` where it always fails.
  uint32_t op(Scalar kind, Place place, uint32_t a, uint32_t b = 0, uint32_t c = 0);
  // A guard; one that always holds leaves nothing. Throws Failure where it never holds.
  void guard(Scalar kind, Place place, uint32_t a, uint32_t b, uint32_t c);

  // Shorthands for passes; they name no place, since they are made of what passed already.
  uint32_t add(uint32_t a, uint32_t b) { return op(Scalar::op_add, {}, a, b); }
  uint32_t sub(uint32_t a, uint32_t b) { return op(Scalar::op_sub, {}, a, b); }
  uint32_t mul(uint32_t a, uint32_t b) { return op(Scalar::op_mul, {}, a, b); }

  uint32_t size() const { return static_cast<uint32_t>(ops_.size()); }
  const std::vector<uint32_t>& segment_ends() const { return ends_; }
  const fb::Instruction& at(uint32_t id) const { return ops_[id]; }
  const std::vector<fb::Instruction>& all() const { return ops_; }
  Interval range(uint32_t id) const { return ranges_[id]; }
  bool is(uint32_t id, Scalar kind) const { return ops_[id].op() == static_cast<uint16_t>(kind); }
  std::optional<int64_t> constant(uint32_t id) const;
  std::optional<double> float_constant(uint32_t id) const;

 private:
  using Key = std::array<uint32_t, 5>;

  uint32_t emit(Scalar kind, uint32_t a, uint32_t b, uint32_t c);
  Interval leaf_range(Scalar kind, uint32_t a, uint32_t b) const;
  Interval range_of(const fb::Instruction& op) const;
  std::optional<uint32_t> fold(Scalar kind, Place place, uint32_t a, uint32_t b, uint32_t c);
  std::optional<uint32_t> simplify_int(Scalar kind, uint32_t a, uint32_t b);
  std::optional<uint32_t> simplify_sum(Scalar kind, uint32_t a, uint32_t b);
  std::optional<uint32_t> simplify_quotient(Scalar kind, uint32_t a, uint32_t b);
  std::optional<uint32_t> simplify_logic(Scalar kind, uint32_t a, uint32_t b);
  std::optional<uint32_t> simplify_choice(Scalar kind, uint32_t a, uint32_t b, uint32_t c);
  std::optional<uint32_t> simplify_float(Scalar kind, uint32_t a, uint32_t b);
  // Throws Failure where the guard never holds.
  bool holds_always(Scalar kind, Place place, uint32_t a, uint32_t b) const;
  uint32_t checked_range(Place place, uint32_t a, uint32_t b, uint32_t c);
  bool is_bool(uint32_t id) const { return ranges_[id].low >= 0 && ranges_[id].high <= 1; }
  bool is_value(uint32_t id, int64_t value) const { return constant(id) == value; }

  const Function& function_;
  std::vector<fb::Instruction> ops_;
  std::vector<Interval> ranges_;
  std::vector<uint32_t> ends_;
  std::map<Key, uint32_t> known_;
};

}  // namespace husk::compiler
