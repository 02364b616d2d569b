// The registers of one variant while it is lowered. Every expression is stored once, folded as far
// as the ranges of the inputs allow.
//
// Folding computes with the runtime's own evaluator and intervals, so that both sides agree by
// construction. remove_dead_rows() drops an op whose value is not needed, and thereby its failure;
// guards and `range` ops are kept unless they always hold.
//
// A block is a part of the variant that may not run; its registers are 0 then. After the block its
// registers are not simplified any more, and their ranges include 0. Inputs and constants belong to
// no block: remove_dead_rows() moves them to the first segment, which always runs.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "ir/tree.h"
#include "model/interval.h"

namespace husk::compiler {

class Registers {
 public:
  explicit Registers(const Function& function);

  // Registers created after this call belong to the next segment.
  void end_segment() { ends_.push_back(size()); }

  uint32_t integer(int64_t value);
  uint32_t floating(double value);
  // The register of an op of ops.def that is not a guard. Throws CompileError at `place` if the op
  // always fails, except in a block, which may not run.
  uint32_t op(Scalar kind, Place place, uint32_t a, uint32_t b = 0, uint32_t c = 0);
  // Adds a guard unless it always holds. Throws CompileError if it never holds, except in a block.
  void guard(Scalar kind, Place place, uint32_t a, uint32_t b, uint32_t c);

  // Registers created between open_block() and the close_block() with its result belong to a block.
  struct Block {
    uint32_t first;     // first register of the block
    size_t block_keys;  // size of block_keys_ when the block began
  };
  Block open_block();
  void close_block(const Block& block);
  // Whether a block is open. An op that always fails is not an error there.
  bool in_block() const { return open_blocks_ > 0; }
  // Whether a register is 0 if the block did not run.
  bool is_in_block(uint32_t id, const Block& block) const {
    return id >= block.first && !is_global(id);
  }
  // Whether the register is an input or a constant, which is the same in every segment.
  bool is_global(uint32_t id) const;

  // Sets the place that errors name for ops without a place.
  void set_default_place(Place place) { default_place_ = place; }

  // Shorthands for op().
  uint32_t add(uint32_t a, uint32_t b) { return op(Scalar::op_add, {}, a, b); }
  uint32_t sub(uint32_t a, uint32_t b) { return op(Scalar::op_sub, {}, a, b); }
  uint32_t mul(uint32_t a, uint32_t b) { return op(Scalar::op_mul, {}, a, b); }

  uint32_t size() const { return static_cast<uint32_t>(ops_.size()); }
  const std::vector<uint32_t>& segment_ends() const { return ends_; }
  const fb::Instruction& at(uint32_t id) const { return ops_[id]; }
  const std::vector<fb::Instruction>& all() const { return ops_; }
  Interval range(uint32_t id) const { return ranges_[id]; }
  // Whether the op of a register is `kind`. False for a register of a closed block, since it may
  // hold 0 instead of the op's result.
  bool is(uint32_t id, Scalar kind) const {
    return ops_[id].op() == static_cast<uint16_t>(kind) && !closed_[id];
  }
  std::optional<int64_t> constant(uint32_t id) const;
  std::optional<double> float_constant(uint32_t id) const;

 private:
  using Key = std::array<uint32_t, 5>;

  uint32_t emit(Scalar kind, uint32_t a, uint32_t b, uint32_t c);
  void push(const fb::Instruction& op, Interval range);
  // Looks up the register of an expression; inserts the next free one and returns true if the
  // expression is new.
  bool insert(const Key& key, bool global, uint32_t* id);
  Interval leaf_range(Scalar kind, uint32_t a, uint32_t b) const;
  Interval range_of(const fb::Instruction& op) const;
  std::optional<uint32_t> fold(Scalar kind, Place place, uint32_t a, uint32_t b, uint32_t c);
  std::optional<uint32_t> simplify_int(Scalar kind, uint32_t a, uint32_t b);
  std::optional<uint32_t> simplify_sum(Scalar kind, uint32_t a, uint32_t b);
  std::optional<uint32_t> move_constant_out(uint32_t a, uint32_t b);
  std::optional<uint32_t> simplify_quotient(Scalar kind, uint32_t a, uint32_t b);
  std::optional<uint32_t> simplify_bits(Scalar kind, uint32_t a, uint32_t b);
  std::optional<uint32_t> simplify_logic(Scalar kind, uint32_t a, uint32_t b);
  std::optional<uint32_t> simplify_choice(Scalar kind, uint32_t a, uint32_t b, uint32_t c);
  std::optional<uint32_t> simplify_float(Scalar kind, uint32_t a, uint32_t b);
  // Throws CompileError if the guard never holds, except in a block.
  bool holds_always(Scalar kind, Place place, uint32_t a, uint32_t b) const;
  uint32_t checked_range(Place place, uint32_t a, uint32_t b, uint32_t c);
  bool is_bool(uint32_t id) const { return ranges_[id].low >= 0 && ranges_[id].high <= 1; }
  bool is_value(uint32_t id, int64_t value) const { return constant(id) == value; }

  const Function& function_;
  std::vector<fb::Instruction> ops_;
  std::vector<Interval> ranges_;
  std::vector<bool> closed_;     // by register: whether its block is closed
  std::vector<uint32_t> ends_;   // by segment: end of its registers
  std::map<Key, uint32_t> ids_;  // register of each expression
  std::vector<Key> block_keys_;  // keys inserted in open blocks; closing a block removes its own
  uint32_t open_blocks_ = 0;
  Place default_place_;
};

}  // namespace husk::compiler
