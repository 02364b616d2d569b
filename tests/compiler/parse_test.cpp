#include <gtest/gtest.h>

#include "compile.h"
#include "ir/compile_error.h"
#include "ir/lexer.h"
#include "program.h"

namespace husk::test {
namespace {

using namespace husk::compiler;

struct Case {
  const char* text;
  const char* error;
};

// Texts with one violation of the grammar each.
const Case kCases[] = {
    {"", "1:1: expected 'hir', found the end of the text"},
    {"hir", "1:4: expected the version of the text form, found the end of the text"},
    {"hir 1\n$", "2:1: '$' is not allowed here"},
    {"hir 1\n\x01", "2:1: byte 0x01 is not allowed here"},
    {"hir 1 moon",
     "1:7: expected producer, user, tree, assert, world, target, constant, state, image, kernel "
     "or function, "
     "found 'moon'"},
    {"hir 1 producer \"a\" producer \"b\"", "1:20: a second producer"},
    {"hir 1 tree \"a\" tree \"b\"", "1:16: a second tree"},
    {"hir 1 world 2 rank 0 set \"a\" world", "1:30: a second world"},
    {"hir 1 world 2 set", "1:15: expected 'rank', found 'set'"},
    {"hir 1 world 2 rank 0 set 5", "1:26: expected 64 hexadecimal digits in quotes, found '5'"},
    {"hir 1 producer \"open",
     "1:16: the string that begins here does not end: write \\n for a new line"},
    {"hir 1 producer \"\\q\"", "1:17: the escapes of a string are \\\" \\\\ \\n \\t \\xHH"},
    {"hir 1 producer \"\\x4\"", "1:17: \\x needs two hexadecimal digits"},
    {"hir 1 user \"a\" b", "1:16: expected a value in quotes, found 'b'"},
    {"hir 1 target cpu \"host\"", "1:18: expected a port (host, cuda), found a string"},
    {"hir 1 constant c f33 []", "1:18: expected an element type (f32, i64, ...), found 'f33'"},
    {"hir 1 constant c ptr []", "1:18: expected an element type (f32, i64, ...), found 'ptr'"},
    {"hir 1 constant c f32 [1,]", "1:25: expected a size, found ']'"},
    {"hir 1 constant c f32 [1 2]", "1:25: expected ',' or ']', found '2'"},
    {"hir 1 constant c f32 [1]\nbits \"00\"",
     "2:1: expected 'file', 'bytes' or 'folded_by', found 'bits'"},
    {"hir 1 constant c f32 [9223372036854775808] bytes \"\"",
     "1:23: 9223372036854775808 does not fit 64 bits"},
    {"hir 1 constant c f32 [12x] bytes \"\"", "1:23: '12x' is not a number"},
    {"hir 1 state s f32 [] fill nil", "1:27: expected a number, found 'nil'"},
    {"hir 1 state s f32 [] fill 1e999", "1:27: 1e999 does not fit 64 bits"},
    {"hir 1 state s f32 [] fill -info", "1:27: '-info' is not a number"},
    {"hir 1 image i t exe \"a\"", "1:17: expected elf, cubin or ptx, found 'exe'"},
    {"hir 1 kernel k i \"s\" (ptr, void)",
     "1:28: expected a type (f32, i64, ptr, ...), found 'void'"},
    {"hir 1 function f { output y int input x int }",
     "1:33: expected inputs, then outputs, then variants, or '}', "
     "found 'input'"},
    {"hir 1 function f { input x list }",
     "1:28: expected tensor, int, float, bool or none, found 'list'"},
    {"hir 1 function f { input x int 0..1.5 }",
     "1:35: expected the largest value, or inf, found '1.5'"},
    {"hir 1 function f { variant cpu { jump",
     "1:34: expected a statement (let, check, buffer, launch, extern, copy, "
     "fill, read, when, loop, return), found 'jump'"},
    {"hir 1 function f { variant cpu { return () let",
     "1:44: expected '}': return is a variant's last statement, "
     "found 'let'"},
    {"hir 1 function f { variant cpu { let a 1", "1:40: expected '=', found '1'"},
    {"hir 1 function f { variant cpu { buffer b of state",
     "1:46: expected input or output, found 'state'"},
    {"hir 1 function f { variant cpu { copy (x, read y)",
     "1:40: expected a view (read, write, both or atomic, then a "
     "buffer), found 'x'"},
    {"hir 1 function f { variant cpu { return (y)",
     "1:42: expected tensor, int, float or none, found 'y'"},
    {"hir 1 function f { variant cpu { let a = add(1, )",
     "1:49: expected an expression, found ')'"},
};

TEST(Parse, SaysWhereAndWhat) {
  for (const Case& c : kCases) EXPECT_EQ(error_of(c.text), c.error) << c.text;
}

TEST(Parse, RefusesDeepExpressions) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "not(";
  const std::string text = "hir 1 function f { variant cpu { let a = " + deep;
  EXPECT_NE(
      error_of(text).find("the expression is nested deeper than 200: name a part of it with let"),
      std::string::npos);
}

TEST(Parse, SurvivesEveryCutAndEveryByte) {
  const std::string whole = program("let s = add(m, 1)\ncheck_le(s, 70) \"few\"",
                                    "fill f32 (write y, 0.5) at \"a\"");
  for (size_t n = 0; n < whole.size(); ++n) {
    const bool misses_newline = n + 1 == whole.size();  // only
    EXPECT_EQ(error_of(whole.substr(0, n)).empty(), misses_newline) << n;
    for (char c : {'"', '(', '-', '9', '\xff', '\0'}) {
      std::string changed = whole;
      changed[n] = c;
      error_of(changed);
    }
  }
}

std::vector<Token> tokens(std::string_view text) {
  Lexer lexer(text);
  std::vector<Token> out;
  while (out.empty() || out.back().kind != TokenKind::end) out.push_back(lexer.next());
  return out;
}

TEST(Lex, TellsRangesFromFloats) {
  const auto got = tokens("1..1024 1.5 2. -3 -4e2 0..inf");
  ASSERT_EQ(got.size(), 11u);
  EXPECT_EQ(got[0].integer, 1);
  EXPECT_EQ(got[1].kind, TokenKind::dots);
  EXPECT_EQ(got[2].integer, 1024);
  EXPECT_EQ(got[3].floating, 1.5);
  EXPECT_EQ(got[4].floating, 2.0);
  EXPECT_EQ(got[5].integer, -3);
  EXPECT_EQ(got[6].floating, -400.0);
  EXPECT_EQ(got[9].kind, TokenKind::floating);
}

TEST(Lex, NamesHoldDotsAndColons) {
  const auto got = tokens("layer.0:weight _x # comment \n y");
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(got[0].text, "layer.0:weight");
  EXPECT_EQ(got[1].text, "_x");
  EXPECT_EQ(got[2].text, "y");
  EXPECT_EQ(got[2].place.line, 2u);
  EXPECT_EQ(got[2].place.column, 2u);
}

TEST(Lex, TakesEscapes) {
  const auto got = tokens(R"("a\"b\\c\nd\te\x41")");
  EXPECT_EQ(got[0].text, "a\"b\\c\nd\teA");
}

TEST(Lex, CountsCharactersNotBytes) {
  const auto got = tokens("\"\xc3\xa9\" x");
  EXPECT_EQ(got[1].place.column, 5u);
}

TEST(Lex, KeepsTheSmallestInt) { EXPECT_EQ(tokens("-9223372036854775808")[0].integer, INT64_MIN); }

}  // namespace
}  // namespace husk::test
