#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

#include "ir/parser.h"
#include "ir/printer.h"
#include "program.h"

namespace husk::test {
namespace {

using namespace husk::compiler;

// The example of HIR.md: the text between its first two fences.
std::string example() {
  std::ifstream file(HIR_PAGE);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const size_t begin = page.find("```\n") + 4;
  return page.substr(begin, page.find("```", begin) - begin);
}

void expect_round_trip(const std::string& text) {
  const Program once = parse(text);
  const std::string printed = print(once);
  EXPECT_TRUE(parse(printed) == once) << printed;
  EXPECT_EQ(print(parse(printed)), printed);
}

TEST(Print, GivesBackTheExampleOfThePage) { expect_round_trip(example()); }

TEST(Print, GivesBackEveryForm) {
  expect_round_trip(R"(hir 1
function g { input a none input b bool input c float input d int input e int -3..inf input f int 7
  input g tensor bf16 [] input h tensor u8 [3, 0..inf, 2..9]
  output o none output p bool output q float output r tensor c64 rank 0
  variant t { return (none, int true, float nan, tensor r c64 [] [] offset 3) }
  variant u { check(false) check_stride(g, 0, -1) read f16 (read h[0, 2]) at "\x01\x7f\t\n\\"
    let z = fadd(fresult(0), -inf)
    buffer b bytes 8 align 8 on host buffer c bytes z on host
    launch k grid (1, 2, 3) (both h, atomic h[1, 2], null, asserts, 1.0e-300, -0.0, 5)
    extern "a::b" (none, "text", dtype f8e5m2, [], [1, d], both tensor h u8 [1] [1] offset 2, null)
    return () } }
kernel k i "s" () cluster 2 cooperative triggers_early block 1 2 3
kernel k2 i "s" (ptr, bool, f64) pdl_in_graph
image i t ptx "a b.ptx"
state s c128 [2, 3] fill 0
state s2 f32 [] fill inf
state s3 f32 [] constant c
constant c f32 [] bytes "00000000"
target t cuda "sm_90a"
tree "{}"
user "k" "v"
assert "no\n"
assert "index < 3"
user "k" "w"
world 3 rank 2 set "ab"
producer "p")");
}

TEST(Print, WritesOneStatementALine) {
  const std::string text = print(
      parse("hir 1 function f{input x tensor f32[1..1,2..inf]variant v{let a=add(1,2)return()}}"));
  EXPECT_EQ(text,
            "hir 1\n\nfunction f {\n  input x tensor f32 [1, 2..inf]\n  variant v {\n    let a = "
            "add(1, 2)\n"
            "    return ()\n  }\n}\n");
}

TEST(Print, FloatsStayTheSame) {
  using limits = std::numeric_limits<double>;
  for (double value : {0.0, -0.0, 1.0, 0.1, 1e22, 1e-7, 5e-324, limits::max(), limits::infinity(),
                       -limits::infinity()}) {
    const Program p = parse("hir 1 state s f64 [] fill " + print_float(value));
    EXPECT_EQ(p.states[0].fill.kind, ExprKind::floating) << value;
    EXPECT_EQ(std::bit_cast<double>(p.states[0].fill.bits), value);
    EXPECT_EQ(std::signbit(std::bit_cast<double>(p.states[0].fill.bits)), std::signbit(value));
  }
  EXPECT_EQ(print_float(limits::quiet_NaN()), "nan");
}

}  // namespace
}  // namespace husk::test
