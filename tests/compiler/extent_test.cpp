// The extent of a strided tensor.
#include <gtest/gtest.h>

#include <husk/husk.h>

#include "program.h"

namespace husk::test {
namespace {

// The scalar ops of a program with one step, which reads a tensor of x.
std::string with_tensor(const char* tensor) {
  return scalars_of(program("", std::string("extern \"op\" (read tensor x f32 ") + tensor + ")"));
}

TEST(StridedExtent, DenseIsTheSizeOfTheBuffer) {
  // %2 is the size of x and y. The extent of the dense tensor is the same expression.
  const std::string dense =
      "%0 = size(x, 0)\n%1 = const 32\n%2 = mul(%0, %1=32)\n%3 = const 8\n%4 = const 1\n"
      "%5 = const 0\n";
  EXPECT_EQ(with_tensor("[size(x, 0), 8] [8, 1]"), dense);
}

TEST(StridedExtent, StaticSizesFoldToAConstant) {
  const std::string code = code_of(
      program("", "extern \"op\" (read tensor x f32 [3, 4] [16, 2] offset 5)"));
  // The extent is 2*16 + 3*2 + 1 = 39 elements of 4 bytes.
  EXPECT_NE(code.find("read tensor x[%7=20, %8=156]"), std::string::npos) << code;
}

TEST(StridedExtent, AnEmptyTensorHasExtentZero) {
  const std::string code = code_of(
      program("", "extern \"op\" (read tensor x f32 [3, 0, m] [16, 2, 1])"));
  EXPECT_NE(code.find("read tensor x[%4=0, %4=0]"), std::string::npos) << code;
}

TEST(StridedExtent, ASizeThatMayBeZeroNeedsASelect) {
  // Rows of 8 with a stride of 16: the last row is not padded. The formula gives -32 bytes for no
  // rows, so a select replaces it by 0.
  EXPECT_EQ(with_tensor("[size(x, 0), 8] [16, 1]"),
            "%0 = size(x, 0)\n%1 = const 32\n%2 = mul(%0, %1=32)\n%3 = const 8\n%4 = const 16\n%5 "
            "= const 1\n"
            "%6 = const 4\n%7 = const 0\n%8 = mul(%0, %4=16)\n%9 = const -8\n%10 = add(%8, %9=-8)\n"
            "%11 = le(%5=1, %0)\n%12 = select(%11, %10, %7=0)\n%13 = mul(%12, %6=4)\n");
}

TEST(StridedExtent, ASizeThatIsAtLeastOneNeedsNoSelect) {
  EXPECT_EQ(with_tensor("[m, 8] [16, 1]").find("select"), std::string::npos);
}

TEST(StridedExtent, SymbolicStridesOfADenseTensorCancel) {
  const std::string code = with_tensor("[size(x, 0), m, 2] [mul(m, 2), 2, 1]");
  EXPECT_EQ(code.find("select"), std::string::npos) << code;
  EXPECT_EQ(code.find("add"), std::string::npos) << code;
}

TEST(StridedExtent, ManyNestedProductsDoNotTakeForEver) {
  std::string body = "let p0 = m\n", sizes, strides;
  for (int i = 1; i < 60; ++i)
    body += "let p" + std::to_string(i) + " = mul(p" + std::to_string(i - 1) + ", p" +
            std::to_string(i - 1) + ")\n";
  EXPECT_NE(scalars_of(program(body, "extern \"op\" (read tensor x f32 [p59] [p58])")), "");
}

TEST(StridedExtent, NegativeSizesAndStridesAreErrors) {
  EXPECT_EQ(error_of(program("", "extern \"op\" (read tensor x f32 [-1] [1])")),
            "15:33: this size is always below 0");
  EXPECT_EQ(error_of(program("", "extern \"op\" (read tensor x f32 [1] [-1])")),
            "15:37: this stride is always below 0");
}

}  // namespace
}  // namespace husk::test
