// The parser itself, for the two files that it is written in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/failure.h"
#include "ir/lexer.h"

namespace husk::compiler {

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) { now_ = lexer_.next(); }

  Program program();

 private:
  // Tokens.
  Token take();
  bool is_word(std::string_view word) const { return now_.kind == TokenKind::name && now_.text == word; }
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

template <class F>
void Parser::list(char open, char close, F item) {
  expect_mark(open);
  if (accept_mark(close)) return;
  do item();
  while (accept_mark(','));
  if (!accept_mark(close)) expected(fmt::format("',' or '{}'", close));
}

}  // namespace husk::compiler
