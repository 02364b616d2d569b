// Blocks (when, else, loop, while) and the results of segments.
#include <gtest/gtest.h>

#include "compile.h"
#include "program.h"

namespace husk::test {
namespace {

using namespace husk::compiler;

// The code of a function with inputs n in 0..9, flag, t, a buffer `b` of 8 bytes and output k. The
// lines of buffers are left out.
std::string function(std::string_view body, std::string_view k) {
  return "hir 1\ntarget cpu host \"a\"\nfunction f { input n int 0..9 input flag bool input t "
         "float output k int\n"
         "variant cpu { buffer b bytes 8\n" +
         std::string(body) + "\nreturn (int " + std::string(k) + ") } }";
}

std::string segments(std::string_view body, std::string_view k) {
  const std::string code = code_of(function(body, k));
  const size_t begin = code.find("  segment 0");
  return begin == std::string::npos ? code : code.substr(begin);
}

TEST(Block, AWhenIsASegmentThatRunsByItsCondition) {
  EXPECT_EQ(
      segments("when flag { fill u8 (write b, 1) } else { fill u8 (write b, 2) } read i64 (read b)",
               "result(0)"),
      R"(  segment 0
    %0 = const 8
    %1 = input(flag)
    %2 = not(%1)
    %3 = const 0
    %4 = const 1
    %5 = const 2
  segment 1 when %1
    0: fill u8 (write b[%3=0, %0=8], %4=1)
  segment 2 when %2
    1: fill u8 (write b[%3=0, %0=8], %5=2)
  segment 3
    2: read i64 (read b[%3=0, %0=8])
  segment 4
    %6 = result(0)
  return (%6)
)");
}

TEST(Block, AnInnerConditionHoldsOnlyWithTheOuterOne) {
  EXPECT_EQ(
      segments("when flag { when lt(n, 5) { fill u8 (write b, 1) } else { fill u8 (write b, 2) } "
               "fill u8 (write b, 3) }",
               "n"),
      R"(  segment 0
    %0 = const 8
    %1 = input(flag)
    %2 = input(n)
    %3 = const 5
    %4 = const 0
    %5 = const 1
    %6 = const 2
    %7 = const 3
  segment 1 when %1
    %8 = lt(%2, %3=5)
    %9 = and(%1, %8)
    %10 = le(%3=5, %2)
    %11 = and(%1, %10)
  segment 2 when %9
    0: fill u8 (write b[%4=0, %0=8], %5=1)
  segment 3 when %11
    1: fill u8 (write b[%4=0, %0=8], %6=2)
  segment 4 when %1
    2: fill u8 (write b[%4=0, %0=8], %7=3)
  return (%2)
)");
}

TEST(Block, ALoopGoesBackToItsFirstSegment) {
  EXPECT_EQ(
      segments("fill i64 (write b, 0) loop { read i64 (read b) let i = result(0) while lt(i, n)\n"
               "fill i64 (write b, add(i, 1)) }",
               "i"),
      R"(  segment 0
    %0 = const 8
    %1 = const 0
    %2 = input(n)
    %3 = const 1
    0: fill i64 (write b[%1=0, %0=8], %1=0)
  segment 1
    1: read i64 (read b[%1=0, %0=8])
  segment 2
    %4 = result(0)
    %5 = lt(%4, %2)
  segment 3 when %5, then back to segment 1
    %6 = add(%4, %3=1)
    2: fill i64 (write b[%1=0, %0=8], %6)
  return (%4)
)");
}

TEST(Block, RegistersOfABlockAreReusedOnlyInIt) {
  // add(n, 7) has three registers: in the block, in its else branch, and after them. n and 7 are
  // shared.
  EXPECT_EQ(segments("when flag { let p = add(n, 7) let q = mul(add(n, 7), 2) } else { let r = "
                     "mul(add(n, 7), 3) } ",
                     "add(add(p, q), add(r, add(n, 7)))"),
            R"(  segment 0
    %0 = input(flag)
    %1 = not(%0)
    %2 = input(n)
    %3 = const 7
    %4 = const 2
    %5 = const 3
  segment 1 when %0
    %6 = add(%2, %3=7)
    %7 = mul(%6, %4=2)
  segment 2 when %1
    %8 = add(%2, %3=7)
    %9 = mul(%8, %5=3)
  segment 3
    %10 = add(%6, %7)
    %11 = add(%2, %3=7)
    %12 = add(%9, %11)
    %13 = add(%10, %12)
  return (%13)
)");
}

TEST(Block, ANameOfABlockIsZeroIfItDidNotRun) {
  // p and q name registers from outside of the block, so they need a select; p - 5 and q - n do not
  // fold to 0.
  EXPECT_EQ(segments("when flag { let p = 5 let q = n let r = 2.0 }",
                     "add(sub(p, 5), add(sub(q, n), trunc(r)))"),
            R"(  segment 0
    %0 = input(flag)
    %1 = const 5
    %2 = input(n)
    %3 = fconst 2.0
    %4 = const 0
    %5 = fconst 0.0
    %6 = const -5
  segment 1
    %7 = select(%0, %1=5, %4=0)
    %8 = select(%0, %2, %4=0)
    %9 = fselect(%0, %3=2.0, %5=0.0)
    %10 = add(%7, %6=-5)
    %11 = sub(%8, %2)
    %12 = trunc(%9)
    %13 = add(%11, %12)
    %14 = add(%10, %13)
  return (%14)
)");
}

TEST(Block, ExpressionsOfABlockDoNotFoldOutside) {
  // In the block p is at least 1, and (n + 1) - n is 1. Outside p may be 0, so neither folds.
  const std::string code = segments(
      "when flag { let p = add(n, 1) check_le(1, p) let q = sub(p, n) }", "sub(p, n)");
  EXPECT_EQ(code.find("check_le"), std::string::npos) << code;
  EXPECT_NE(code.find("= sub("), std::string::npos) << code;
  EXPECT_NE(segments("when flag { let p = add(n, 1) } check_le(1, p)", "n").find("check_le"),
            std::string::npos);
}

TEST(Block, AConditionThatIsKnownLeavesNoBlock) {
  auto expect_one_fill = [](std::string_view body, std::string_view k) {
    const std::string code = segments(body, k);
    EXPECT_EQ(code.find("when"), std::string::npos) << code;
    EXPECT_NE(code.find("    0: fill u8 (write b["), std::string::npos) << code;
    EXPECT_NE(code.find("=1)\n  return"), std::string::npos) << code;
  };
  expect_one_fill("when 1 { fill u8 (write b, 1) } else { fill u8 (write b, 2) }", "n");
  expect_one_fill(
      "when lt(n, 0) { let a = 2 let z = fadd(t, t) fill u8 (write b, 2) } else { fill u8 (write "
      "b, 1) }",
      "add(add(a, n), trunc(z))");
  expect_one_fill("loop { fill u8 (write b, 1) while lt(10, n) fill u8 (write b, 2) }", "n");
}

TEST(Block, AnOpThatAlwaysFailsIsNotAnErrorInABlock) {
  for (const char* text :
       {"let a = floordiv(1, 0) check(a)", "check(0)", "check_le(10, n)", "check_eq(n, 11)",
        "let a = range(n, 10, 12)", "let a = shl(1, 63) check(a)"})
    EXPECT_EQ(error_of(function("when flag { " + std::string(text) + " }", "n")), "") << text;
}

TEST(Block, ALoopThatNeverEndsIsAnError) {
  EXPECT_EQ(error_of(function("loop { while add(n, 1) }", "n")),
            "5:14: this loop never ends: its condition is never 0");
  EXPECT_EQ(error_of(function("when flag { loop { while 1 } }", "n")), "");
}

TEST(Block, EmptySegmentsAreLeftOut) {
  EXPECT_EQ(
      segments("when flag { let a = 1 } when lt(n, 3) { when flag { } } loop { while lt(n, 3) }",
               "n"),
      R"(  segment 0
    %0 = input(flag)
    %1 = input(n)
    %2 = const 3
  segment 1
    %3 = lt(%1, %2=3)
  segment 2 when %3
    %4 = and(%0, %3)
  segment 3 when %3, then back to segment 3
  return (%1)
)");
}

TEST(Results, ASegmentHasSeveral) {
  EXPECT_EQ(segments("read u8 (read b[0, 1]) extern \"o:sizes\" (result int, n, result float) read "
                     "f16 (read b[2, 2])\n"
                     "let a = add(result(0), result(1)) let f = fadd(fresult(2), fresult(3))",
                     "add(a, trunc(f))"),
            R"(  segment 0
    %0 = const 8
    %1 = const 0
    %2 = const 1
    %3 = input(n)
    %4 = const 2
    0: read u8 (read b[%1=0, %2=1])
    1: extern "o:sizes" (result int, %3, result float)
    2: read f16 (read b[%4=2, %4=2])
  segment 1
    %5 = result(0)
    %6 = result(1)
    %7 = add(%5, %6)
    %8 = fresult(2)
    %9 = fresult(3)
    %10 = fadd(%8, %9)
    %11 = trunc(%10)
    %12 = add(%7, %11)
  return (%12)
)");
}

TEST(Results, ListsOfFloatsAndTensors) {
  const std::string code = segments(
      "extern \"o\" (tensors [read tensor b u8 [2] [1], none], floats [t, 1.5], tensors [], "
      "floats [], tensors [write tensor b i32 [] [] offset 1], 3)",
      "n");
  EXPECT_NE(
      code.find("extern \"o\" (tensors [read tensor b[%6=0, %4=2] u8 [%4=2] [%5=1], none], floats "
                "[%1, %2=1.5], "
                "tensors [], floats [], tensors [write tensor b[%7=4, %7=4] i32 [] []], %3=3)"),
      std::string::npos)
      << code;
}

TEST(Results, AReadAtTheEndIsFollowedByASegment) {
  EXPECT_EQ(
      segments("read u8 (read b[0, 1])", "n").find("segment 1\n  return") == std::string::npos,
      false);
}

struct Case {
  const char* body;
  const char* error;  // without "5:", since all errors are in line 5
};

TEST(Block, RefusesMisplacedNamesAndResults) {
  const Case cases[] = {
      {"when t { }", "6: a condition is an int, this is a float: write trunc, floor or ceil"},
      {"loop { while t }",
       "14: a condition is an int, this is a float: write trunc, floor or ceil"},
      {"when flag { let a = 1 } let a = 2", "29: 'a' is defined already, in line 5"},
      {"when flag { let a = 1 } else { let a = 2 }", "36: 'a' is defined already, in line 5"},
      {"loop { while flag let a = 1 } let a = 2", "35: 'a' is defined already, in line 5"},
      {"when flag { let c = d } let d = 2", "21: 'd' is not defined before this line"},
      {"let a = result(0)",
       "9: result must be in the segment after a read or after an extern with results, in "
       "the same block"},
      {"when flag { read u8 (read b[0, 1]) } let a = result(0)",
       "46: result must be in the segment after a read or after an extern with results, in "
       "the same block"},
      {"read u8 (read b[0, 1]) when flag { let a = result(0) }",
       "44: result must be in the segment after a read or after an extern with results, in "
       "the same block"},
      {"when flag { read u8 (read b[0, 1]) } else { let a = result(0) }",
       "53: result must be in the segment after a read or after an extern with results, in "
       "the same block"},
      {"read u8 (read b[0, 1]) loop { let a = result(0) while flag }",
       "39: result must be in the segment after a read or after an extern with results, in "
       "the same block"},
      {"read u8 (read b[0, 1]) when flag { } let a = result(0)",
       "46: result must be in the segment after a read or after an extern with results, in "
       "the same block"},
      {"loop { while flag read u8 (read b[0, 1]) } let a = result(0)",
       "52: result must be in the segment after a read or after an extern with results, in "
       "the same block"},
      {"read u8 (read b[0, 1]) let a = result(1)",
       "39: there is no result 1: the previous segment has 1"},
      {"read u8 (read b[0, 1]) let a = result(-1)",
       "39: there is no result -1: the previous segment has 1"},
      {"read u8 (read b[0, 1]) let a = result(n)",
       "39: result takes a literal: the number of the result, which counts from 0"},
      {"read i32 (read b[0, 4]) let a = fresult(0)",
       "33: result 0 of the previous segment is i32: write result(0)"},
      {"read u8 (read b[0, 1]) read f32 (read b[0, 4]) let a = result(1)",
       "56: result 1 of the previous segment is f32: write fresult(1)"},
      {"extern \"o\" (result float) let a = result(0)",
       "35: result 0 of the previous segment is f64: write fresult(0)"},
      {"extern \"o\" (floats [1])",
       "21: an element of a list of floats is a float: write float(...)"},
      {"extern \"o\" (tensors [read tensor z f32 [] []])", "34: there is no buffer 'z'"},
      {"let result = 1", "5: 'result' is a word of the text form: choose another name"},
      {"let floats = 1", "5: 'floats' is a word of the text form: choose another name"},
      {"buffer tensors bytes 1", "8: 'tensors' is a word of the text form: choose another name"},
  };
  for (const Case& c : cases)
    EXPECT_EQ(error_of(function(c.body, "n")), "5:" + std::string(c.error)) << c.body;
}

TEST(Block, ASegmentHasAtMost64Results) {
  std::string body;
  for (int i = 0; i < 64; ++i) body += "read u8 (read b[0, 1]) ";
  EXPECT_EQ(error_of(function(body, "result(63)")), "");
  EXPECT_EQ(error_of(function(body + "\nread u8 (read b[0, 1])", "n")),
            "6:1: a segment has at most 64 results: put a 'let' with some of them between "
            "the steps");
}

TEST(Block, RefusesSyntaxErrorsOfBlocks) {
  const Case cases[] = {
      {"when flag fill", "11: expected '{', found 'fill'"},
      {"when flag { return", "13: return must be a variant's last statement, outside of blocks"},
      {"when flag { } else when flag { }", "20: expected '{', found 'when'"},
      {"loop { let a = 1 }", "1: this loop has no 'while'"},
      {"loop { while flag while flag }",
       "19: expected a statement (let, check, buffer, launch, extern, copy, fill, "
       "read, when, loop, return), found 'while'"},
      {"while flag",
       "1: expected a statement (let, check, buffer, launch, extern, copy, fill, read, when, loop, "
       "return), found 'while'"},
      {"extern \"o\" (result bool)", "20: expected int or float, found 'bool'"},
      {"extern \"o\" (tensors [1])",
       "22: expected none, or a tensor with its access before it, found '1'"},
      {"extern \"o\" (tensors [read b])", "27: expected 'tensor', found 'b'"},
      {"extern \"o\" (tensors none)", "21: expected '[', found 'none'"},
      {"extern \"o\" (floats none)", "20: expected '[', found 'none'"},
  };
  for (const Case& c : cases)
    EXPECT_EQ(error_of(function(c.body, "n")), "5:" + std::string(c.error)) << c.body;
}

TEST(Block, RefusesDeepBlocks) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "when flag {";
  EXPECT_NE(error_of(function(deep, "n")).find("blocks are nested deeper than 64"),
            std::string::npos);
}

TEST(Block, IsPrintedWithItsIndentation) {
  const char* text = R"(hir 1

function f {
  input flag bool
  variant cpu {
    when flag {
      when not(flag) {
      } else {
        let a = 1
      }
    }
    loop {
      loop {
        read u8 (read b)
        while result(0)
      }
      while flag
      extern "o" (result int, result(0), floats [0.5, inf], tensors [none, read tensor b u8 [1] [1] offset 2], result float)
    }
    return ()
  }
}
)";
  const auto printed = format_text(text);
  ASSERT_TRUE(std::holds_alternative<std::string>(printed))
      << describe(std::get<Error>(printed), "text");
  EXPECT_EQ(std::get<std::string>(printed), text);
}

}  // namespace
}  // namespace husk::test
