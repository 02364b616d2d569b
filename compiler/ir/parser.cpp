// Tokens, and what stands outside of variants.
#include "ir/parser.h"

#include <husk/husk.h>

#include "ir/parsing.h"
#include "ir/words.h"
#include "rows.h"

namespace husk::compiler {

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
  const husk_dtype got = now_.kind == TokenKind::name ? dtype_of(now_.text) : HUSK_DTYPE_NONE;
  if (got == HUSK_DTYPE_NONE || (got == HUSK_POINTER && !pointer))
    expected(pointer ? "a type (f32, i64, ptr, ...)" : "an element type (f32, i64, ...)");
  take();
  return got;
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
      expected("producer, user, tree, assert, target, constant, state, image, kernel or function");
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
  } else {
    expected("'file' or 'bytes'");
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
    if (accept_word("block")) {
      for (int64_t& n : kernel.block) n = integer("three ints");
    } else if (accept_word("shared")) {
      kernel.shared = integer("bytes");
    } else if (accept_word("cluster")) {
      kernel.cluster = integer("blocks");
    } else if (accept_word("waits_first")) {
      kernel.flags |= kWaitsFirst;
    } else if (accept_word("cooperative")) {
      kernel.flags |= kCooperative;
    } else if (accept_word("triggers_early")) {
      kernel.flags |= kTriggersEarly;
    } else {
      more = false;
    }
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

Program parse(std::string_view text) { return Parser(text).program(); }

}  // namespace husk::compiler
