#include "ir/parser.h"

#include <bit>
#include <string>
#include <string_view>
#include <vector>

#include <husk/husk.h>
#include <husk/op.h>

#include "ir/compile_error.h"
#include "ir/lexer.h"
#include "ir/op_table.h"
#include "model/rows.h"

namespace husk::compiler {
namespace {

// Limits of nesting, since the passes are recursive.
constexpr int kMaxDepth = 200;  // of expressions
constexpr int kMaxBlocks = 64;  // of blocks

// A recursive-descent parser with one token of lookahead, `now_`.
class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) { now_ = lexer_.next(); }

  Program program();

 private:
  // Tokens. take() returns `now_` and advances; accept_...() advances only if the token matches;
  // expect_...() throws otherwise.
  Token take();
  bool is_word(std::string_view word) const {
    return now_.kind == TokenKind::name && now_.text == word;
  }
  bool is_mark(char mark) const { return now_.kind == TokenKind::mark && now_.text[0] == mark; }
  bool accept_word(std::string_view word);
  bool accept_mark(char mark);
  void expect_word(std::string_view word);
  void expect_mark(char mark);
  [[noreturn]] void expected(std::string_view what) const;
  Name name(std::string_view what);
  Name quoted(std::string_view what);
  std::string string(std::string_view what) { return quoted(what).text; }
  int64_t integer(std::string_view what);
  husk_dtype dtype(bool pointer);
  template <class F>
  void list(char open, char close, F item);

  // The file.
  void constant(Program& program);
  void state(Program& program);
  void image(Program& program);
  void kernel(Program& program);
  void function(Program& program);
  std::vector<int64_t> dims();
  Range range();
  Value input();
  Value output();
  Variant variant();

  // Statements.
  Statement statement();
  std::vector<Statement> statements(std::string_view end);
  void when(Statement& s);
  void loop(Statement& s);
  void launch(Statement& s);
  void buffer(Statement& s);
  void at(Statement& s);
  ResultItem result();
  Operand view();
  void view(Operand& operand);
  Operand argument();
  bool word_argument(Operand& operand);
  Operand item();
  void tensor(Operand& operand);
  Expr expr();
  void call(Expr& e);
  Exprs exprs();

  Lexer lexer_;
  Token now_;
  int depth_ = 0, block_depth_ = 0;
};

// Parses `open item , item , ... close`.
template <class F>
void Parser::list(char open, char close, F item) {
  expect_mark(open);
  if (accept_mark(close)) return;
  do item();
  while (accept_mark(','));
  if (!accept_mark(close)) expected(fmt::format("',' or '{}'", close));
}

Token Parser::take() {
  Token token = std::move(now_);
  now_ = lexer_.next();
  return token;
}

bool Parser::accept_word(std::string_view word) {
  if (!is_word(word)) return false;
  take();
  return true;
}

bool Parser::accept_mark(char mark) {
  if (!is_mark(mark)) return false;
  take();
  return true;
}

void Parser::expect_word(std::string_view word) {
  if (!accept_word(word)) expected(fmt::format("'{}'", word));
}

void Parser::expect_mark(char mark) {
  if (!accept_mark(mark)) expected(fmt::format("'{}'", mark));
}

void Parser::expected(std::string_view what) const {
  switch (now_.kind) {
    case TokenKind::end: fail(now_.place, "expected {}, found the end of the text", what);
    case TokenKind::string: fail(now_.place, "expected {}, found a string", what);
    default: fail(now_.place, "expected {}, found '{}'", what, now_.text);
  }
}

Name Parser::name(std::string_view what) {
  if (now_.kind != TokenKind::name) expected(what);
  Token token = take();
  return {token.place, std::move(token.text)};
}

Name Parser::quoted(std::string_view what) {
  if (now_.kind != TokenKind::string) expected(what);
  Token token = take();
  return {token.place, std::move(token.text)};
}

int64_t Parser::integer(std::string_view what) {
  if (now_.kind != TokenKind::integer) expected(what);
  return take().integer;
}

husk_dtype Parser::dtype(bool pointer) {
  const husk_dtype dtype = now_.kind == TokenKind::name ? dtype_of(now_.text) : HUSK_DTYPE_NONE;
  if (dtype == HUSK_DTYPE_NONE || (dtype == HUSK_POINTER && !pointer))
    expected(pointer ? "a type (f32, i64, ptr, ...)" : "an element type (f32, i64, ...)");
  take();
  return dtype;
}

Program Parser::program() {
  Program program;
  expect_word("hir");
  program.version_place = now_.place;
  program.version = integer("the version of the text form");
  bool has_producer = false;
  while (now_.kind != TokenKind::end) {
    const Place place = now_.place;
    if (accept_word("producer")) {
      if (has_producer) fail(place, "a second producer");
      has_producer = true;
      program.producer = string("a string");
    } else if (accept_word("user")) {
      std::string key = string("a key in quotes");
      program.user.push_back({std::move(key), string("a value in quotes")});
    } else if (accept_word("tree")) {
      if (program.has_tree) fail(place, "a second tree");
      program.has_tree = true;
      program.tree = string("JSON in quotes");
    } else if (accept_word("assert")) {
      program.asserts.push_back(string("a text in quotes"));
    } else if (accept_word("world")) {
      if (program.has_world) fail(place, "a second world");
      program.has_world = true;
      program.world.place = place;
      program.world.size = integer("the number of ranks");
      expect_word("rank");
      program.world.rank = integer("the number of the rank");
      expect_word("set");
      program.world.set = string("64 hexadecimal digits in quotes");
    } else if (accept_word("target")) {
      Target target;
      target.name = name("the target's name");
      target.port = name("a port (host, cuda)");
      target.arch = string("an architecture in quotes");
      program.targets.push_back(std::move(target));
    } else if (accept_word("constant")) {
      constant(program);
    } else if (accept_word("state")) {
      state(program);
    } else if (accept_word("image")) {
      image(program);
    } else if (accept_word("kernel")) {
      kernel(program);
    } else if (accept_word("function")) {
      function(program);
    } else {
      expected(
          "producer, user, tree, assert, world, target, constant, state, image, kernel or "
          "function");
    }
  }
  return program;
}

std::vector<int64_t> Parser::dims() {
  std::vector<int64_t> out;
  list('[', ']', [&] { out.push_back(integer("a size")); });
  return out;
}

void Parser::constant(Program& program) {
  Constant constant;
  constant.name = name("the constant's name");
  constant.dtype = dtype(false);
  constant.dims = dims();
  if (accept_word("file")) {
    constant.in_file = true;
    constant.bytes.place = now_.place;
    constant.file = string("a path in quotes");
    expect_word("tensor");
    constant.tensor = string("the tensor's name in quotes");
  } else if (accept_word("bytes")) {
    constant.bytes = quoted("hexadecimal digits in quotes");
  } else if (accept_word("folded_by")) {
    constant.folded_by = name("the name of a function");
  } else {
    expected("'file', 'bytes' or 'folded_by'");
  }
  program.constants.push_back(std::move(constant));
}

void Parser::state(Program& program) {
  State state;
  state.name = name("the state's name");
  state.dtype = dtype(false);
  state.dims = dims();
  if (accept_word("constant")) {
    state.init = name("a constant's name");
  } else {
    if (!accept_word("fill")) expected("'fill' or 'constant'");
    if (now_.kind != TokenKind::integer && now_.kind != TokenKind::floating) expected("a number");
    state.fill = expr();
  }
  program.states.push_back(std::move(state));
}

void Parser::image(Program& program) {
  Image image;
  image.name = name("the image's name");
  image.target = name("a target's name");
  for (int32_t format : {HUSK_IMAGE_ELF, HUSK_IMAGE_CUBIN, HUSK_IMAGE_PTX})
    if (is_word(image_format_name(format))) image.format = format;
  if (!image.format) expected("elf, cubin or ptx");
  take();
  image.file = quoted("a path in quotes");
  program.images.push_back(std::move(image));
}

void Parser::kernel(Program& program) {
  Kernel kernel;
  kernel.name = name("the kernel's name");
  kernel.image = name("an image's name");
  kernel.symbol = string("the symbol in quotes");
  list('(', ')', [&] { kernel.params.push_back(dtype(true)); });
  for (bool more = true; more;) {
    if (accept_word("block"))
      for (int64_t& n : kernel.block) n = integer("three ints");
    else if (accept_word("shared"))
      kernel.shared = integer("bytes");
    else if (accept_word("cluster"))
      kernel.cluster = integer("blocks");
    else if (accept_word("pdl_wait_first"))
      kernel.flags |= kPdlWaitFirst;
    else if (accept_word("cooperative"))
      kernel.flags |= kCooperative;
    else if (accept_word("pdl_in_graph"))
      kernel.flags |= kPdlInGraph;
    else if (accept_word("triggers_early"))
      kernel.flags |= kTriggersEarly;
    else
      more = false;
  }
  program.kernels.push_back(std::move(kernel));
}

void Parser::function(Program& program) {
  Function function;
  function.name = name("the function's name");
  expect_mark('{');
  while (accept_word("input")) function.inputs.push_back(input());
  while (accept_word("output")) function.outputs.push_back(output());
  while (accept_word("variant")) function.variants.push_back(variant());
  if (!accept_mark('}')) expected("inputs, then outputs, then variants, or '}'");
  program.functions.push_back(std::move(function));
}

Range Parser::range() {
  Range range;
  range.place = now_.place;
  range.min = range.max = integer("a size or a range");
  if (now_.kind == TokenKind::dots) {
    take();
    if (now_.kind == TokenKind::floating && now_.text == "inf") {
      take();
      range.max = INT64_MAX;
    } else {
      range.max = integer("the largest value, or inf");
    }
  }
  return range;
}

Value Parser::input() {
  Value value;
  value.name = name("the input's name");
  if (accept_word("tensor")) {
    value.kind = HUSK_VALUE_TENSOR;
    value.dtype = dtype(false);
    list('[', ']', [&] { value.ranges.push_back(range()); });
    value.rank = static_cast<int64_t>(value.ranges.size());
  } else if (accept_word("int")) {
    value.kind = HUSK_VALUE_INT;
    if (now_.kind == TokenKind::integer) value.ranges.push_back(range());
  } else if (accept_word("float")) {
    value.kind = HUSK_VALUE_FLOAT;
  } else if (accept_word("bool")) {
    value.kind = HUSK_VALUE_BOOL;
  } else if (!accept_word("none")) {
    expected("tensor, int, float, bool or none");
  }
  return value;
}

Value Parser::output() {
  Value value;
  value.name = name("the output's name");
  if (accept_word("tensor")) {
    value.kind = HUSK_VALUE_TENSOR;
    value.dtype = dtype(false);
    expect_word("rank");
    value.rank = integer("the rank");
  } else if (accept_word("int")) {
    value.kind = HUSK_VALUE_INT;
  } else if (accept_word("float")) {
    value.kind = HUSK_VALUE_FLOAT;
  } else if (accept_word("bool")) {
    value.kind = HUSK_VALUE_BOOL;
  } else if (!accept_word("none")) {
    expected("tensor, int, float, bool or none");
  }
  return value;
}

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

// Parses statements up to the word `end` or, in a block, up to '}'. Does not take that token.
std::vector<Statement> Parser::statements(std::string_view end) {
  std::vector<Statement> all;
  const bool in_block = end != "return";
  while (!is_word(end) && !(in_block && is_mark('}'))) {
    if (in_block && is_word("return"))
      fail(now_.place, "return must be a variant's last statement, outside of blocks");
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
  if (!accept_word("while")) fail(s.place, "this loop has no 'while'");
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
    if (accept_word("input"))
      s.of = BufferOf::input;
    else if (accept_word("output"))
      s.of = BufferOf::output;
    else
      expected("input or output");
  }
  expect_word("bytes");
  s.exprs.push_back(expr());
  if (accept_word("align")) s.align = integer("bytes");
  if (!accept_word("on")) return;
  expect_word("host");
  s.on_host = true;
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
  } else if (is_word("check") || is_word("check_eq") || is_word("check_le") ||
             is_word("check_stride")) {
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
    if (++block_depth_ > kMaxBlocks) fail(s.place, "blocks are nested deeper than {}", kMaxBlocks);
    take().text == "when" ? when(s) : loop(s);
    --block_depth_;
  } else {
    expected(
        "a statement (let, check, buffer, launch, extern, copy, fill, read, when, loop, return)");
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

// Parses the rest of a view after its access.
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

// Parses an argument that begins with a keyword. Returns false if the token is none of them.
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
    if (is_mark('(')) {  // the expression result(0)
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

// Parses the operands of an op after its name.
void Parser::call(Expr& e) {
  e.kind = ExprKind::call;
  list('(', ')', [&] { e.operands.push_back(expr()); });
}

Expr Parser::expr() {
  Expr e;
  e.place = now_.place;
  if (++depth_ > kMaxDepth)
    fail(e.place, "the expression is nested deeper than {}: name a part of it with let", kMaxDepth);
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

}  // namespace

Program parse(std::string_view text) { return Parser(text).program(); }

}  // namespace husk::compiler
