#include "write/safetensors.h"

#include <gtest/gtest.h>

#include "program.h"

namespace husk::test {
namespace {

using namespace husk::compiler;

std::string error_in(const std::string& file) {
  std::string error;
  const auto got = read_safetensors({reinterpret_cast<const uint8_t*>(file.data()), file.size()},
                                    error);
  EXPECT_TRUE(error.empty() || got.empty());
  return error;
}

TEST(Safetensors, ReadsTensorsInPlace) {
  const std::string file = safetensors(R"({"__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
    "b": {"dtype": "BOOL", "shape": [], "data_offsets": [8, 9]},
    "c": {"dtype": "I4", "shape": [2], "data_offsets": [8, 9]}})",
                                       std::string(9, 'x'));
  std::string error;
  const auto got = read_safetensors({reinterpret_cast<const uint8_t*>(file.data()), file.size()},
                                    error);
  EXPECT_EQ(error, "");
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got.at("a").dtype, HUSK_F32);
  EXPECT_EQ(got.at("a").shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(got.at("a").bytes.data(),
            reinterpret_cast<const uint8_t*>(file.data()) + file.size() - 9);
  EXPECT_EQ(got.at("b").bytes.size(), 1u);
  EXPECT_EQ(got.at("c").dtype, HUSK_DTYPE_NONE);  // an unknown dtype is refused only if a constant
                                                  // uses it
}

TEST(Safetensors, RefusesDamage) {
  const std::string cut = "is not a safetensors file, or is truncated";
  EXPECT_EQ(error_in(""), cut);
  EXPECT_EQ(error_in("1234567"), cut);
  EXPECT_EQ(error_in(std::string(8, '\xff')), cut);
  EXPECT_EQ(error_in(safetensors("{\"a\":", "")), "has a header that is not a JSON object");
  EXPECT_EQ(error_in(safetensors("[]", "")), "has a header that is not a JSON object");
  EXPECT_EQ(error_in(safetensors(R"({"a": 1})", "")),
            "tensor 'a' has no dtype, shape or data_offsets");
  EXPECT_EQ(error_in(safetensors(
                R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 0]}})", "")),
            "tensor 'a' has an invalid shape or data_offsets");
  EXPECT_EQ(
      error_in(safetensors(R"({"a": {"dtype": "F32", "shape": [], "data_offsets": [0]}})", "")),
      "tensor 'a' has an invalid shape or data_offsets");
  EXPECT_EQ(
      error_in(safetensors(
          R"({"a": {"dtype": "F32", "shape": [18446744073709551615], "data_offsets": [0, 0]}})",
          "")),
      "tensor 'a' has an invalid shape or data_offsets");
  EXPECT_EQ(error_in(safetensors(R"({"a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}})",
                                 "abc")),
            "tensor 'a' ends at byte 4 of 3: the file is truncated or damaged");
  EXPECT_EQ(error_in(safetensors(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})",
                                 "abcd")),
            "tensor 'a' does not have the bytes of its dtype and shape");
  EXPECT_EQ(
      error_in(safetensors(
          R"({"a": {"dtype": "F64", "shape": [4294967296, 4294967296], "data_offsets": [0, 4]}})",
          "abcd")),
      "tensor 'a' is larger than 2^63 bytes");
}

std::string constant(const char* what) {
  return std::string("hir 1 target cpu host \"a\"\nconstant c ") + what +
         "\nfunction f { variant cpu { return () } }";
}

TEST(Safetensors, ConstantsMustMatchTheText) {
  const Folder folder;
  folder.file(
      "w.safetensors",
      safetensors(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", "12345678"));
  const auto error = [&](const char* what) { return error_of(constant(what), folder.path()); };
  EXPECT_EQ(error("f32 [2] file \"w.safetensors\" tensor \"a\""), "");
  EXPECT_EQ(error("f32 [2] file \"w.safetensors\" tensor \"b\""),
            "2:25: w.safetensors has no tensor 'b'");
  EXPECT_EQ(error("f16 [2] file \"w.safetensors\" tensor \"a\""),
            "2:25: constant 'c' is f16, tensor 'a' of w.safetensors is F32");
  EXPECT_EQ(error("f32 [1, 2] file \"w.safetensors\" tensor \"a\""),
            "2:28: constant 'c' is [1, 2], tensor 'a' of w.safetensors is [2]");
  EXPECT_EQ(error("f32 [2] file \"v.safetensors\" tensor \"a\""),
            "2:25: cannot open " + (folder.path() / "v.safetensors").string() +
                ": No such file or directory");
  folder.file("v.safetensors", "nothing");
  EXPECT_EQ(error("f32 [2] file \"v.safetensors\" tensor \"a\""),
            "2:25: v.safetensors is not a safetensors file, or is truncated");
}

}  // namespace
}  // namespace husk::test
