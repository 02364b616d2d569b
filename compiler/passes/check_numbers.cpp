// Expressions: what they are made of, and whether it is an int or a float.
#include <husk/husk.h>

#include "ir/failure.h"
#include "passes/variant_check.h"

namespace husk::compiler {

Holds VariantCheck::expr(const Expr& e) {
  switch (e.kind) {
    case ExprKind::integer:
    case ExprKind::boolean: return Holds::Int;
    case ExprKind::floating: return Holds::Float;
    case ExprKind::call: return call(e);
    case ExprKind::name: break;
  }
  const Symbol* symbol = find(e.name);
  if (!symbol) fail(e.place, "'{}' is not defined before this line", e.name);
  if (symbol->meaning != Meaning::number) fail(e.place, "'{}' is no number", e.name);
  return symbol->holds;
}

void VariantCheck::integer(const Expr& e, const char* what) {
  if (expr(e) != Holds::Int) fail(e.place, "{} is an int, this is a float: write trunc, floor or ceil", what);
}

void VariantCheck::integers(const Exprs& all, const char* what) {
  for (const Expr& e : all) integer(e, what);
}

const Symbol& VariantCheck::tensor_input(const Expr& e) {
  const Symbol* symbol = e.kind == ExprKind::name ? find(e.name) : nullptr;
  if (!symbol || symbol->meaning != Meaning::input_tensor) fail(e.place, "this must be the name of a tensor input");
  return *symbol;
}

void VariantCheck::dim(const Expr& value, const Expr& e) {
  const int64_t rank = tensor_input(value).value->rank;
  if (e.kind != ExprKind::integer) fail(e.place, "a dimension is written as a number");
  if (e.integer < 0 || e.integer >= rank)
    fail(e.place, "'{}' has {} dimensions, there is no dimension {}", value.name, rank, e.integer);
}

void VariantCheck::value_of_step(const Expr& e, const ScalarWord& word) {
  const Expr& nth = e.operands[0];
  if (nth.kind != ExprKind::integer) fail(nth.place, "{} takes a literal: which value it is, from 0 on", word.name);
  if (brought_.empty())
    fail(e.place, "{} stands in the segment behind a read, or behind an extern with results, and in the same block",
         word.name);
  if (nth.integer < 0 || nth.integer >= static_cast<int64_t>(brought_.size()))
    fail(nth.place, "there is no value {}: the segment before brings {}", nth.integer, brought_.size());
  const husk_dtype type = brought_[static_cast<size_t>(nth.integer)];
  if ((word.holds == Holds::Float) != is_float_dtype(type))
    fail(e.place, "value {} of the segment before is {}: write {}({})", nth.integer, dtype_name(type),
         is_float_dtype(type) ? "fresult" : "result", nth.integer);
}

// What an op or a guard takes, all but its text.
void VariantCheck::operands(const Expr& e, const ScalarWord& word) {
  size_t wanted = 0;
  while (wanted < 3 && word.slots[wanted] != Slot::_ && word.slots[wanted] != Slot::Text) ++wanted;
  if (e.operands.size() != wanted)
    fail(e.place, "{} takes {} operand{}, not {}", word.name, wanted, wanted == 1 ? "" : "s", e.operands.size());
  for (size_t i = 0; i < wanted; ++i) {
    const Expr& operand = e.operands[i];
    switch (word.slots[i]) {
      case Slot::Value: tensor_input(operand); break;
      case Slot::Dim: dim(e.operands[0], operand); break;
      case Slot::Nth: value_of_step(e, word); break;
      case Slot::F:
        if (expr(operand) != Holds::Float) fail(operand.place, "{} takes a float here: write float(...)", word.name);
        break;
      default:
        if (expr(operand) != Holds::Int)
          fail(operand.place, "{} takes an int here: write trunc, floor or ceil", word.name);
    }
  }
}

Holds VariantCheck::call(const Expr& e) {
  const ScalarWord* word = scalar_word(std::string_view(e.name));
  if (!word || word->slots[0] == Slot::Imm) fail(e.place, "there is no op '{}'", e.name);
  if (word->holds == Holds::None) fail(e.place, "'{}' is a statement, it has no value", e.name);
  const bool by_name = word->slots[0] == Slot::Value && word->slots[1] != Slot::Dim;
  if (by_name) fail(e.place, "there is no op '{}': write the input's name alone", e.name);
  operands(e, *word);
  return word->holds;
}

}  // namespace husk::compiler
