#include "ir/lexer.h"

#include <charconv>
#include <limits>

#include "ir/compile_error.h"

namespace husk::compiler {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_name(char c) { return begins_name(c) || is_digit(c) || c == '.' || c == ':'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void Lexer::step() {
  if (text_[at_] == '\n') {
    ++place_.line;
    place_.column = 1;
  } else if ((static_cast<unsigned char>(text_[at_]) & 0xC0) != 0x80) {
    ++place_.column;  // counts characters of UTF-8, not bytes
  }
  ++at_;
}

void Lexer::skip_space() {
  while (at_ < text_.size()) {
    const char c = peek();
    if (c == '#')
      while (at_ < text_.size() && peek() != '\n') step();
    else if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
      step();
    else
      return;
  }
}

Token Lexer::next() {
  skip_space();
  if (at_ >= text_.size()) return {TokenKind::end, place_, "", 0, 0};
  const char c = peek();
  if (c == '"') return string();
  if (begins_name(c)) return word();
  if (is_digit(c) || (c == '-' && (is_digit(peek(1)) || peek(1) == 'i'))) return number();
  const bool dots = c == '.' && peek(1) == '.';
  if (!dots && std::string_view("(){}[],=").find(c) == std::string_view::npos) {
    if (c < ' ' || c > '~')
      fail(place_, "byte 0x{:02x} is not allowed here", static_cast<unsigned char>(c));
    fail(place_, "'{}' is not allowed here", c);
  }
  Token token{dots ? TokenKind::dots : TokenKind::mark, place_, std::string(dots ? 2 : 1, c), 0, 0};
  if (dots) step();
  step();
  return token;
}

Token Lexer::word() {
  Token token{TokenKind::name, place_, "", 0, 0};
  while (continues_name(peek()) && at_ < text_.size()) {
    if (peek() == '.' && peek(1) == '.') break;
    token.text += peek();
    step();
  }
  const std::string_view word = token.text;
  if (word == "inf" || word == "nan") {
    token.kind = TokenKind::floating;
    token.floating = word == "inf" ? std::numeric_limits<double>::infinity()
                                   : std::numeric_limits<double>::quiet_NaN();
  }
  return token;
}

Token Lexer::number() {
  Token token{TokenKind::integer, place_, "", 0, 0};
  auto take = [&] {
    token.text += peek();
    step();
  };
  if (peek() == '-') take();
  if (peek() == 'i') {
    while (continues_name(peek())) take();
    if (std::string_view(token.text) != "-inf")
      fail(token.place, "'{}' is not a number", token.text);
    token.kind = TokenKind::floating;
    token.floating = -std::numeric_limits<double>::infinity();
    return token;
  }
  while (is_digit(peek())) take();
  if (peek() == '.' && peek(1) != '.') {
    token.kind = TokenKind::floating;
    do take();
    while (is_digit(peek()));
  }
  if (peek() == 'e' || peek() == 'E') {
    token.kind = TokenKind::floating;
    take();
    if (peek() == '-' || peek() == '+') take();
    while (is_digit(peek())) take();
  }
  const char* end = token.text.data() + token.text.size();
  std::from_chars_result parsed = token.kind == TokenKind::integer
                                      ? std::from_chars(token.text.data(), end, token.integer)
                                      : std::from_chars(token.text.data(), end, token.floating);
  if (continues_name(peek()) && !(peek() == '.' && peek(1) == '.')) parsed.ptr = nullptr;
  if (parsed.ec == std::errc::result_out_of_range)
    fail(token.place, "{} does not fit 64 bits", token.text);
  if (parsed.ec != std::errc() || parsed.ptr != end)
    fail(token.place, "'{}{}' is not a number", token.text, peek());
  return token;
}

Token Lexer::string() {
  Token token{TokenKind::string, place_, "", 0, 0};
  step();
  while (true) {
    if (at_ >= text_.size() || peek() == '\n')
      fail(token.place, "the string that begins here does not end: write \\n for a new line");
    const char c = peek();
    const Place place = place_;
    step();
    if (c == '"') return token;
    if (c != '\\') {
      token.text += c;
      continue;
    }
    const char escape = peek();
    if (at_ < text_.size()) step();
    switch (escape) {
      case '"':
      case '\\': token.text += escape; break;
      case 'n': token.text += '\n'; break;
      case 't': token.text += '\t'; break;
      case 'x': {
        const int high = hex_digit(peek()), low = high < 0 ? -1 : hex_digit(peek(1));
        if (low < 0) fail(place, "\\x needs two hexadecimal digits");
        token.text += static_cast<char>(high * 16 + low);
        step();
        step();
        break;
      }
      default: fail(place, "the escapes of a string are \\\" \\\\ \\n \\t \\xHH");
    }
  }
}

}  // namespace husk::compiler
