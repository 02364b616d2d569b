// Versions of the file format: which are read, by which rules, and how others are refused.
// golden/format_0_N.husk is format_0_N.hir, compiled by the last huskc that wrote 0.N.
#include <fstream>
#include <iterator>

#include "edited_artifact.h"

namespace husk::test {
namespace {

std::vector<uint8_t> golden(int minor) {
  std::ifstream file(
      HUSK_SOURCE "/tests/runtime/golden/format_0_" + std::to_string(minor) + ".husk",
      std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<uint8_t> with_version(std::vector<uint8_t> file, uint8_t major, uint8_t minor) {
  file[8] = major;
  file[10] = minor;
  return file;
}

class EarlierMinor : public testing::TestWithParam<int> {};

TEST_P(EarlierMinor, Runs) {
  const std::vector<uint8_t> file = golden(GetParam());
  ASSERT_EQ(file.size(), 4160u);
  ASSERT_EQ(file[10], GetParam()) << "the minor version";
  Machine m(file);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  Tensor in(HUSK_F32, {2, 4}, x), y(HUSK_F32, {2, 4});
  ASSERT_EQ(m.run({in.value(), integer(2)}, {y.value(), integer(0)}), HUSK_OK) << m.error.text;
  const float expected[8] = {1, 4, 9, 16, 5, 12, 21, 32};
  EXPECT_EQ(std::memcmp(y.as<float>(), expected, sizeof(expected)), 0);
  EXPECT_EQ(m.results[1].as.i, 9);
}

INSTANTIATE_TEST_SUITE_P(Version, EarlierMinor, testing::Values(2, 3, 4, 5, 6));

TEST(Version, OtherVersionsAreRefusedWithARemedy) {
  const std::vector<uint8_t> file = golden(2);
  const auto refusal = [&](uint8_t major, uint8_t minor) {
    return verify_error(with_version(file, major, minor), HUSK_UNSUPPORTED);
  };
  EXPECT_EQ(refusal(0, 8),
            "the artifact has format 0.8, this library reads 0.2 to 0.7: update libhusk");
  EXPECT_EQ(refusal(0, 1),
            "the artifact has format 0.1, this library reads 0.2 to 0.7: export the model again");
  EXPECT_EQ(refusal(1, 0),
            "the artifact has format 1.0, this library reads 0.2 to 0.7: update libhusk");
  EXPECT_EQ(refusal(1, 3),
            "the artifact has format 1.3, this library reads 0.2 to 0.7: update libhusk");
}

// An op whose contract says more than the access bits of the file.
TEST(Version, AnOlderFileKeepsTheRulesOfToday) {
  EditedArtifact edited(R"(
function f {
  input x tensor f32 [4, 4]
  output y tensor f32 rank 2
  variant cpu {
    buffer x of input bytes 64
    buffer y of output bytes 64
    extern "aten::mm.out" (read tensor x f32 [4, 4] [4, 1], read tensor x f32 [4, 4] [4, 1],
                           write tensor y f32 [4, 4] [4, 1])
    return (tensor y f32 [4, 4] [4, 1])
  }
}
)");
  EXPECT_NE(Machine(with_version(edited.file, 0, 2)).session, nullptr);
  edited.step(0).argument(2).access = HUSK_ACCESS_READ;
  write_hash(edited.file);
  Machine m(with_version(edited.file, 0, 2));
  EXPECT_EQ(m.session, nullptr);
  EXPECT_NE(std::strstr(m.error.text, "op 'aten::mm.out': the op writes argument"), nullptr)
      << m.error.text;
}

}  // namespace
}  // namespace husk::test
