// The check of one variant, for the two files that it is written in.
#pragma once

#include <map>

#include "ir/tree.h"
#include "ir/words.h"

namespace husk::compiler {

// What a name stands for at some point of a variant.
enum class Meaning : uint8_t { none, input_tensor, number, no_number, buffer, constant, state, output };
struct Symbol {
  Meaning meaning = Meaning::none;
  Holds holds = Holds::None;      // number
  Place place;
  const Value* value = nullptr;   // inputs and outputs
  bool has_buffer = false;        // inputs and outputs: their buffer was declared
};

class VariantCheck {
 public:
  VariantCheck(const Program& program, const Function& function, const Variant& variant);
  void run();

 private:
  Holds expr(const Expr& e);
  Holds call(const Expr& e);
  void value_of_step(const Expr& e, const ScalarWord& word);
  void integer(const Expr& e, const char* what);
  void integers(const Exprs& all, const char* what);
  const Symbol& tensor_input(const Expr& e);
  void dim(const Expr& value, const Expr& e);
  void operands(const Expr& e, const ScalarWord& word);

  void statements(const std::vector<Statement>& all);
  void statement(const Statement& s);
  void when(const Statement& s);
  void loop(const Statement& s);
  void let(const Statement& s);
  void guard(const Statement& s);
  void buffer(const Statement& s);
  void launch(const Statement& s);
  void parameter(const Operand& o, husk_dtype type, size_t i, const Kernel& kernel);
  void external(const Statement& s);
  void op_argument(const Operand& o);
  void bring(Place place, husk_dtype type);
  // The statements that follow are of the next segment.
  void end_segment();
  void fill(const Statement& s);
  void read(const Statement& s);
  void memory(const Operand& o);
  void view(const Operand& o, uint8_t access, const char* what);
  void tensor(const Operand& o);
  void results();

  void define(const Name& name, Symbol symbol);
  Symbol* find(const std::string& name);

  const Program& program_;
  const Function& function_;
  const Variant& variant_;
  std::map<std::string, Symbol> symbols_;
  std::map<std::string_view, const Kernel*> kernels_;
  // Values that the steps of the segment before brought, and those that this one's have brought so far.
  std::vector<husk_dtype> brought_, bringing_;
};

}  // namespace husk::compiler
