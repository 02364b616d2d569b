// The registers of one variant while it is lowered: every expression once, folded as far as the inputs' ranges allow.
//
// Folding computes with the runtime's own evaluator and intervals, so that both sides agree by construction. An op
// whose value nothing needs is dropped later, and its failure with it; a guard and a `range` are kept unless they
// always hold.
//
// A block is a part that may not run; its registers are 0 then. So what is made in it is folded into nothing outside:
// behind the block a register of it is only a number that may also be 0. Inputs and constants are of no block: pack()
// puts them into the first segment, which always runs.
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
  // An op of ops.def that is no guard; operands as its row says. Throws Failure at `place` where it always fails, but
  // not in a block: that may not run.
  uint32_t op(Scalar kind, Place place, uint32_t a, uint32_t b = 0, uint32_t c = 0);
  // A guard; one that always holds leaves nothing. Throws Failure where it never holds, but not in a block.
  void guard(Scalar kind, Place place, uint32_t a, uint32_t b, uint32_t c);

  // What is made from open_block() to the close_block() that is given its result belongs to a block.
  struct Block {
    uint32_t first;   // register
    size_t known;
  };
  Block open_block();
  void close_block(const Block& block);
  // Whether what is made now may not run: then what never works is no error yet.
  bool in_block() const { return open_blocks_ > 0; }
  // Whether a register is 0 where the block did not run.
  bool belongs(uint32_t id, const Block& block) const { return id >= block.first && !is_global(id); }
  // Inputs and constants: the same in every segment.
  bool is_global(uint32_t id) const;

  // Where the errors of ops stand that are given no place of their own.
  void stand_at(Place place) { place_ = place; }

  // Shorthands for passes.
  uint32_t add(uint32_t a, uint32_t b) { return op(Scalar::op_add, {}, a, b); }
  uint32_t sub(uint32_t a, uint32_t b) { return op(Scalar::op_sub, {}, a, b); }
  uint32_t mul(uint32_t a, uint32_t b) { return op(Scalar::op_mul, {}, a, b); }

  uint32_t size() const { return static_cast<uint32_t>(ops_.size()); }
  const std::vector<uint32_t>& segment_ends() const { return ends_; }
  const fb::Instruction& at(uint32_t id) const { return ops_[id]; }
  const std::vector<fb::Instruction>& all() const { return ops_; }
  Interval range(uint32_t id) const { return ranges_[id]; }
  // False for a register of a block that is closed, whatever its op is: its value may be 0 instead.
  bool is(uint32_t id, Scalar kind) const { return ops_[id].op() == static_cast<uint16_t>(kind) && !closed_[id]; }
  std::optional<int64_t> constant(uint32_t id) const;
  std::optional<double> float_constant(uint32_t id) const;

 private:
  using Key = std::array<uint32_t, 5>;

  uint32_t emit(Scalar kind, uint32_t a, uint32_t b, uint32_t c);
  void push(const fb::Instruction& op, Interval range);
  // True if the key is new.
  bool learn(const Key& key, bool global, uint32_t* id);
  Interval leaf_range(Scalar kind, uint32_t a, uint32_t b) const;
  Interval range_of(const fb::Instruction& op) const;
  std::optional<uint32_t> fold(Scalar kind, Place place, uint32_t a, uint32_t b, uint32_t c);
  std::optional<uint32_t> simplify_int(Scalar kind, uint32_t a, uint32_t b);
  std::optional<uint32_t> simplify_sum(Scalar kind, uint32_t a, uint32_t b);
  std::optional<uint32_t> constant_outwards(uint32_t a, uint32_t b);
  std::optional<uint32_t> simplify_quotient(Scalar kind, uint32_t a, uint32_t b);
  std::optional<uint32_t> simplify_bits(Scalar kind, uint32_t a, uint32_t b);
  std::optional<uint32_t> simplify_logic(Scalar kind, uint32_t a, uint32_t b);
  std::optional<uint32_t> simplify_choice(Scalar kind, uint32_t a, uint32_t b, uint32_t c);
  std::optional<uint32_t> simplify_float(Scalar kind, uint32_t a, uint32_t b);
  // Throws Failure where the guard never holds, but not in a block.
  bool holds_always(Scalar kind, Place place, uint32_t a, uint32_t b) const;
  uint32_t checked_range(Place place, uint32_t a, uint32_t b, uint32_t c);
  bool is_bool(uint32_t id) const { return ranges_[id].low >= 0 && ranges_[id].high <= 1; }
  bool is_value(uint32_t id, int64_t value) const { return constant(id) == value; }

  const Function& function_;
  std::vector<fb::Instruction> ops_;
  std::vector<Interval> ranges_;
  std::vector<bool> closed_;
  std::vector<uint32_t> ends_;
  std::map<Key, uint32_t> known_;
  std::vector<Key> learned_;      // keys that blocks take back when they close, in order
  uint32_t open_blocks_ = 0;
  Place place_;
};

}  // namespace husk::compiler
