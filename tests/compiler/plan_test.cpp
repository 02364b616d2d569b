// The texts of husk-dump about memory: formulas, plans, drawings.
#include <gtest/gtest.h>

#include "program.h"
#include "read/artifact.h"
#include "read/report.h"

namespace husk::test {
namespace {

using namespace husk::compiler;

// A function with inputs x f32 [1..64, 8], n int 0..9, flag bool, the statements `body` and no
// outputs.
std::string function(std::string_view body) {
  return "hir 1\ntarget cpu host \"a\"\nfunction f { input x tensor f32 [1..64, 8] input n int "
         "0..9 input m int input flag bool\n"
         "variant cpu {\n" +
         std::string(body) + "\nreturn () } }";
}

std::string plan(std::string_view body, const InputSizes& sizes = {}) {
  const auto bytes = compiled(function(body));
  std::string error;
  const auto artifact = Artifact::view(bytes, error);
  if (!artifact) return error;
  EXPECT_EQ(check_sizes(artifact->program(), sizes), "");
  EXPECT_EQ(report_plan(*artifact, sizes).substr(0, report_plan_summary(*artifact, sizes).size()),
            report_plan_summary(*artifact, sizes));
  return report_plan(*artifact, sizes);
}

TEST(Plan, TableAndDrawing) {
  EXPECT_EQ(
      plan("let s = size(x, 0)\n"
           "buffer first bytes mul(s, 4) buffer b bytes mul(s, 8) buffer c bytes 256\n"
           "fill u8 (write first, 1) copy (write b[0, mul(s, 4)], read first)\n"
           "fill u8 (write c, 1) fill u8 (write b, 1)"),
      R"(function f, variant host a: arena 768 bytes at the bounds, 1.000 of the lower bound 768
          offset        bytes  steps       buffer  bytes are
  a            0          512  1..3        b       x.0 * 8
  b          512          256  0..1        first   x.0 * 4
  c          512          256  2..2        c       256
             736 |bbc.|
             704 |bbc.|
             672 |bbc.|
             640 |bbc.|
             608 |bbc.|
             576 |bbc.|
             544 |bbc.|
             512 |bbc.|
             480 |.aaa|
             448 |.aaa|
             416 |.aaa|
             384 |.aaa|
             352 |.aaa|
             320 |.aaa|
             288 |.aaa|
             256 |.aaa|
             224 |.aaa|
             192 |.aaa|
             160 |.aaa|
             128 |.aaa|
              96 |.aaa|
              64 |.aaa|
              32 |.aaa|
               0 |.aaa|
                  0  3
)");
}

TEST(Plan, AtGivenSizes) {
  const char* body = "buffer b bytes mul(size(x, 0), 8) fill u8 (write b, 1)";
  EXPECT_NE(plan(body, {{"x.0", 2}})
                .find("arena 16 bytes at the given sizes, 1.000 of the lower bound 16\n"),
            std::string::npos);
  EXPECT_NE(plan(body, {{"n", 2}}).find("arena 512 bytes at the given sizes"), std::string::npos);
}

TEST(Plan, UnboundedBuffers) {
  EXPECT_EQ(
      plan("buffer b bytes max(m, 0) fill u8 (write b, 1)"),
      "function f, variant host a: no bound for the size of buffer b: planned at each resize\n"
      "          offset        bytes  steps       buffer  bytes are\n"
      "  -            -    unbounded  0..0        b       max(m, 0)\n");
  EXPECT_EQ(plan("let a = 1"), "function f, variant host a: no arena\n");
}

TEST(Plan, BuffersSizedByData) {
  const std::string text = plan(
      "buffer c bytes 8 fill u8 (write c, 1) read i64 (read c) let r = result(0)\n"
      "buffer b bytes max(r, 0) fill u8 (write b, 1) buffer d bytes range(r, 0, 16) fill u8 (write "
      "d, 1)");
  EXPECT_NE(
      text.find("; dynamic: 1 buffer whose size only the data decides is allocated during a run\n"),
      std::string::npos)
      << text;
  EXPECT_NE(
      text.find(
          "  - during a run    unbounded  2..2        b       max(result(0) of segment 0, 0)\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("           16  3..3        d       result(0) of segment 0\n"),
            std::string::npos)
      << text;
}

TEST(Plan, ABufferLivesThroughALoop) {
  const std::string text = plan(
      "buffer b bytes 8 buffer c bytes 8 fill u8 (write b, 0)\n"
      "loop { read u8 (read b[0, 1]) while lt(result(0), n) fill u8 (write c, 1) fill u8 (write b, "
      "2) }");
  EXPECT_NE(text.find("0..3        b "), std::string::npos) << text;
  EXPECT_NE(text.find("2..2        c "), std::string::npos) << text;
}

TEST(Plan, Formulas) {
  const char* cases[][2] = {{"add(n, 1)", "n + 1"},
                            {"sub(n, 1)", "n - 1"},
                            {"sub(4, n)", "4 - n"},
                            {"sub(n, sub(3, m))", "n - (3 - m)"},
                            {"mul(add(n, 1), 4)", "(n + 1) * 4"},
                            {"floordiv(mul(n, m), 3)", "n * m // 3"},
                            {"mul(mod(n, 4), m)", "(n % 4) * m"},
                            {"cdiv(add(n, stride(x, 0)), 2)", "cdiv(n + x'0, 2)"},
                            {"select(flag, n, 3)", "select(flag, n, 3)"},
                            {"trunc(fmul(float(n), 0.5))", "trunc(fmul(float(n), 0.5))"},
                            {"mul(mul(n, 4), mul(size(x, 0), 2))", "n * x.0 * 8"}};
  for (const auto& [size, text] : cases) {
    const std::string line = plan("buffer b bytes " + std::string(size) + " fill u8 (write b, 1)");
    EXPECT_NE(line.find(" b       " + std::string(text) + "\n"), std::string::npos) << size << "\n"
                                                                                    << line;
  }
}

TEST(Plan, DeepFormulasEndInRegisters) {
  std::string size = "m";
  for (int i = 0; i < 9; ++i) size = "add(mod(" + size + ", 7), n)";
  EXPECT_NE(plan("buffer b bytes " + size + " fill u8 (write b, 1)").find("%"), std::string::npos);
}

TEST(Plan, RefusesInvalidSizes) {
  const auto bytes = compiled(function(""));
  std::string error;
  const auto artifact = Artifact::view(bytes, error);
  ASSERT_TRUE(artifact) << error;
  EXPECT_EQ(
      check_sizes(artifact->program(), {{"y.0", 1}}),
      "there is no 'y.0': write x.0 for dim 0 of tensor input x, n for an int that has a range");
  EXPECT_NE(check_sizes(artifact->program(), {{"m", 1}}), "");
  EXPECT_NE(check_sizes(artifact->program(), {{"x.2", 1}}), "");
  EXPECT_EQ(check_sizes(artifact->program(), {{"x.0", 65}}),
            "'x.0' cannot be 65: its range does not include that");
}

TEST(Plan, APictureOfRectangles) {
  const auto bytes = compiled(
      function("buffer b bytes mul(size(x, 0), 8) buffer c bytes 8\n"
               "fill u8 (write b, 1) fill u8 (write c, 1)"));
  std::string error;
  const auto artifact = Artifact::view(bytes, error);
  ASSERT_TRUE(artifact) << error;
  const std::string svg = report_svg(*artifact);
  EXPECT_EQ(svg.substr(0, 37), "<svg xmlns=\"http://www.w3.org/2000/sv");
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
  EXPECT_NE(svg.find("<title>b: 512 bytes at 0, steps 0 to 0</title>"), std::string::npos) << svg;
  EXPECT_NE(svg.find("<title>c: 8 bytes at 0, steps 1 to 1</title>"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">peak 512<"), std::string::npos) << svg;
  // Only the title names the lower bound, since the plan is as small.
  EXPECT_EQ(svg.find("lower bound"), svg.rfind("lower bound"));
  EXPECT_EQ(svg, report_svg(*Artifact::view(bytes, error)));
  EXPECT_NE(report_svg(*artifact, {{"x.0", 2}}).find(">peak 16<"), std::string::npos);
}

}  // namespace
}  // namespace husk::test
