// Variants: statements, arguments, expressions.
#include <husk/op.h>

#include <bit>

#include "ir/parsing.h"
#include "ir/words.h"

namespace husk::compiler {
namespace {

// An expression deeper than this is refused: the passes that follow recurse.
constexpr int kMaxDepth = 200;
constexpr int kMaxBlocks = 64;   // and so are blocks

}  // namespace

Variant Parser::variant() {
  Variant variant;
  variant.target = name("a target's name");
  expect_mark('{');
  variant.statements = statements("return");
  variant.return_place = now_.place;
  take();
  list('(', ')', [&] { variant.results.push_back(result()); });
  if (!accept_mark('}')) expected("'}': return is a variant's last statement");
  return variant;
}

// Statements up to the word `end` or, in a block, a '}'; it stays.
std::vector<Statement> Parser::statements(std::string_view end) {
  std::vector<Statement> all;
  const bool in_block = end != "return";
  while (!is_word(end) && !(in_block && is_mark('}'))) {
    if (in_block && is_word("return")) fail(now_.place, "return is a variant's last statement: none of a block");
    all.push_back(statement());
  }
  return all;
}

void Parser::when(Statement& s) {
  s.kind = StatementKind::when;
  s.exprs.push_back(expr());
  expect_mark('{');
  s.body = statements("}");
  take();
  if (!accept_word("else")) return;
  s.has_else = true;
  expect_mark('{');
  s.other = statements("}");
  take();
}

void Parser::loop(Statement& s) {
  s.kind = StatementKind::loop;
  expect_mark('{');
  s.body = statements("while");
  if (!accept_word("while")) fail(s.place, "this loop has no 'while', where it would end");
  s.exprs.push_back(expr());
  s.other = statements("}");
  take();
}

void Parser::at(Statement& s) {
  if (!accept_word("at")) return;
  s.has_text = true;
  s.text = string("a text in quotes");
}

void Parser::buffer(Statement& s) {
  s.name = name("the buffer's name");
  if (accept_word("of")) {
    if (accept_word("input")) {
      s.of = BufferOf::input;
    } else if (accept_word("output")) {
      s.of = BufferOf::output;
    } else {
      expected("input or output");
    }
  }
  expect_word("bytes");
  s.exprs.push_back(expr());
  if (accept_word("align")) s.align = integer("bytes");
}

void Parser::launch(Statement& s) {
  s.name = name("a kernel's name");
  expect_word("grid");
  expect_mark('(');
  for (int i = 0; i < 3; ++i) {
    if (i) expect_mark(',');
    s.exprs.push_back(expr());
  }
  expect_mark(')');
  list('(', ')', [&] { s.operands.push_back(argument()); });
  at(s);
}

Statement Parser::statement() {
  Statement s;
  s.place = now_.place;
  if (accept_word("let")) {
    s.name = name("a name");
    expect_mark('=');
    s.exprs.push_back(expr());
  } else if (is_word("check") || is_word("check_eq") || is_word("check_le") || is_word("check_stride")) {
    s.kind = StatementKind::check;
    s.name = name("a check");
    list('(', ')', [&] { s.exprs.push_back(expr()); });
    if ((s.has_text = now_.kind == TokenKind::string)) s.text = take().text;
  } else if (accept_word("buffer")) {
    s.kind = StatementKind::buffer;
    buffer(s);
  } else if (accept_word("launch")) {
    s.kind = StatementKind::launch;
    launch(s);
  } else if (accept_word("extern")) {
    s.kind = StatementKind::external;
    s.name = quoted("the op's name in quotes");
    list('(', ')', [&] { s.operands.push_back(argument()); });
    at(s);
  } else if (accept_word("copy")) {
    s.kind = StatementKind::copy;
    expect_mark('(');
    s.operands.push_back(view());
    expect_mark(',');
    s.operands.push_back(view());
    expect_mark(')');
    at(s);
  } else if (accept_word("fill")) {
    s.kind = StatementKind::fill;
    s.dtype = dtype(false);
    expect_mark('(');
    s.operands.push_back(view());
    expect_mark(',');
    s.exprs.push_back(expr());
    expect_mark(')');
    at(s);
  } else if (accept_word("read")) {
    s.kind = StatementKind::read;
    s.dtype = dtype(false);
    expect_mark('(');
    s.operands.push_back(view());
    expect_mark(')');
    at(s);
  } else if (is_word("when") || is_word("loop")) {
    if (++block_depth_ > kMaxBlocks) fail(s.place, "blocks deeper than {}", kMaxBlocks);
    take().text == "when" ? when(s) : loop(s);
    --block_depth_;
  } else {
    expected("a statement (let, check, buffer, launch, extern, copy, fill, read, when, loop, return)");
  }
  return s;
}

ResultItem Parser::result() {
  ResultItem item;
  item.operand.place = now_.place;
  if (accept_word("tensor")) {
    item.keyword = ResultKeyword::tensor;
    tensor(item.operand);
  } else if (is_word("int") || is_word("float")) {
    item.keyword = take().text == "int" ? ResultKeyword::integer : ResultKeyword::floating;
    item.operand.kind = OperandKind::scalar;
    item.operand.exprs.push_back(expr());
  } else if (!accept_word("none")) {
    expected("tensor, int, float or none");
  }
  return item;
}

void Parser::tensor(Operand& operand) {
  operand.kind = OperandKind::tensor;
  operand.name = name("a buffer's name");
  operand.dtype = dtype(false);
  operand.sizes = exprs();
  operand.strides = exprs();
  if (accept_word("offset")) {
    operand.whole = false;
    operand.exprs.push_back(expr());
  }
}

// After the access; `operand` has it already.
void Parser::view(Operand& operand) {
  operand.kind = OperandKind::view;
  operand.name = name("a buffer's name");
  if (!accept_mark('[')) return;
  operand.whole = false;
  operand.exprs.push_back(expr());
  expect_mark(',');
  operand.exprs.push_back(expr());
  expect_mark(']');
}

Operand Parser::view() {
  Operand operand;
  operand.place = now_.place;
  operand.access = now_.kind == TokenKind::name ? access_of(now_.text) : uint8_t{0};
  if (!operand.access) expected("a view (read, write, both or atomic, then a buffer)");
  take();
  view(operand);
  return operand;
}

Operand Parser::argument() {
  Operand operand;
  operand.place = now_.place;
  operand.access = now_.kind == TokenKind::name ? access_of(now_.text) : uint8_t{0};
  if (operand.access) {
    take();
    if (accept_word("tensor")) {
      tensor(operand);
      return operand;
    }
    view(operand);
  } else if (now_.kind == TokenKind::string) {
    operand.kind = OperandKind::string;
    operand.name = quoted("a string");
  } else if (word_argument(operand)) {
    return operand;
  } else if (is_mark('[')) {
    operand.kind = OperandKind::list;
    operand.exprs = exprs();
  } else {
    operand.kind = OperandKind::scalar;
    operand.exprs.push_back(expr());
  }
  return operand;
}

// An argument that begins with a word of its own; false if there is no such word.
bool Parser::word_argument(Operand& operand) {
  if (accept_word("dtype")) {
    operand.kind = OperandKind::dtype;
    operand.dtype = dtype(false);
  } else if (accept_word("null")) {
    operand.kind = OperandKind::null;
  } else if (accept_word("asserts")) {
    operand.kind = OperandKind::asserts;
  } else if (accept_word("none")) {
    operand.kind = OperandKind::none;
  } else if (accept_word("floats")) {
    operand.kind = OperandKind::floats;
    operand.exprs = exprs();
  } else if (accept_word("tensors")) {
    operand.kind = OperandKind::tensors;
    list('[', ']', [&] { operand.items.push_back(item()); });
  } else if (is_word("result")) {
    Expr e;
    e.place = now_.place;
    e.name = take().text;
    if (is_mark('(')) {   // result(0), a number
      operand.kind = OperandKind::scalar;
      call(e);
      operand.exprs.push_back(std::move(e));
      return true;
    }
    if (!is_word("int") && !is_word("float")) expected("int or float");
    operand.kind = OperandKind::result;
    operand.dtype = take().text == "int" ? HUSK_I64 : HUSK_F64;
  } else {
    return false;
  }
  return true;
}

Operand Parser::item() {
  Operand operand;
  operand.place = now_.place;
  if (accept_word("none")) return operand;
  operand.access = now_.kind == TokenKind::name ? access_of(now_.text) : uint8_t{0};
  if (!operand.access) expected("none, or a tensor with its access before it");
  take();
  expect_word("tensor");
  tensor(operand);
  return operand;
}

Exprs Parser::exprs() {
  Exprs out;
  list('[', ']', [&] { out.push_back(expr()); });
  return out;
}

// The operands of an op, behind its name.
void Parser::call(Expr& e) {
  e.kind = ExprKind::call;
  list('(', ')', [&] { e.operands.push_back(expr()); });
}

Expr Parser::expr() {
  Expr e;
  e.place = now_.place;
  if (++depth_ > kMaxDepth) fail(e.place, "an expression deeper than {}: name a part of it with let", kMaxDepth);
  if (now_.kind == TokenKind::integer) {
    e.integer = take().integer;
  } else if (now_.kind == TokenKind::floating) {
    e.kind = ExprKind::floating;
    e.bits = std::bit_cast<uint64_t>(take().floating);
  } else if (is_word("true") || is_word("false")) {
    e.kind = ExprKind::boolean;
    e.integer = take().text == "true";
  } else {
    e.kind = ExprKind::name;
    e.name = name("an expression").text;
    if (is_mark('(')) call(e);
  }
  --depth_;
  return e;
}

}  // namespace husk::compiler
