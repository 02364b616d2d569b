// Splits the text form into tokens.
#pragma once

#include <string>
#include <string_view>

#include "ir/tree.h"

namespace husk::compiler {

enum class TokenKind : uint8_t { name, integer, floating, string, mark, dots, end };

struct Token {
  TokenKind kind = TokenKind::end;
  Place place;
  std::string text;  // names and marks as written; strings with their escapes replaced
  int64_t integer = 0;
  double floating = 0;
};

// Returns the tokens one after the other. The text must outlive the lexer. Throws CompileError.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  Token next();

 private:
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  void step();
  void skip_space();
  Token number();
  Token word();
  Token string();

  std::string_view text_;
  size_t at_ = 0;
  Place place_ = {1, 1};
};

}  // namespace husk::compiler
