#include <gtest/gtest.h>

#include <cstring>

#include <husk/husk.h>

#include "program.h"
#include "read/artifact.h"

namespace husk::test {
namespace {

using namespace husk::compiler;

const char* const kBlobs = R"(hir 1
target cpu host "a"
target gpu cuda "b"
constant c0 u8 [3] bytes "010203"
constant c1 u8 [3] bytes "010203"
constant none0 u8 [0] bytes ""
constant c2 u8 [4] bytes "01020304"
constant w f32 [2] file "w.safetensors" tensor "a"
image i0 cpu elf "k.so"
image i1 gpu cubin "k.so"
image i2 gpu ptx "k.ptx"
function f { variant cpu { return () } }
)";

class Write : public ::testing::Test {
 protected:
  Write() {
    folder.file("k.so", std::string("\x7f"
                                    "ELF") +
                            std::string(96, 'k'));
    folder.file("k.ptx", ".version 8.0");
    folder.file("w.safetensors",
                safetensors(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})",
                            "12345678"));
    folder.file("model.hir", kBlobs);
  }
  Folder folder;
};

TEST_F(Write, PlacesBlobsAccordingToTheFormat) {
  const auto bytes = compiled(kBlobs, folder.path());
  std::string error;
  const auto artifact = Artifact::view(bytes, error);
  ASSERT_TRUE(artifact) << error;
  EXPECT_EQ(artifact->check_blobs(), "");
  const fb::Program& p = artifact->program();
  const auto image = [&](int i) { return p.images()->Get(static_cast<uint32_t>(i))->blob(); };
  const auto constant = [&](int i) { return p.constants()->Get(static_cast<uint32_t>(i))->blob(); };
  EXPECT_EQ(image(0)->offset(), 0u);
  EXPECT_EQ(image(1)->offset(), 0u);  // equal bytes are stored once
  EXPECT_EQ(image(2)->offset(), 128u);
  EXPECT_EQ(image(2)->size(), 13u);  // includes the NUL
  EXPECT_EQ(constant(0)->offset(), 4096u);
  EXPECT_EQ(constant(1)->offset(), 4096u);
  EXPECT_EQ(constant(2)->size(), 0u);
  EXPECT_EQ(constant(3)->offset(), 8192u);
  EXPECT_EQ(constant(4)->offset(), 12288u);
  const uint64_t base = bytes.size() - 12288 - 8;
  EXPECT_EQ(base % 4096, 0u);
  EXPECT_EQ(memcmp(bytes.data() + base + 12288, "12345678", 8), 0);
  for (size_t i = base + 100; i < base + 128; ++i) EXPECT_EQ(bytes[i], 0);
}

TEST_F(Write, TwiceGivesTheSameBytes) {
  EXPECT_EQ(compiled(kBlobs, folder.path()), compiled(kBlobs, folder.path()));
  const std::string text = program("let a = add(n, m)", "fill f32 (write y, t)");
  EXPECT_EQ(compiled(text), compiled(text));
}

TEST_F(Write, ToAFileAsToMemory) {
  const auto made = compile_file(folder.path() / "model.hir", folder.path() / "model.husk");
  ASSERT_TRUE(std::holds_alternative<Summary>(made))
      << describe(std::get<Error>(made), "model.hir");
  const auto memory = compiled(kBlobs, folder.path());
  EXPECT_EQ(folder.read("model.husk"), std::string(memory.begin(), memory.end()));
  const Summary& s = std::get<Summary>(made);
  EXPECT_EQ(s.functions, 1u);
  EXPECT_EQ(s.image_bytes, 113u);
  EXPECT_EQ(s.constant_bytes, 15u);
  EXPECT_EQ(s.file_bytes, memory.size());
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "model.husk.part"));
}

TEST_F(Write, AFailureLeavesTheOldFile) {
  folder.file("model.husk", "old");
  folder.file("broken.hir", "hir 1 function");
  const auto made = compile_file(folder.path() / "broken.hir", folder.path() / "model.husk");
  ASSERT_TRUE(std::holds_alternative<Error>(made));
  EXPECT_EQ(std::get<Error>(made).line, 1u);
  EXPECT_EQ(folder.read("model.husk"), "old");
}

TEST_F(Write, NamesFilesThatCannotBeUsed) {
  const auto error = [](const std::filesystem::path& in, const std::filesystem::path& out) {
    const auto made = compile_file(in, out);
    return std::holds_alternative<Error>(made) ? std::get<Error>(made).text : "";
  };
  const std::string path = folder.path().string();
  EXPECT_EQ(error(path + "/nope.hir", path + "/a"),
            "cannot open " + path + "/nope.hir: No such file or directory");
  EXPECT_EQ(error(path, path + "/a"), path + " is not a regular file");
  EXPECT_EQ(error(path + "/model.hir", path + "/model.hir"),
            "the output would overwrite the input");
  EXPECT_EQ(error(path + "/model.hir", path + "/no/a"),
            "cannot write " + path + "/no/a.part: No such file or directory");
}

TEST_F(Write, ImagesMustHaveTheStatedFormat) {
  const auto error = [&](const char* name) {
    return error_of(std::string("hir 1 target cpu host \"a\"\nimage i cpu elf \"") + name +
                        "\" function f { variant cpu { return () } }",
                    folder.path());
  };
  EXPECT_EQ(error("k.so"), "");
  EXPECT_EQ(error("k.ptx"),
            "2:17: image 'i' is not in elf format: it does not begin with the ELF magic");
  folder.file("empty", "");
  EXPECT_EQ(error("empty"), "2:17: image 'i' is an empty file");
}

TEST_F(Write, TheRootIsWherePathsBegin) {
  std::filesystem::create_directory(folder.path() / "sub");
  folder.file("sub/model.hir", kBlobs);
  const auto without = compile_file(folder.path() / "sub/model.hir", folder.path() / "a.husk");
  EXPECT_TRUE(std::holds_alternative<Error>(without));
  const auto with = compile_file(folder.path() / "sub/model.hir", folder.path() / "a.husk",
                                 folder.path());
  EXPECT_TRUE(std::holds_alternative<Summary>(with));
  const auto beside = compile(folder.path() / "model.hir");
  EXPECT_TRUE(std::holds_alternative<std::vector<uint8_t>>(beside));
}

}  // namespace
}  // namespace husk::test
