#include "passes/check_variant.h"

#include <map>

#include <husk/husk.h>

#include "base/limits.h"
#include "ir/compile_error.h"
#include "ir/op_table.h"

namespace husk::compiler {
namespace {

const char* text_of(ResultKind kind) { return kind == ResultKind::floating ? "a float" : "an int"; }

// The thing that a name stands for.
enum class SymbolKind : uint8_t {
  none,
  input_tensor,
  number,      // a let, or an int, bool or float input
  none_input,  // an input of kind none
  buffer,
  constant,
  state,
  output
};
struct Symbol {
  SymbolKind kind = SymbolKind::none;
  ResultKind result = ResultKind::none;  // whether a number is an int or a float
  Place place;
  const Value* value = nullptr;  // set for inputs and outputs
  bool has_buffer = false;       // false for an input or output whose buffer is not declared yet
  bool on_host = false;          // the buffer lies in host memory beside the device
};

// Checks one variant, statement by statement.
class VariantCheck {
 public:
  VariantCheck(const Program& program, const Function& function, const Variant& variant);
  void run();

 private:
  ResultKind expr(const Expr& e);
  ResultKind call(const Expr& e);
  void value_of_step(const Expr& e, const ScalarOp& row);
  void integer(const Expr& e, const char* what);
  void integers(const Exprs& all, const char* what);
  const Symbol& tensor_input(const Expr& e);
  void dim(const Expr& value, const Expr& e);
  void operands(const Expr& e, const ScalarOp& row);

  void statements(const std::vector<Statement>& all);
  void statement(const Statement& s);
  void when(const Statement& s);
  void loop(const Statement& s);
  void let(const Statement& s);
  void guard(const Statement& s);
  void buffer(const Statement& s);
  void host_buffer(const Statement& s);
  void on_device(const Operand& o, const char* what);
  void one_device(const Statement& s);
  void launch(const Statement& s);
  void parameter(const Operand& o, husk_dtype type, size_t i, const Kernel& kernel);
  void external(const Statement& s);
  void op_argument(const Operand& o);
  void add_result(Place place, husk_dtype type);
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
  std::vector<husk_dtype> previous_results_;  // types of the results of the previous segment
  std::vector<husk_dtype> results_;           // types of the results of this segment so far
};

VariantCheck::VariantCheck(const Program& program, const Function& function, const Variant& variant)
    : program_(program), function_(function), variant_(variant) {
  for (const Kernel& k : program.kernels) kernels_.emplace(k.name.text, &k);
  for (const Constant& c : program.constants)
    symbols_[c.name.text] = {SymbolKind::constant, ResultKind::none, c.name.place, nullptr, true};
  for (const State& s : program.states)
    symbols_[s.name.text] = {SymbolKind::state, ResultKind::none, s.name.place, nullptr, true};
  for (const Value& v : function.inputs) {
    Symbol symbol{SymbolKind::none_input, ResultKind::none, v.name.place, &v, false};
    if (v.kind == HUSK_VALUE_TENSOR) symbol.kind = SymbolKind::input_tensor;
    if (v.kind == HUSK_VALUE_INT || v.kind == HUSK_VALUE_BOOL) symbol.result = ResultKind::integer;
    if (v.kind == HUSK_VALUE_FLOAT) symbol.result = ResultKind::floating;
    if (symbol.result != ResultKind::none) symbol.kind = SymbolKind::number;
    define(v.name, symbol);
  }
  for (const Value& v : function.outputs)
    define(v.name, {SymbolKind::output, ResultKind::none, v.name.place, &v, false});
}

Symbol* VariantCheck::find(const std::string& name) {
  auto symbol = symbols_.find(name);
  return symbol == symbols_.end() ? nullptr : &symbol->second;
}

void VariantCheck::define(const Name& name, Symbol symbol) {
  if (is_reserved(name.text))
    fail(name.place, "'{}' is a word of the text form: choose another name", name.text);
  auto [other, inserted] = symbols_.try_emplace(name.text, symbol);
  if (!inserted)
    fail(name.place, "'{}' is defined already, in line {}", name.text, other->second.place.line);
}

ResultKind VariantCheck::expr(const Expr& e) {
  switch (e.kind) {
    case ExprKind::integer:
    case ExprKind::boolean: return ResultKind::integer;
    case ExprKind::floating: return ResultKind::floating;
    case ExprKind::call: return call(e);
    case ExprKind::name: break;
  }
  const Symbol* symbol = find(e.name);
  if (!symbol) fail(e.place, "'{}' is not defined before this line", e.name);
  if (symbol->kind != SymbolKind::number) fail(e.place, "'{}' is not a number", e.name);
  return symbol->result;
}

void VariantCheck::integer(const Expr& e, const char* what) {
  if (expr(e) != ResultKind::integer)
    fail(e.place, "{} is an int, this is a float: write trunc, floor or ceil", what);
}

void VariantCheck::integers(const Exprs& all, const char* what) {
  for (const Expr& e : all) integer(e, what);
}

const Symbol& VariantCheck::tensor_input(const Expr& e) {
  const Symbol* symbol = e.kind == ExprKind::name ? find(e.name) : nullptr;
  if (!symbol || symbol->kind != SymbolKind::input_tensor)
    fail(e.place, "this must be the name of a tensor input");
  return *symbol;
}

void VariantCheck::dim(const Expr& value, const Expr& e) {
  const int64_t rank = tensor_input(value).value->rank;
  if (e.kind != ExprKind::integer) fail(e.place, "the dimension must be a number");
  if (e.integer < 0 || e.integer >= rank)
    fail(e.place, "'{}' has {} dimensions, there is no dimension {}", value.name, rank, e.integer);
}

void VariantCheck::value_of_step(const Expr& e, const ScalarOp& row) {
  const Expr& nth = e.operands[0];
  if (nth.kind != ExprKind::integer)
    fail(nth.place, "{} takes a literal: the number of the result, which counts from 0", row.name);
  if (previous_results_.empty())
    fail(e.place,
         "{} must be in the segment after a read or after an extern with results, in the "
         "same block",
         row.name);
  if (nth.integer < 0 || nth.integer >= static_cast<int64_t>(previous_results_.size()))
    fail(nth.place, "there is no result {}: the previous segment has {}", nth.integer,
         previous_results_.size());
  const husk_dtype type = previous_results_[static_cast<size_t>(nth.integer)];
  if ((row.result == ResultKind::floating) != is_float_dtype(type))
    fail(e.place, "result {} of the previous segment is {}: write {}({})", nth.integer,
         dtype_name(type), is_float_dtype(type) ? "fresult" : "result", nth.integer);
}

// Checks the operands of an op or a guard except its text.
void VariantCheck::operands(const Expr& e, const ScalarOp& row) {
  size_t wanted = 0;
  while (wanted < 3 && row.slots[wanted] != Slot::unused && row.slots[wanted] != Slot::text)
    ++wanted;
  if (e.operands.size() != wanted)
    fail(e.place, "{} takes {} operand{}, not {}", row.name, wanted, wanted == 1 ? "" : "s",
         e.operands.size());
  for (size_t i = 0; i < wanted; ++i) {
    const Expr& operand = e.operands[i];
    switch (row.slots[i]) {
      case Slot::value: tensor_input(operand); break;
      case Slot::dim: dim(e.operands[0], operand); break;
      case Slot::nth: value_of_step(e, row); break;
      case Slot::floating:
        if (expr(operand) != ResultKind::floating)
          fail(operand.place, "{} takes a float here: write float(...)", row.name);
        break;
      default:
        if (expr(operand) != ResultKind::integer)
          fail(operand.place, "{} takes an int here: write trunc, floor or ceil", row.name);
    }
  }
}

ResultKind VariantCheck::call(const Expr& e) {
  const ScalarOp* row = scalar_op(std::string_view(e.name));
  if (!row || row->slots[0] == Slot::immediate) fail(e.place, "there is no op '{}'", e.name);
  if (row->result == ResultKind::none)
    fail(e.place, "'{}' is a statement, it has no value", e.name);
  const bool by_name = row->slots[0] == Slot::value && row->slots[1] != Slot::dim;
  if (by_name) fail(e.place, "there is no op '{}': write the input's name alone", e.name);
  operands(e, *row);
  return row->result;
}

void VariantCheck::let(const Statement& s) {
  const ResultKind kind = expr(s.exprs[0]);
  define(s.name, {SymbolKind::number, kind, s.name.place, nullptr, false});
}

void VariantCheck::guard(const Statement& s) {
  const ScalarOp* row = scalar_op(std::string_view(s.name.text));
  Expr e;
  e.place = s.place;
  e.operands = s.exprs;
  operands(e, *row);
  bool takes_text = false;
  for (Slot slot : row->slots) takes_text = takes_text || slot == Slot::text;
  if (s.has_text && !takes_text) fail(s.place, "{} has a text of its own: write none", row->name);
}

void VariantCheck::buffer(const Statement& s) {
  integer(s.exprs[0], "the size of a buffer");
  check_align(s.name, s.align,
              s.of == BufferOf::arena ? limits::kDeviceAlign : limits::kMaxValueAlign);
  if (s.on_host) host_buffer(s);
  if (s.of == BufferOf::arena)
    return define(s.name,
                  {SymbolKind::buffer, ResultKind::none, s.name.place, nullptr, true, s.on_host});
  const bool input = s.of == BufferOf::input;
  Symbol* symbol = find(s.name.text);
  const SymbolKind kind = input ? SymbolKind::input_tensor : SymbolKind::output;
  if (!symbol || symbol->kind != kind || symbol->value->kind != HUSK_VALUE_TENSOR)
    fail(s.name.place, "'{}' is not a tensor {}", s.name.text, input ? "input" : "output");
  if (symbol->has_buffer) fail(s.name.place, "'{}' has a buffer already", s.name.text);
  symbol->has_buffer = true;
  symbol->on_host = s.on_host;
}

void VariantCheck::host_buffer(const Statement& s) {
  for (const Target& target : program_.targets)
    if (target.name.text == variant_.target.text && target.port.text == "host")
      fail(s.name.place, "'{}' lies on the host, as all memory of this target: leave 'on host' out",
           s.name.text);
}

// Checks that the memory of an argument of a kernel or of a fill lies on the device.
void VariantCheck::on_device(const Operand& o, const char* what) {
  if (o.kind == OperandKind::view && find(o.name.text)->on_host)
    fail(o.place, "'{}' lies on the host, {} takes memory of the device: copy it", o.name.text,
         what);
}

// Checks that the tensors of an op lie all on the device or all on the host.
void VariantCheck::one_device(const Statement& s) {
  const Operand* first = nullptr;
  const auto compare = [&](const Operand& o) {
    if (o.kind != OperandKind::tensor) return;
    if (!first) first = &o;
    const bool on_host = find(o.name.text)->on_host;
    if (on_host == find(first->name.text)->on_host) return;
    fail(o.place, "'{}' lies on the {}, '{}' does not: copy one of them", o.name.text,
         on_host ? "host" : "device", first->name.text);
  };
  for (const Operand& o : s.operands) {
    compare(o);
    for (const Operand& item : o.items) compare(item);
  }
}

// Checks the buffer of a view or a tensor and whether the buffer allows the access.
void VariantCheck::memory(const Operand& o) {
  const Symbol* symbol = find(o.name.text);
  if (!symbol || symbol->kind == SymbolKind::number || symbol->kind == SymbolKind::none_input)
    fail(o.name.place, "there is no buffer '{}'", o.name.text);
  if (!symbol->has_buffer)
    fail(o.name.place, "'{}' has no buffer yet: declare it with 'buffer {} of {}'", o.name.text,
         o.name.text, symbol->kind == SymbolKind::output ? "output" : "input");
  if (symbol->kind == SymbolKind::constant && (o.access & HUSK_ACCESS_WRITE))
    fail(o.place, "constant '{}' is never written: make it a state", o.name.text);
}

void VariantCheck::view(const Operand& o, uint8_t access, const char* what) {
  if (o.kind != OperandKind::view) fail(o.place, "{} is a view", what);
  memory(o);
  integers(o.exprs, "an offset or extent");
  if (access && o.access != access)
    fail(o.place, "{} is a view with the access '{}'", what, access_name(access));
}

void VariantCheck::tensor(const Operand& o) {
  memory(o);
  if (o.sizes.size() != o.strides.size())
    fail(o.place, "the tensor has {} sizes and {} strides", o.sizes.size(), o.strides.size());
  if (o.sizes.size() > limits::kMaxRank)
    fail(o.place, "the tensor has {} dimensions, {} are the most", o.sizes.size(),
         limits::kMaxRank);
  integers(o.sizes, "a size");
  integers(o.strides, "a stride");
  integers(o.exprs, "an offset");
}

void VariantCheck::parameter(const Operand& o, husk_dtype type, size_t i, const Kernel& kernel) {
  if (type == HUSK_POINTER) {
    if (o.kind == OperandKind::null) return;
    if (o.kind == OperandKind::asserts) {
      if (program_.asserts.empty())
        fail(o.place, "the program has no asserts: write what they say, 'assert \"...\"'");
      return;
    }
    if (o.kind != OperandKind::view)
      fail(o.place, "parameter {} of kernel '{}' is a pointer: give a view, null or asserts", i,
           kernel.name.text);
    view(o, 0, "a pointer");
    return on_device(o, "a kernel");
  }
  if (o.kind != OperandKind::scalar)
    fail(o.place, "parameter {} of kernel '{}' is {}: give a number", i, kernel.name.text,
         dtype_name(type));
  const ResultKind kind = expr(o.exprs[0]),
                   wanted = is_float_dtype(type) ? ResultKind::floating : ResultKind::integer;
  if (kind != wanted)
    fail(o.place, "parameter {} of kernel '{}' is {}: give {}, this is {}", i, kernel.name.text,
         dtype_name(type), text_of(wanted), text_of(kind));
}

void VariantCheck::launch(const Statement& s) {
  const auto known = kernels_.find(s.name.text);
  const Kernel* kernel = known == kernels_.end() ? nullptr : known->second;
  if (!kernel || kernel->name.place.line > s.place.line)
    fail(s.name.place, "there is no kernel '{}' before this line", s.name.text);
  for (const Image& image : program_.images)
    if (image.name.text == kernel->image.text && image.target.text != variant_.target.text)
      fail(s.name.place, "kernel '{}' is for target '{}', this variant for '{}'", s.name.text,
           image.target.text, variant_.target.text);
  integers(s.exprs, "a side of the grid");
  if (s.operands.size() != kernel->params.size())
    fail(s.place, "kernel '{}' takes {} arguments, not {}", s.name.text, kernel->params.size(),
         s.operands.size());
  for (size_t i = 0; i < s.operands.size(); ++i)
    parameter(s.operands[i], kernel->params[i], i, *kernel);
}

void VariantCheck::op_argument(const Operand& o) {
  switch (o.kind) {
    case OperandKind::view:
      fail(o.place, "an op takes tensors, not views: write 'tensor' after the access");
    case OperandKind::null: fail(o.place, "an op takes no null: write none");
    case OperandKind::asserts: fail(o.place, "an op has no asserts: it fails by its status");
    case OperandKind::tensor: return tensor(o);
    case OperandKind::scalar: expr(o.exprs[0]); return;
    case OperandKind::list: return integers(o.exprs, "an element of a list");
    case OperandKind::floats:
      for (const Expr& e : o.exprs)
        if (expr(e) != ResultKind::floating)
          fail(e.place, "an element of a list of floats is a float: write float(...)");
      return;
    case OperandKind::tensors:
      for (const Operand& item : o.items)
        if (item.kind == OperandKind::tensor) tensor(item);
      return;
    case OperandKind::result: return add_result(o.place, o.dtype);
    case OperandKind::string:
    case OperandKind::dtype:
    case OperandKind::none: return;
  }
}

void VariantCheck::external(const Statement& s) {
  if (s.name.text.empty()) fail(s.name.place, "the op has no name");
  if (s.operands.size() > UINT16_MAX)
    fail(s.place, "an op takes {} arguments at the most", UINT16_MAX);
  for (const Operand& o : s.operands) op_argument(o);
  one_device(s);
}

void VariantCheck::fill(const Statement& s) {
  view(s.operands[0], HUSK_ACCESS_WRITE, "the target of fill");
  on_device(s.operands[0], "fill");
  const ResultKind kind = expr(s.exprs[0]);
  if (!is_int_dtype(s.dtype) && !is_float_dtype(s.dtype))
    fail(s.place, "fill writes ints and f16 to f64, not {}: fill the bytes as an int type",
         dtype_name(s.dtype));
  if ((kind == ResultKind::floating) != is_float_dtype(s.dtype))
    fail(s.exprs[0].place, "fill {} takes {}", dtype_name(s.dtype),
         is_float_dtype(s.dtype) ? "a float: write 0.0 or float(...)" : "an int");
}

void VariantCheck::read(const Statement& s) {
  view(s.operands[0], HUSK_ACCESS_READ, "the argument of read");
  if (!is_int_dtype(s.dtype) && !is_float_dtype(s.dtype))
    fail(s.place, "read gives an int or a float, not {}", dtype_name(s.dtype));
  add_result(s.place, s.dtype);
}

void VariantCheck::add_result(Place place, husk_dtype type) {
  results_.push_back(type);
  if (results_.size() > limits::kMaxSegmentResults)
    fail(place, "a segment has at most {} results: put a 'let' with some of them between the steps",
         limits::kMaxSegmentResults);
}

void VariantCheck::end_segment() {
  previous_results_ = std::move(results_);
  results_.clear();
}

void VariantCheck::when(const Statement& s) {
  integer(s.exprs[0], "a condition");
  end_segment();
  statements(s.body);
  end_segment();
  previous_results_.clear();
  statements(s.other);
  end_segment();
  previous_results_.clear();
}

void VariantCheck::loop(const Statement& s) {
  end_segment();
  previous_results_.clear();
  statements(s.body);
  if (!results_.empty()) end_segment();
  integer(s.exprs[0], "a condition");
  end_segment();
  statements(s.other);
  end_segment();
  previous_results_.clear();
}

void VariantCheck::statements(const std::vector<Statement>& all) {
  for (const Statement& s : all) statement(s);
}

void VariantCheck::statement(const Statement& s) {
  if (!results_.empty() && !has_results(s)) end_segment();
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
    fail(variant_.return_place, "function '{}' has {} outputs, this variant returns {}",
         function_.name.text, outputs.size(), variant_.results.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Value& output = outputs[i];
    const ResultItem& item = variant_.results[i];
    constexpr ResultKeyword kWanted[] = {ResultKeyword::none, ResultKeyword::tensor,
                                         ResultKeyword::integer, ResultKeyword::floating,
                                         ResultKeyword::integer};
    if (item.keyword != kWanted[output.kind])
      fail(item.operand.place, "output '{}' has the kind {}, this result has not", output.name.text,
           value_kind_name(output.kind));
    if (item.keyword == ResultKeyword::integer) integer(item.operand.exprs[0], "this output");
    if (item.keyword == ResultKeyword::floating &&
        expr(item.operand.exprs[0]) != ResultKind::floating)
      fail(item.operand.place, "output '{}' is a float: write float(...)", output.name.text);
    if (item.keyword != ResultKeyword::tensor) continue;
    if (item.operand.name.text != output.name.text)
      fail(item.operand.name.place, "the result must lie in the output's own buffer, '{}'",
           output.name.text);
    tensor(item.operand);
    if (item.operand.dtype != output.dtype ||
        static_cast<int64_t>(item.operand.sizes.size()) != output.rank)
      fail(item.operand.place, "output '{}' is {} of rank {}", output.name.text,
           dtype_name(output.dtype), output.rank);
  }
}

void VariantCheck::run() {
  statements(variant_.statements);
  if (!results_.empty()) end_segment();
  results();
}

}  // namespace

void check_variant(const Program& program, const Function& function, const Variant& variant) {
  VariantCheck(program, function, variant).run();
}

}  // namespace husk::compiler
