// One variant on its way from statements to rows, for the two files that lowering is written in.
#pragma once

#include <set>

#include "ir/words.h"
#include "passes/lower.h"
#include "passes/registers.h"

namespace husk::compiler {

template <class T>
std::map<std::string, uint32_t> number(const std::vector<T>& rows) {
  std::map<std::string, uint32_t> out;
  for (const T& row : rows) out.emplace(row.name.text, static_cast<uint32_t>(out.size()));
  return out;
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
  using Lets = std::vector<std::pair<std::string, uint32_t>>;   // names of numbers

  uint32_t expr(const Expr& e);
  uint32_t call(const Expr& e);
  uint32_t named(const Expr& e);
  Ids exprs(const Exprs& all);
  bool is_float(uint32_t id) const { return scalar_word(registers_.at(id).op())->holds == Holds::Float; }

  void statements(const std::vector<Statement>& all);
  void statement(const Statement& s);
  void when(const Statement& s);
  void loop(const Statement& s);
  Lets block(uint32_t condition, const std::vector<Statement>& all, uint32_t back);
  void clear_lets(const std::vector<Statement>& all);
  void join(uint32_t condition, const Lets& lets);
  uint32_t zero(bool floating) { return floating ? registers_.floating(0) : registers_.integer(0); }
  void leave_out(const std::vector<Statement>& all);
  uint32_t holding(uint32_t condition);
  void check(const Statement& s);
  void declare(const Statement& s, uint32_t bytes);
  Holds holds(const Expr& e) const;
  void step(Step kind, const Statement& s, uint32_t row, const std::vector<fb::Argument>& arguments,
            size_t own = 0);
  void launch(const Statement& s);
  void external(const Statement& s);
  void copy(const Statement& s);
  void fill(const Statement& s);
  void read(const Statement& s);
  void end_segment(uint32_t back = kNone);
  // Ends a segment whose steps bring values: they are known in the next one.
  void settle();

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
  uint32_t when_ = kNone;                // the register that the block under way runs by
  std::vector<std::string> block_lets_;  // of all blocks that are open
  std::set<std::string> left_out_;       // buffers of blocks that never run
  uint32_t step_begin_ = 0;
  bool brings_ = false;                  // a step of the segment under way brings a value
  bool has_origins_ = false;
};

}  // namespace husk::compiler
