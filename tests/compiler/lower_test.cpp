// Lowering, as the disassembler prints its result. code_of() also verifies every program.
#include <gtest/gtest.h>

#include "program.h"

namespace husk::test {
namespace {

TEST(Lower, APlainProgram) {
  const char* text = R"(hir 1
target cpu host "avx2"
constant w f32 [8] bytes "0000000000000000000000000000000000000000000000000000000000000000"
state seen i64 [] fill 1
function forward {
  input x tensor f32 [1..16, 8]
  input scale float
  output y tensor f32 rank 2
  output rows int
  variant cpu {
    let s0 = size(x, 0)
    check_stride(x, 0, 8)
    check_stride(x, 1, 1)
    check_eq(size(x, 0), s0) "always so"
    buffer x of input bytes mul(s0, 32)
    buffer y of output bytes mul(s0, 32)
    buffer unused bytes mul(s0, 999)
    buffer buf0 bytes mul(mul(s0, 8), 4) align 64
    extern "a::add.out" (read tensor x f32 [s0, 8] [8, 1], read tensor w f32 [s0, 8] [0, 1], scale,
                         write tensor buf0 f32 [s0, 8] [8, 1]) at "model.py:3"
    extern "a::note" (atomic tensor seen i64 [] [], [s0, 8], "text", dtype f16, none, true)
    copy (write y, read buf0)
    return (tensor y f32 [s0, 8] [8, 1], int s0)
  }
}
)";
  EXPECT_EQ(code_of(text), R"(function forward, variant host avx2
  buffer x of input bytes %6
  buffer y of output bytes %6
  buffer buf0 of arena bytes %6 align 64
  buffer w of constant bytes %5=32
  buffer seen of state bytes %1=8
  segment 0
    %0 = size(x, 0)
    %1 = const 8
    check_stride(x, 0, %1=8)
    %3 = const 1
    check_stride(x, 1, %3=1)
    %5 = const 32
    %6 = mul(%0, %5=32)
    %7 = const 0
    %8 = finput(scale)
    0: extern "a::add.out" (read tensor x[%7=0, %6] f32 [%0, %1=8] [%1=8, %3=1], read tensor w[%7=0, %5=32] f32 [%0, %1=8] [%7=0, %3=1], %8, write tensor buf0[%7=0, %6] f32 [%0, %1=8] [%1=8, %3=1]) at "model.py:3"
    1: extern "a::note" (atomic tensor seen[%7=0, %1=8] i64 [] [], [%0, %1=8], "text", dtype f16, none, %3=1)
    2: copy (write y[%7=0, %6], read buf0[%7=0, %6])
  return (tensor y[%7=0, %6] f32 [%0, %1=8] [%1=8, %3=1], %0)
)");
}

TEST(Lower, AReadBeginsASegment) {
  const char* text = R"(hir 1
target cpu host "avx2"
function f {
  input x tensor i64 [2]
  output k int
  output t float
  variant cpu {
    buffer x of input bytes 16
    buffer scratch bytes 8
    let before = mul(stride(x, 0), 2)
    read i64 (read x[0, 8])
    let u0 = range(result(0), 1, 100)
    buffer late bytes mul(u0, before)
    fill u8 (write late, 255)
    read f64 (read x[8, 8]) at "model.py:9"
    return (int add(u0, before), float fmul(fresult(0), 2.0))
  }
}
)";
  EXPECT_EQ(code_of(text), R"(function f, variant host avx2
  buffer x of input bytes %0=16
  buffer late of arena bytes %13
  segment 0
    %0 = const 16
    %1 = const 8
    %2 = stride(x, 0)
    %3 = const 2
    %4 = mul(%2, %3=2)
    %5 = const 0
    %6 = const 1
    %7 = const 100
    %8 = const 255
    %9 = fconst 2.0
    0: read i64 (read x[%5=0, %1=8])
  segment 1
    %10 = result(0)
    %11 = range(%10, %6=1, %7=100)
    %12 = mul(%2, %11)
    %13 = mul(%12, %3=2)
    1: fill u8 (write late[%5=0, %13], %8=255)
    2: read f64 (read x[%1=8, %1=8]) at "model.py:9"
  segment 2
    %14 = add(%4, %11)
    %15 = fresult(0)
    %16 = fmul(%15, %9=2.0)
  return (%14, %16)
)");
}

TEST(Lower, ARangeIsAGuardEvenIfNothingUsesIt) {
  EXPECT_NE(scalars_of(program("let a = range(n, 0, 7)")).find("= range("), std::string::npos);
  EXPECT_EQ(scalars_of(program("let a = range(m, 0, 70)")).find("= range("), std::string::npos);
}

TEST(Lower, UnusedOpsAreDropped) {
  EXPECT_EQ(scalars_of(program("let a = mul(n, n) let b = floordiv(a, n)")),
            scalars_of(program("")));
}

TEST(Lower, TextsOfGuardsAreShared) {
  const std::string code = code_of(
      program("check_le(n, 4) \"few\" check_le(n, 5) \"few\" check(le(n, 6))"));
  EXPECT_NE(code.find("check_le(%0, %1=4) \"few\""), std::string::npos) << code;
  EXPECT_NE(code.find("check_le(%0, %5=6)\n"), std::string::npos) << code;
}

TEST(Lower, StrideGuardsOfSizesUpToOneAreLeftOut) {
  const char* text =
      "hir 1 target cpu host \"a\" function f { input x tensor f32 [1, 0..1, 0..2]\n"
      "variant cpu { check_stride(x, 0, 5) check_stride(x, 1, 5) check_stride(x, 2, 5) return () } "
      "}";
  EXPECT_EQ(scalars_of(text), "%0 = const 5\ncheck_stride(x, 2, %0=5)\n");
}

struct BadSteps {
  const char* steps;
  const char* error;
};

TEST(Lower, RefusesProgramsThatAlwaysFail) {
  const BadSteps cases[] = {
      {"check(0)", "15:1: this check can never hold"},
      {"check_eq(m, 65)", "15:1: this check can never hold: the sides lie in 1..64 and 65..65"},
      {"let a = range(m, 65, 70)", "15:9: this range can never hold: the value lies in 1..64"},
      {"let a = mul(9223372036854775807, 2)", "15:9: the result of mul does not fit 64 bits"},
      {"let a = mod(3, sub(1, 1))", "15:9: mod divides by zero"},
      {"buffer b bytes -4", "15:1: buffer 'b' has fewer than 0 bytes"},
      {"buffer b bytes m fill u8 (write b[0, 65], 0)",
       "15:27: this view never lies in its buffer: it ends at byte 65 or later, the buffer has 64 "
       "at the most"},
      {"fill f32 (write cache[16, 4], 0.0)",
       "15:11: this view never lies in its buffer: it ends at byte 20 or later, "
       "the buffer has 16 at the most"},
      {"fill f32 (write cache[-4, 4], 0.0)",
       "15:11: the offset or the extent of this view is always below 0"},
      {"extern \"op\" (read tensor weight f32 [5] [1])",
       "15:14: this view never lies in its buffer: it ends at byte 20 or later, the buffer has 16 "
       "at the most"},
      {"extern \"op\" (read tensor weight f32 [1] [1] offset 9223372036854775807)",
       "15:14: the result of mul does not fit 64 bits"},
      {"copy (write cache[0, 8], read weight[0, 4])",
       "15:1: a copy between views of different extents: 8..8 and 4..4 "
       "bytes"},
      {"copy (write cache[0, 8], read cache[4, 8])", "15:1: the views of this copy overlap"},
      {"read i64 (read cache[0, 4])",
       "15:1: read i64 wants a view of 8 bytes: write offset and extent"},
  };
  for (const BadSteps& c : cases) EXPECT_EQ(error_of(program("", c.steps)), c.error) << c.steps;
}

TEST(Lower, AGridHasLimits) {
  const std::string head =
      "hir 1 target cpu host \"a\" image i cpu elf \"k.so\" kernel k i \"s\" ()\n"
      "function f { input n int variant cpu { launch k grid ";
  EXPECT_EQ(error_of(head + "(1, 65536, 1) () return () } }"),
            "2:58: this side of the grid never lies in 0..65535");
  EXPECT_EQ(error_of(head + "(2147483648, 1, 1) () return () } }"),
            "2:55: this side of the grid never lies in 0..2147483647");
  EXPECT_EQ(error_of(head + "(1, 1, -1) () return () } }"),
            "2:61: this side of the grid never lies in 0..65535");
}

TEST(Lower, ManyStatementsTakeLinearTime) {
  std::string body = "let a0 = n\n";
  for (int i = 1; i < 20000; ++i)
    body += "let a" + std::to_string(i) + " = and(a" + std::to_string(i - 1) + ", le(n, " +
            std::to_string(i) + "))\n";
  EXPECT_NE(compiled(program(body + "check(a19999)")).size(), 0u);
}

}  // namespace
}  // namespace husk::test
