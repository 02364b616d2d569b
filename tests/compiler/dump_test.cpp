#include <gtest/gtest.h>

#include "program.h"
#include "read/artifact.h"
#include "read/disassembler.h"
#include "read/report.h"

namespace husk::test {
namespace {

using namespace husk::compiler;

std::string everything(const Artifact& a) {
  return report_metadata(a) + report_code(a) + report_sizes(a) + report_json(a);
}

const char* const kText = R"(hir 1
producer "p"
user "license" "MIT"
tree "{}"
target cpu host "avx2"
constant weight f32 [4] bytes "00000000000000000000000000000000"
state cache f32 [4] constant weight
state count u8 [] fill 7
function f {
  input x tensor f32 [0..100, 8, 2..inf]
  input n int 0..7
  output y float
  variant cpu {
    return (float 0.5)
  }
}
)";

// Host memory beside the device is planned and shown apart from the arena of the device.
TEST(Dump, ShowsStepsOnTheHost) {
  const auto bytes = compiled(R"(hir 1
target gpu cuda "sm_90a"
function f {
  input x tensor f32 [1..1000]
  output y tensor f32 rank 1
  variant gpu {
    let n = mul(size(x, 0), 4)
    buffer x of input bytes n
    buffer y of output bytes n
    buffer a bytes n align 64
    buffer b bytes n align 64 on host
    buffer c bytes n align 64 on host
    buffer d bytes n align 64
    copy (write a, read x)
    copy (write b, read a)
    extern "aten::exp" (read tensor b f32 [size(x, 0)] [1], write tensor c f32 [size(x, 0)] [1])
    copy (write d, read c)
    copy (write y, read d)
    return (tensor y f32 [size(x, 0)] [1])
  }
}
)");
  std::string error;
  const auto artifact = Artifact::view(bytes, error);
  ASSERT_TRUE(artifact) << error;
  const std::string code = report_code(*artifact);
  EXPECT_NE(code.find("buffer b of arena bytes %2 align 64 on host\n"), std::string::npos) << code;
  EXPECT_NE(code.find("2: extern \"aten::exp\" on host (read tensor b["), std::string::npos)
      << code;
  EXPECT_NE(code.find("buffer d of arena bytes %2 align 64\n"), std::string::npos) << code;
  EXPECT_EQ(
      report_plan(*artifact, {}),
      R"(function f, variant cuda sm_90a: arena 4000 bytes at the bounds, 0.992 of the lower )"
      R"(bound 4032; 8032 bytes on the host
          offset        bytes  steps       buffer  bytes are
  a            0         4000  0..1        a       x.0 * 4
  b            0         4000  3..4        d       x.0 * 4
  -            0         4000  1..2        b       x.0 * 4, on the host
  -         4032         4000  2..3        c       x.0 * 4, on the host
)" + report_plan(*artifact, {}).substr(report_plan(*artifact, {}).find("            3833")));
  const std::string json = report_json(*artifact);
  EXPECT_NE(json.find("\"arena_bytes\": 4000"), std::string::npos) << json;
  EXPECT_NE(json.find("\"host_arena_bytes\": 8032"), std::string::npos) << json;
  EXPECT_NE(json.find("\"on_host\": true"), std::string::npos) << json;
}

// A vocabulary has megabytes. The report as JSON has all of it.
TEST(Dump, ShortensLongTexts) {
  const std::string text(60000, 'x'), program = "hir 1\nuser \"long\" \"" + text + "\"\n";
  const auto bytes = compiled(program + std::string(kText).substr(6));
  std::string error;
  const auto artifact = Artifact::view(bytes, error);
  ASSERT_TRUE(artifact) << error;
  const std::string found = report_metadata(*artifact);
  EXPECT_NE(found.find("user \"long\" \"" + text.substr(0, 200) + "\" and more, 60000 bytes\n"),
            std::string::npos);
  EXPECT_NE(found.find("user \"license\" \"MIT\""), std::string::npos);
  EXPECT_NE(report_json(*artifact).find(text), std::string::npos);
}

TEST(Dump, APlaceAmongRanks) {
  const std::string set(64, 'c');
  const auto bytes = compiled(
      "hir 1 world 4 rank 3 set \"" + set +
      "\" target cpu host \"x86-64\" function f { variant cpu { return () } }");
  std::string error;
  const auto artifact = Artifact::view(bytes, error);
  ASSERT_TRUE(artifact) << error;
  EXPECT_NE(report_metadata(*artifact).find("\nworld 4 rank 3 set " + set + "\n"),
            std::string::npos);
  const std::string json = report_json(*artifact);
  for (const char* part : {"\"rank\": 3", "\"size\": 4"})
    EXPECT_NE(json.find(part), std::string::npos) << json;
}

TEST(Dump, Metadata) {
  const auto bytes = compiled(kText);
  std::string error;
  const auto artifact = Artifact::view(bytes, error);
  ASSERT_TRUE(artifact) << error;
  std::string text = report_metadata(*artifact);
  EXPECT_EQ(text.substr(0, 9), "husk 0.7,");
  auto older = bytes;
  older[10] = 2;  // the minor version
  const auto of_older = Artifact::view(older, error);
  ASSERT_TRUE(of_older) << error;
  EXPECT_EQ(report_metadata(*of_older).substr(0, 9), "husk 0.2,");
  EXPECT_NE(report_json(*of_older).find("\"version\": \"0.2\""), std::string::npos);
  EXPECT_EQ(text.substr(text.find('\n') + 1),
            R"(producer "p"
user "license" "MIT"
tree "{}"
target host avx2
constant weight f32 [4], 16 bytes at 0, hash )" +
                text.substr(text.find("hash ", text.find("weight")) + 5, 16) + R"(
state cache f32 [4] constant weight
state count u8 [] fill 0x7
function f
  input x tensor f32 [0..100, 8, 2..inf]
  input n int 0..7
  output y float
  variant host avx2: 1 segments, 1 registers, 0 steps, 0 buffers, 0 views, 0 tensors
)");
}

TEST(Dump, Code) {
  EXPECT_EQ(code_of(kText),
            "function f, variant host avx2\n  segment 0\n    %0 = fconst 0.5\n"
            "  return (%0=0.5)\n");
}

TEST(Dump, SizesAddUp) {
  const auto bytes = compiled(kText);
  std::string error;
  const auto artifact = Artifact::view(bytes, error);
  ASSERT_TRUE(artifact) << error;
  EXPECT_EQ(report_sizes(*artifact),
            "header, metadata                    4096\n"
            "  code                                56\n"
            "  texts                                0\n"
            "images                                 0\n"
            "constants                             16\n"
            "between blobs                          0\n"
            "file                                4112\n");
}

TEST(Dump, JsonSaysTheSame) {
  const auto bytes = compiled(kText);
  std::string error;
  const auto artifact = Artifact::view(bytes, error);
  ASSERT_TRUE(artifact) << error;
  const std::string json = report_json(*artifact);
  EXPECT_NE(json.find("\"content_hash\": \"" + artifact->content_hash()), std::string::npos);
  EXPECT_NE(json.find("\"%0 = fconst 0.5\""), std::string::npos);
  EXPECT_NE(json.find("\"fill\": 7"), std::string::npos);
}

// A long text that many rows name is printed whole where it is defined, and shortened elsewhere.
TEST(Dump, LongTextsDoNotMultiply) {
  const std::string x = "x" + std::string(3000, 'y'), buffer = "b" + std::string(3000, 'c'),
                    origin(3000, 'o');
  std::string text = "hir 1\nproducer \"p\"\ntarget cpu host \"avx2\"\nfunction f {\n  input " + x +
                     " int 1..9\n  variant cpu {\n    let n = mul(" + x + ", " + x +
                     ")\n    let m = add(mul(n, n), mul(n, n))\n    buffer " + buffer +
                     " bytes m\n";
  for (int i = 0; i < 60; ++i)
    text += "    fill f32 (write " + buffer + ", 0.5) at \"" + origin + "\"\n";
  std::string error;
  const auto bytes = compiled(text + "    return ()\n  }\n}\n");
  const auto a = Artifact::view(bytes, error);
  ASSERT_NE(a, nullptr) << error;
  EXPECT_NE(report_metadata(*a).find("input " + x + " int 1..9"), std::string::npos);
  const std::string code = report_code(*a);
  EXPECT_NE(code.find("buffer b" + std::string(252, 'c') + "... of arena"), std::string::npos)
      << code.substr(0, 4000);
  EXPECT_NE(code.find(" at \"" + std::string(253, 'o') + "...\""), std::string::npos);
  for (const std::string& report : {code, report_plan(*a), report_svg(*a)})
    EXPECT_LT(report.size(), 60 * 1000u);
  EXPECT_LT(report_json(*a).size(), 60 * 1000 + 4 * x.size());
}

// A letter of several bytes is not cut.
TEST(Dump, ShortensBetweenLetters) {
  const std::string letter = "\xe2\x82\xac";  // the euro sign
  std::string text;
  for (int i = 0; i < 10; ++i) text += letter;
  EXPECT_EQ(shortened(text.c_str(), 30), text);
  EXPECT_EQ(shortened(text.c_str(), 29), text.substr(0, 24) + "...");
  EXPECT_EQ(shortened(text.c_str(), 12), text.substr(0, 9) + "...");
  EXPECT_EQ(shortened("abcdef", 6), "abcdef");
  EXPECT_EQ(shortened("abcdefg", 6), "abc...");
}

TEST(Dump, TwiceGivesTheSameText) {
  const auto bytes = compiled(kText), again = bytes;
  std::string error;
  EXPECT_EQ(everything(*Artifact::view(bytes, error)), everything(*Artifact::view(again, error)));
}

TEST(Dump, RefusesWithTheVerifiersError) {
  const auto bytes = compiled(kText);
  auto error_with = [&](size_t at, size_t size) {
    std::vector<uint8_t> changed(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    if (at < size) changed[at] ^= 1;
    std::string error;
    EXPECT_FALSE(Artifact::view(changed, error));
    return error;
  };
  EXPECT_EQ(error_with(0, bytes.size()),
            "not a Husk artifact: no header of 64 bytes with its magic");
  EXPECT_EQ(error_with(100, bytes.size()),
            "the metadata does not match its hash: the file was changed or damaged");
  EXPECT_NE(error_with(bytes.size(), bytes.size() - 1).find("truncated"), std::string::npos);
  EXPECT_NE(error_with(24, bytes.size()).find("features"), std::string::npos);
  EXPECT_NE(error_with(bytes.size(), 10).find("not a Husk artifact"), std::string::npos);
}

TEST(Dump, FindsADamagedBlobOnRequest) {
  auto bytes = compiled(kText);
  bytes.back() ^= 1;
  std::string error;
  const auto artifact = Artifact::view(bytes, error);
  ASSERT_TRUE(artifact) << error;
  EXPECT_EQ(artifact->check_blobs(),
            "constant 'weight' does not match its hash: the file was changed or damaged");
}

TEST(Dump, NamesAMissingFile) {
  std::string error;
  EXPECT_FALSE(Artifact::open("/nowhere/a.husk", error));
  EXPECT_EQ(error, "cannot open '/nowhere/a.husk': No such file or directory");
}

}  // namespace
}  // namespace husk::test
