#include "passes/encode_fill.h"

#include <gtest/gtest.h>

#include "ir/compile_error.h"
#include "ir/parser.h"

namespace husk::test {
namespace {

using namespace husk::compiler;

std::string fill(const std::string& dtype, const std::string& literal) {
  const Program program = parse("hir 1 state s " + dtype + " [] fill " + literal);
  try {
    return fmt::format("{:x}", encode_fill(program.states[0]));
  } catch (const CompileError& failure) {
    return failure.text;
  }
}

TEST(EncodeFill, Ints) {
  EXPECT_EQ(fill("bool", "1"), "1");
  EXPECT_EQ(fill("u8", "255"), "ff");
  EXPECT_EQ(fill("i8", "-1"), "ff");
  EXPECT_EQ(fill("i64", "-9223372036854775808"), "8000000000000000");
  EXPECT_EQ(fill("bool", "2"), "state 's' is bool: this is not a number of that type");
  EXPECT_EQ(fill("u8", "256"), "state 's' is u8: this is not a number of that type");
  EXPECT_EQ(fill("u64", "-1"), "state 's' is u64: this is not a number of that type");
  EXPECT_EQ(fill("i16", "32768"), "state 's' is i16: this is not a number of that type");
  EXPECT_EQ(fill("i32", "1.0"), "state 's' is i32: this is not a number of that type");
}

TEST(EncodeFill, Floats) {
  EXPECT_EQ(fill("f32", "1"), "3f800000");
  EXPECT_EQ(fill("f32", "-0.0"), "80000000");
  EXPECT_EQ(fill("f32", "0.1"), "3dcccccd");
  EXPECT_EQ(fill("f32", "1e-45"), "1");
  EXPECT_EQ(fill("f32", "inf"), "7f800000");
  EXPECT_EQ(fill("f32", "nan"), "7fc00000");
  EXPECT_EQ(fill("f32", "1e39"), "1e+39 is too large for f32");
  EXPECT_EQ(fill("f64", "0.1"), "3fb999999999999a");
  EXPECT_EQ(fill("f64", "5e-324"), "1");
  EXPECT_EQ(fill("c64", "2.0"), "40000000");
  EXPECT_EQ(fill("c128", "0"), "0");
  EXPECT_EQ(fill("c128", "1.0"), "a state of c128 is filled with 0 or made from a constant");
}

TEST(EncodeFill, HalfFloatsRoundToEven) {
  EXPECT_EQ(fill("f16", "65504.0"), "7bff");
  EXPECT_EQ(fill("f16", "65519.0"), "7bff");
  EXPECT_EQ(fill("f16", "65520.0"), "65520 is too large for f16");
  EXPECT_EQ(fill("f16", "1.00048828125"), "3c00");  // half way between two numbers: the even one
  EXPECT_EQ(fill("f16", "1.00146484375"), "3c02");
  EXPECT_EQ(fill("f16", "5.9604644775390625e-08"), "1");
  EXPECT_EQ(fill("f16", "-2.98023223876953125e-08"), "8000");
  EXPECT_EQ(fill("bf16", "3.140625"), "4049");
  EXPECT_EQ(fill("bf16", "nan"), "7fc0");
}

// The largest values and the special bit patterns of the 8-bit formats.
TEST(EncodeFill, EightBitFloats) {
  EXPECT_EQ(fill("f8e4m3fn", "448.0"), "7e");
  EXPECT_EQ(fill("f8e4m3fn", "480.0"), "480 is too large for f8e4m3fn");
  EXPECT_EQ(fill("f8e4m3fn", "inf"), "inf is too large for f8e4m3fn");
  EXPECT_EQ(fill("f8e4m3fn", "nan"), "7f");
  EXPECT_EQ(fill("f8e4m3fn", "0.001953125"), "1");
  EXPECT_EQ(fill("f8e5m2", "57344.0"), "7b");
  EXPECT_EQ(fill("f8e5m2", "inf"), "7c");
  EXPECT_EQ(fill("f8e5m2", "1.0"), "3c");
  EXPECT_EQ(fill("f8e4m3fnuz", "240.0"), "7f");
  EXPECT_EQ(fill("f8e4m3fnuz", "1.0"), "40");
  EXPECT_EQ(fill("f8e4m3fnuz", "-0.0"), "0");
  EXPECT_EQ(fill("f8e4m3fnuz", "nan"), "80");
  EXPECT_EQ(fill("f8e5m2fnuz", "57344.0"), "7f");
  EXPECT_EQ(fill("f8e5m2fnuz", "-1.0"), "c0");
}

}  // namespace
}  // namespace husk::test
