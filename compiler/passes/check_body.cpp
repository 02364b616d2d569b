#include "passes/check_body.h"

#include <husk/husk.h>

#include "ir/failure.h"
#include "passes/variant_check.h"
#include "planner.h"
#include "verify.h"

namespace husk::compiler {
namespace {

constexpr size_t kMaxValues = 64;   // that one segment may bring

const char* text_of(Holds holds) { return holds == Holds::Float ? "a float" : "an int"; }

}  // namespace

VariantCheck::VariantCheck(const Program& program, const Function& function, const Variant& variant)
    : program_(program), function_(function), variant_(variant) {
  for (const Kernel& k : program.kernels) kernels_.emplace(k.name.text, &k);
  for (const Constant& c : program.constants)
    symbols_[c.name.text] = {Meaning::constant, Holds::None, c.name.place, nullptr, true};
  for (const State& s : program.states)
    symbols_[s.name.text] = {Meaning::state, Holds::None, s.name.place, nullptr, true};
  for (const Value& v : function.inputs) {
    Symbol symbol{Meaning::no_number, Holds::None, v.name.place, &v, false};
    if (v.kind == HUSK_VALUE_TENSOR) symbol.meaning = Meaning::input_tensor;
    if (v.kind == HUSK_VALUE_INT || v.kind == HUSK_VALUE_BOOL) symbol.holds = Holds::Int;
    if (v.kind == HUSK_VALUE_FLOAT) symbol.holds = Holds::Float;
    if (symbol.holds != Holds::None) symbol.meaning = Meaning::number;
    define(v.name, symbol);
  }
  for (const Value& v : function.outputs) define(v.name, {Meaning::output, Holds::None, v.name.place, &v, false});
}

Symbol* VariantCheck::find(const std::string& name) {
  auto found = symbols_.find(name);
  return found == symbols_.end() ? nullptr : &found->second;
}

void VariantCheck::define(const Name& name, Symbol symbol) {
  if (is_reserved(name.text)) fail(name.place, "'{}' is a word of the text form: choose another name", name.text);
  auto [other, made] = symbols_.try_emplace(name.text, symbol);
  if (!made) fail(name.place, "'{}' is defined already, in line {}", name.text, other->second.place.line);
}

void VariantCheck::let(const Statement& s) {
  const Holds holds = expr(s.exprs[0]);
  define(s.name, {Meaning::number, holds, s.name.place, nullptr, false});
}

void VariantCheck::guard(const Statement& s) {
  const ScalarWord* word = scalar_word(std::string_view(s.name.text));
  Expr e;
  e.place = s.place;
  e.operands = s.exprs;
  operands(e, *word);
  bool takes_text = false;
  for (Slot slot : word->slots) takes_text = takes_text || slot == Slot::Text;
  if (s.has_text && !takes_text) fail(s.place, "{} has a text of its own: write none", word->name);
}

void VariantCheck::buffer(const Statement& s) {
  integer(s.exprs[0], "the bytes of a buffer");
  check_align(s.name, s.align, s.of == BufferOf::arena ? int64_t{kArenaAlign} : kMaxValueAlign);
  if (s.of == BufferOf::arena) return define(s.name, {Meaning::buffer, Holds::None, s.name.place, nullptr, true});
  const bool input = s.of == BufferOf::input;
  Symbol* symbol = find(s.name.text);
  const Meaning meaning = input ? Meaning::input_tensor : Meaning::output;
  if (!symbol || symbol->meaning != meaning || symbol->value->kind != HUSK_VALUE_TENSOR)
    fail(s.name.place, "'{}' is no tensor {}", s.name.text, input ? "input" : "output");
  if (symbol->has_buffer) fail(s.name.place, "'{}' has a buffer already", s.name.text);
  symbol->has_buffer = true;
}

// The buffer of a view or a tensor, and whether the access is one that it allows.
void VariantCheck::memory(const Operand& o) {
  const Symbol* symbol = find(o.name.text);
  if (!symbol || symbol->meaning == Meaning::number || symbol->meaning == Meaning::no_number)
    fail(o.name.place, "there is no buffer '{}'", o.name.text);
  if (!symbol->has_buffer)
    fail(o.name.place, "'{}' has no buffer yet: declare it with 'buffer {} of {}'", o.name.text, o.name.text,
         symbol->meaning == Meaning::output ? "output" : "input");
  if (symbol->meaning == Meaning::constant && (o.access & HUSK_ACCESS_WRITE))
    fail(o.place, "constant '{}' is never written: make it a state", o.name.text);
}

void VariantCheck::view(const Operand& o, uint8_t access, const char* what) {
  if (o.kind != OperandKind::view) fail(o.place, "{} is a view", what);
  memory(o);
  integers(o.exprs, "an offset or extent");
  if (access && o.access != access) fail(o.place, "{} is a view with the access '{}'", what, access_name(access));
}

void VariantCheck::tensor(const Operand& o) {
  memory(o);
  if (o.sizes.size() != o.strides.size())
    fail(o.place, "the tensor has {} sizes and {} strides", o.sizes.size(), o.strides.size());
  if (o.sizes.size() > kMaxRank)
    fail(o.place, "the tensor has {} dimensions, {} are the most", o.sizes.size(), kMaxRank);
  integers(o.sizes, "a size");
  integers(o.strides, "a stride");
  integers(o.exprs, "an offset");
}

void VariantCheck::parameter(const Operand& o, husk_dtype type, size_t i, const Kernel& kernel) {
  if (type == HUSK_POINTER) {
    if (o.kind == OperandKind::null) return;
    if (o.kind == OperandKind::asserts) {
      if (program_.asserts.empty()) fail(o.place, "the program has no asserts: write what they say, 'assert \"...\"'");
      return;
    }
    if (o.kind != OperandKind::view)
      fail(o.place, "parameter {} of kernel '{}' is a pointer: give a view, null or asserts", i, kernel.name.text);
    return view(o, 0, "a pointer");
  }
  if (o.kind != OperandKind::scalar)
    fail(o.place, "parameter {} of kernel '{}' is {}: give a number", i, kernel.name.text, dtype_name(type));
  const Holds holds = expr(o.exprs[0]), wanted = is_float_dtype(type) ? Holds::Float : Holds::Int;
  if (holds != wanted)
    fail(o.place, "parameter {} of kernel '{}' is {}: give {}, this is {}", i, kernel.name.text, dtype_name(type),
         text_of(wanted), text_of(holds));
}

void VariantCheck::launch(const Statement& s) {
  const auto known = kernels_.find(s.name.text);
  const Kernel* kernel = known == kernels_.end() ? nullptr : known->second;
  if (!kernel || kernel->name.place.line > s.place.line)
    fail(s.name.place, "there is no kernel '{}' before this line", s.name.text);
  for (const Image& image : program_.images)
    if (image.name.text == kernel->image.text && image.target.text != variant_.target.text)
      fail(s.name.place, "kernel '{}' is for target '{}', this variant for '{}'", s.name.text, image.target.text,
           variant_.target.text);
  integers(s.exprs, "a side of the grid");
  if (s.operands.size() != kernel->params.size())
    fail(s.place, "kernel '{}' takes {} arguments, not {}", s.name.text, kernel->params.size(), s.operands.size());
  for (size_t i = 0; i < s.operands.size(); ++i) parameter(s.operands[i], kernel->params[i], i, *kernel);
}

void VariantCheck::op_argument(const Operand& o) {
  switch (o.kind) {
    case OperandKind::view: fail(o.place, "an op takes tensors, not views: write 'tensor' behind the access");
    case OperandKind::null: fail(o.place, "an op takes no null: write none");
    case OperandKind::asserts: fail(o.place, "an op has no asserts: it fails by its status");
    case OperandKind::tensor: return tensor(o);
    case OperandKind::scalar: expr(o.exprs[0]); return;
    case OperandKind::list: return integers(o.exprs, "an element of a list");
    case OperandKind::floats:
      for (const Expr& e : o.exprs)
        if (expr(e) != Holds::Float) fail(e.place, "an element of a list of floats is a float: write float(...)");
      return;
    case OperandKind::tensors:
      for (const Operand& item : o.items)
        if (item.kind == OperandKind::tensor) tensor(item);
      return;
    case OperandKind::result: return bring(o.place, o.dtype);
    case OperandKind::string:
    case OperandKind::dtype:
    case OperandKind::none: return;
  }
}

void VariantCheck::external(const Statement& s) {
  if (s.name.text.empty()) fail(s.name.place, "the op has no name");
  if (s.operands.size() > UINT16_MAX) fail(s.place, "an op takes {} arguments at the most", UINT16_MAX);
  for (const Operand& o : s.operands) op_argument(o);
}

void VariantCheck::fill(const Statement& s) {
  view(s.operands[0], HUSK_ACCESS_WRITE, "what fill fills");
  const Holds holds = expr(s.exprs[0]);
  if (!is_int_dtype(s.dtype) && !is_float_dtype(s.dtype))
    fail(s.place, "fill writes ints and f16 to f64, not {}: fill the bytes as an int type", dtype_name(s.dtype));
  if ((holds == Holds::Float) != is_float_dtype(s.dtype))
    fail(s.exprs[0].place, "fill {} takes {}", dtype_name(s.dtype),
         is_float_dtype(s.dtype) ? "a float: write 0.0 or float(...)" : "an int");
}

void VariantCheck::read(const Statement& s) {
  view(s.operands[0], HUSK_ACCESS_READ, "what read reads");
  if (!is_int_dtype(s.dtype) && !is_float_dtype(s.dtype))
    fail(s.place, "read gives an int or a float, not {}", dtype_name(s.dtype));
  bring(s.place, s.dtype);
}

void VariantCheck::bring(Place place, husk_dtype type) {
  bringing_.push_back(type);
  if (bringing_.size() > kMaxValues)
    fail(place, "one segment brings {} values at the most: put a 'let' with some of them between the steps", kMaxValues);
}

void VariantCheck::end_segment() {
  brought_ = std::move(bringing_);
  bringing_.clear();
}

void VariantCheck::when(const Statement& s) {
  integer(s.exprs[0], "a condition");
  end_segment();
  statements(s.body);
  end_segment();
  brought_.clear();
  statements(s.other);
  end_segment();
  brought_.clear();
}

void VariantCheck::loop(const Statement& s) {
  end_segment();
  brought_.clear();
  statements(s.body);
  if (!bringing_.empty()) end_segment();
  integer(s.exprs[0], "a condition");
  end_segment();
  statements(s.other);
  end_segment();
  brought_.clear();
}

void VariantCheck::statements(const std::vector<Statement>& all) {
  for (const Statement& s : all) statement(s);
}

void VariantCheck::statement(const Statement& s) {
  if (!bringing_.empty() && !brings_values(s)) end_segment();
  switch (s.kind) {
    case StatementKind::let: return let(s);
    case StatementKind::check: return guard(s);
    case StatementKind::buffer: return buffer(s);
    case StatementKind::launch: return launch(s);
    case StatementKind::external: return external(s);
    case StatementKind::fill: return fill(s);
    case StatementKind::read: return read(s);
    case StatementKind::when: return when(s);
    case StatementKind::loop: return loop(s);
    case StatementKind::copy:
      view(s.operands[0], HUSK_ACCESS_WRITE, "the first argument of copy");
      view(s.operands[1], HUSK_ACCESS_READ, "the second argument of copy");
  }
}

void VariantCheck::results() {
  const auto& outputs = function_.outputs;
  if (variant_.results.size() != outputs.size())
    fail(variant_.return_place, "function '{}' has {} outputs, here are {} results", function_.name.text,
         outputs.size(), variant_.results.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Value& output = outputs[i];
    const ResultItem& item = variant_.results[i];
    constexpr ResultKeyword kWanted[] = {ResultKeyword::none, ResultKeyword::tensor, ResultKeyword::integer,
                                         ResultKeyword::floating, ResultKeyword::integer};
    if (item.keyword != kWanted[output.kind])
      fail(item.operand.place, "output '{}' is {}: this result is not", output.name.text, value_kind_name(output.kind));
    if (item.keyword == ResultKeyword::integer) integer(item.operand.exprs[0], "this output");
    if (item.keyword == ResultKeyword::floating && expr(item.operand.exprs[0]) != Holds::Float)
      fail(item.operand.place, "output '{}' is a float: write float(...)", output.name.text);
    if (item.keyword != ResultKeyword::tensor) continue;
    if (item.operand.name.text != output.name.text)
      fail(item.operand.name.place, "the result must lie in the output's own buffer, '{}'", output.name.text);
    tensor(item.operand);
    if (item.operand.dtype != output.dtype || static_cast<int64_t>(item.operand.sizes.size()) != output.rank)
      fail(item.operand.place, "output '{}' is {} of rank {}", output.name.text, dtype_name(output.dtype),
           output.rank);
  }
}

void VariantCheck::run() {
  statements(variant_.statements);
  if (!bringing_.empty()) end_segment();
  results();
}

void check_variant(const Program& program, const Function& function, const Variant& variant) {
  VariantCheck(program, function, variant).run();
}

}  // namespace husk::compiler
