#include "ir/printer.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <iterator>

#include <husk/detail/printable.h>
#include <husk/husk.h>

#include "ir/op_table.h"
#include "model/rows.h"

namespace husk::compiler {

std::string quote(const std::string& text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\t': out += "\\t"; break;
      default:
        if (const size_t length = detail::printable_letter(text.c_str() + i)) {
          out.append(text, i, length);
          i += length - 1;
        } else {
          out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        }
    }
  }
  return out + '"';
}

std::string print_float(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".ein") == std::string::npos) text += ".0";
  return text;
}

std::string print(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::integer: return fmt::format("{}", expr.integer);
    case ExprKind::floating: return print_float(std::bit_cast<double>(expr.bits));
    case ExprKind::boolean: return expr.integer ? "true" : "false";
    case ExprKind::name: return expr.name;
    case ExprKind::call: break;
  }
  std::string out = expr.name + "(";
  for (size_t i = 0; i < expr.operands.size(); ++i)
    out += (i ? ", " : "") + print(expr.operands[i]);
  return out + ")";
}

namespace {

class Printer {
 public:
  std::string take() { return std::move(out_); }
  void program(const Program& program);

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  template <class T, class F>
  void list(const T& items, F item) {
    bool first = true;
    for (const auto& one : items) {
      if (!first) out_ += ", ";
      first = false;
      item(one);
    }
  }
  void exprs(const Exprs& exprs) {
    out_ += '[';
    list(exprs, [&](const Expr& e) { out_ += print(e); });
    out_ += ']';
  }
  void dims(const std::vector<int64_t>& dims) { put("[{}]", fmt::join(dims, ", ")); }
  void range(const Range& range);
  void data(const Program& program);
  void kernel(const Kernel& kernel);
  void value(const Value& value, bool input);
  void function(const Function& function);
  void statements(const std::vector<Statement>& all);
  void statement(const Statement& s);
  void block(const Statement& s);
  void operand(const Operand& operand);
  void tensor(const Operand& operand);
  void call(const Statement& s);

  std::string out_;
  size_t indent_ = 4;
};

void Printer::program(const Program& program) {
  put("hir {}\n", program.version);
  if (!program.producer.empty()) put("producer {}\n", quote(program.producer));
  for (const User& user : program.user) put("user {} {}\n", quote(user.key), quote(user.value));
  if (program.has_tree) put("tree {}\n", quote(program.tree));
  for (const std::string& text : program.asserts) put("assert {}\n", quote(text));
  if (const World& world = program.world; program.has_world)
    put("world {} rank {} set {}\n", world.size, world.rank, quote(world.set));
  if (!program.targets.empty()) out_ += '\n';
  for (const Target& t : program.targets)
    put("target {} {} {}\n", t.name.text, t.port.text, quote(t.arch));
  data(program);
  if (!program.images.empty()) out_ += '\n';
  for (const Image& i : program.images)
    put("image {} {} {} {}\n", i.name.text, i.target.text, image_format_name(i.format),
        quote(i.file.text));
  if (!program.kernels.empty()) out_ += '\n';
  for (const Kernel& k : program.kernels) kernel(k);
  for (const Function& f : program.functions) function(f);
}

void Printer::data(const Program& program) {
  if (!program.constants.empty() || !program.states.empty()) out_ += '\n';
  for (const Constant& c : program.constants) {
    put("constant {} {} ", c.name.text, dtype_name(c.dtype));
    dims(c.dims);
    if (!c.folded_by.text.empty())
      put(" folded_by {}\n", c.folded_by.text);
    else if (c.in_file)
      put(" file {} tensor {}\n", quote(c.file), quote(c.tensor));
    else
      put(" bytes {}\n", quote(c.bytes.text));
  }
  for (const State& s : program.states) {
    put("state {} {} ", s.name.text, dtype_name(s.dtype));
    dims(s.dims);
    if (s.init.text.empty())
      put(" fill {}\n", print(s.fill));
    else
      put(" constant {}\n", s.init.text);
  }
}

void Printer::kernel(const Kernel& k) {
  put("kernel {} {} {} (", k.name.text, k.image.text, quote(k.symbol));
  list(k.params, [&](husk_dtype dtype) { out_ += dtype_name(dtype); });
  out_ += ')';
  if (k.block[0] != 1 || k.block[1] != 1 || k.block[2] != 1)
    put(" block {} {} {}", k.block[0], k.block[1], k.block[2]);
  if (k.shared) put(" shared {}", k.shared);
  if (k.cluster != 1) put(" cluster {}", k.cluster);
  if (k.flags & kPdlWaitFirst) out_ += " pdl_wait_first";
  if (k.flags & kPdlInGraph) out_ += " pdl_in_graph";
  if (k.flags & kCooperative) out_ += " cooperative";
  if (k.flags & kTriggersEarly) out_ += " triggers_early";
  out_ += '\n';
}

void Printer::range(const Range& range) {
  put("{}", range.min);
  if (range.max == range.min) return;
  if (range.max == INT64_MAX)
    out_ += "..inf";
  else
    put("..{}", range.max);
}

void Printer::value(const Value& v, bool input) {
  put("  {} {} {}", input ? "input" : "output", v.name.text, value_kind_name(v.kind));
  if (v.kind == HUSK_VALUE_TENSOR && !input) put(" {} rank {}", dtype_name(v.dtype), v.rank);
  if (v.kind == HUSK_VALUE_TENSOR && input) {
    put(" {} [", dtype_name(v.dtype));
    list(v.ranges, [&](const Range& r) { range(r); });
    out_ += ']';
  }
  if (v.kind == HUSK_VALUE_INT && !v.ranges.empty()) {
    out_ += ' ';
    range(v.ranges[0]);
  }
  out_ += '\n';
}

void Printer::function(const Function& f) {
  put("\nfunction {} {{\n", f.name.text);
  for (const Value& v : f.inputs) value(v, true);
  for (const Value& v : f.outputs) value(v, false);
  for (const Variant& v : f.variants) {
    put("  variant {} {{\n", v.target.text);
    statements(v.statements);
    out_ += "    return (";
    list(v.results, [&](const ResultItem& r) {
      switch (r.keyword) {
        case ResultKeyword::tensor: tensor(r.operand); break;
        case ResultKeyword::integer: put("int {}", print(r.operand.exprs[0])); break;
        case ResultKeyword::floating: put("float {}", print(r.operand.exprs[0])); break;
        case ResultKeyword::none: out_ += "none"; break;
      }
    });
    out_ += ")\n  }\n";
  }
  out_ += "}\n";
}

void Printer::tensor(const Operand& o) {
  put("tensor {} {} ", o.name.text, dtype_name(o.dtype));
  exprs(o.sizes);
  out_ += ' ';
  exprs(o.strides);
  if (!o.whole) put(" offset {}", print(o.exprs[0]));
}

void Printer::operand(const Operand& o) {
  if (o.access) put("{} ", access_name(o.access));
  switch (o.kind) {
    case OperandKind::view:
      out_ += o.name.text;
      if (!o.whole) exprs(o.exprs);
      break;
    case OperandKind::tensor: tensor(o); break;
    case OperandKind::scalar: out_ += print(o.exprs[0]); break;
    case OperandKind::list: exprs(o.exprs); break;
    case OperandKind::string: out_ += quote(o.name.text); break;
    case OperandKind::dtype: put("dtype {}", dtype_name(o.dtype)); break;
    case OperandKind::null: out_ += "null"; break;
    case OperandKind::asserts: out_ += "asserts"; break;
    case OperandKind::none: out_ += "none"; break;
    case OperandKind::result: put("result {}", o.dtype == HUSK_I64 ? "int" : "float"); break;
    case OperandKind::floats:
      out_ += "floats ";
      exprs(o.exprs);
      break;
    case OperandKind::tensors:
      out_ += "tensors [";
      list(o.items, [&](const Operand& item) { operand(item); });
      out_ += ']';
      break;
  }
}

// Prints the arguments of a step and its origin.
void Printer::call(const Statement& s) {
  out_ += " (";
  list(s.operands, [&](const Operand& o) { operand(o); });
  if (s.kind == StatementKind::fill) put(", {}", print(s.exprs[0]));
  out_ += ')';
  if (s.has_text) put(" at {}", quote(s.text));
}

void Printer::statements(const std::vector<Statement>& all) {
  for (const Statement& s : all) statement(s);
}

// Prints a when or a loop.
void Printer::block(const Statement& s) {
  const std::string margin(indent_, ' ');
  const bool loop = s.kind == StatementKind::loop;
  out_ += loop ? "loop {\n" : fmt::format("when {} {{\n", print(s.exprs[0]));
  indent_ += 2;
  statements(s.body);
  if (loop) put("{}  while {}\n", margin, print(s.exprs[0]));
  if (s.has_else) put("{}}} else {{\n", margin);
  statements(s.other);
  indent_ -= 2;
  put("{}}}", margin);
}

void Printer::statement(const Statement& s) {
  out_.append(indent_, ' ');
  switch (s.kind) {
    case StatementKind::let: put("let {} = {}", s.name.text, print(s.exprs[0])); break;
    case StatementKind::check:
      put("{}(", s.name.text);
      list(s.exprs, [&](const Expr& e) { out_ += print(e); });
      out_ += ')';
      if (s.has_text) put(" {}", quote(s.text));
      break;
    case StatementKind::buffer:
      put("buffer {}", s.name.text);
      if (s.of != BufferOf::arena) put(" of {}", s.of == BufferOf::input ? "input" : "output");
      put(" bytes {}", print(s.exprs[0]));
      if (s.align) put(" align {}", s.align);
      if (s.on_host) out_ += " on host";
      break;
    case StatementKind::launch:
      put("launch {} grid ({}, {}, {})", s.name.text, print(s.exprs[0]), print(s.exprs[1]),
          print(s.exprs[2]));
      call(s);
      break;
    case StatementKind::external:
      put("extern {}", quote(s.name.text));
      call(s);
      break;
    case StatementKind::copy:
      out_ += "copy";
      call(s);
      break;
    case StatementKind::fill:
    case StatementKind::read:
      put("{} {}", s.kind == StatementKind::fill ? "fill" : "read", dtype_name(s.dtype));
      call(s);
      break;
    case StatementKind::when:
    case StatementKind::loop: block(s); break;
  }
  out_ += '\n';
}

}  // namespace

std::string print(const Program& program) {
  Printer printer;
  printer.program(program);
  return printer.take();
}

}  // namespace husk::compiler
