// Object files with kernels: what they contain, and images that cannot be taken out of an artifact.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "compile.h"
#include "ir/compile_error.h"
#include "read/artifact.h"
#include "write/launch_code.h"
#include "write/linked.h"

namespace husk::compiler {
namespace {

const Machine kHere = *machine_of(HUSK_TEST_ARCH);
const Machine kOther = kHere == Machine::x86_64 ? Machine::aarch64 : Machine::x86_64;

std::vector<uint8_t> file(const char* name) {
  std::ifstream in(std::string(HUSK_LINKED_FOLDER "/") + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The text of the error of `work`, or an empty string.
template <class F>
std::string refusal(F work) {
  try {
    work();
  } catch (const CompileError& error) {
    return error.text;
  }
  return "";
}

TEST(Object, TheSameFromTextAndFromAnArtifact) {
  const auto compiled = compile(HUSK_LINKED_FOLDER "/model.hir");
  const auto& bytes = std::get<std::vector<uint8_t>>(compiled);
  EXPECT_EQ(bytes, file("model.husk"));
  const LinkedArtifact linked = take_kernels(bytes, kHere);
  EXPECT_EQ(make_object(linked.bytes, "husk_model", kHere, linked.kernels, linked.launches),
            file("model.o"));
  EXPECT_TRUE(linked.loaded.empty());
  ASSERT_EQ(linked.kernels.size(), 3u);
  EXPECT_EQ(linked.kernels[0].name, "kernels");
  EXPECT_LT(linked.bytes.size(), bytes.size());
}

// A program whose function has the steps `steps`; its image is that of model.husk.
LinkedArtifact linked_steps(const std::string& kernel, const std::string& steps) {
  const std::string text =
      "hir 1\nproducer \"test\"\ntarget cpu host \"" HUSK_TEST_ARCH
      "\"\nimage kernels cpu elf \"kernels.so\"\nkernel fail kernels "
      "\"fail_with\" (" +
      kernel + ")\nfunction f {\n  input n int 0..9\n  output m int\n  variant cpu {\n" + steps +
      "    return (int n)\n  }\n}\n";
  const auto compiled = compile_text(text, HUSK_LINKED_FOLDER);
  if (const Error* error = std::get_if<Error>(&compiled)) ADD_FAILURE() << error->text;
  static std::vector<uint8_t> bytes;  // the result points into it
  bytes = std::get<std::vector<uint8_t>>(compiled);
  return take_kernels(bytes, kHere);
}

// The first steps and the numbers of calls of the rows.
std::vector<std::pair<uint32_t, size_t>> rows(const LinkedArtifact& linked) {
  std::vector<std::pair<uint32_t, size_t>> out;
  for (const LaunchRow& row : linked.launches) out.emplace_back(row.first_step, row.calls.size());
  return out;
}

using Rows = std::vector<std::pair<uint32_t, size_t>>;

TEST(Object, RowsOfLaunches) {
  const auto launch = [](const char* grid) {
    return std::string("    launch fail grid ") + grid + " (n)\n";
  };
  const std::string one = launch("(1, 1, 1)");
  EXPECT_EQ(rows(linked_steps("i32", one + one + one)), (Rows{{0, 3}}));
  for (const char* other : {"(n, 1, 1)", "(1, n, 1)", "(1, 1, n)", "(2, 1, 1)", "(1, 1, 0)"})
    EXPECT_EQ(rows(linked_steps("i32", one + one + launch(other) + one)), (Rows{{0, 2}, {3, 1}}))
        << other;
  const std::string fill = "    fill f32 (write t, 0.0)\n";
  EXPECT_EQ(rows(linked_steps("i32", "    buffer t bytes 4\n" + fill + one + fill + one + one)),
            (Rows{{1, 1}, {3, 2}}));
}

// The code's offsets and jumps have limits, so a long row is several.
TEST(Object, LongRowsAreSeveral) {
  std::string steps;
  for (uint32_t i = 0; i <= kMaxLaunchCalls; ++i) steps += "    launch fail grid (1, 1, 1) (n)\n";
  EXPECT_EQ(rows(linked_steps("i32", steps)), (Rows{{0, kMaxLaunchCalls}, {kMaxLaunchCalls, 1}}));

  constexpr uint32_t kParams = 1021, kBytes = (3 + kParams) * 8;  // with the grid
  static_assert(kMaxParamsOffset % kBytes == 0);
  std::string types = "i32", arguments = "n";
  for (uint32_t i = 1; i < kParams; ++i) types += ", i32", arguments += ", 1";
  steps.clear();
  for (uint32_t i = 0; i < kMaxParamsOffset / kBytes + 2; ++i)
    steps += "    launch fail grid (1, 1, 1) (" + arguments + ")\n";
  const LinkedArtifact linked = linked_steps(types, steps);
  constexpr uint32_t kFirst = kMaxParamsOffset / kBytes;
  EXPECT_EQ(rows(linked), (Rows{{0, kFirst}, {kFirst, 2}}));
  EXPECT_EQ(linked.launches[0].calls.back().params, kMaxParamsOffset - kBytes);
  EXPECT_EQ(linked.launches[1].calls[0].params, 0u);
  EXPECT_EQ(linked.launches[1].calls[1].params, kBytes);
}

// The code of another machine is of no use in the object file.
TEST(Object, DropsImagesOfOtherMachines) {
  const std::vector<uint8_t> bytes = file("model.husk");
  const LinkedArtifact linked = take_kernels(bytes, kOther);
  EXPECT_TRUE(linked.kernels.empty());
  EXPECT_TRUE(linked.foreign);
  EXPECT_EQ(linked.bytes, bytes);
  EXPECT_FALSE(take_kernels(bytes, kHere).foreign);
}

TEST(Object, RefusesAnObjectWithoutAKernel) {
  std::vector<uint8_t> bytes = file("model.husk");
  const LinkedArtifact linked = take_kernels(bytes, kHere);
  // The name in the object, not the one of the shared object or of the row.
  const auto& object = linked.kernels[0].object;
  for (const auto& section : object.sections) {
    const std::string text(section.bytes.begin(), section.bytes.end());
    const size_t at = section.header.sh_type == SHT_STRTAB ? text.find("fail_with") : text.npos;
    if (at != text.npos) const_cast<uint8_t&>(section.bytes[at]) = 'm';
  }
  EXPECT_EQ(refusal([&] { take_kernels(bytes, kHere); }),
            "kernel 'fail': the object of image 'kernels' defines no function 'fail_with'");
}

// The code of launches calls the kernels that ports find, and no others.
TEST(Object, RefusesAKernelThatIsNotExported) {
  const std::vector<uint8_t> bytes = file("model.husk");
  LinkedArtifact linked = take_kernels(bytes, kHere);
  for (Relocatable::Symbol& symbol : linked.kernels[0].object.symbols)
    if (symbol.name == "fail_with") symbol.row.st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC);
  EXPECT_EQ(refusal([&] {
              make_object(linked.bytes, "husk_model", kHere, linked.kernels, linked.launches);
            }),
            "image 'kernels': function 'fail_with' of its object is not exported, or no part of "
            "the program");
}

// The steps from a byte that is damaged to the next one, where tables lie and elsewhere. They reach
// each field of the rows of a table. An emulator, which is slow, tries fewer.
#ifdef HUSK_EMULATED
constexpr size_t kTableStep = 37, kStep = 509;
#else
constexpr size_t kTableStep = 5, kStep = 61;
#endif

// No damage of an image makes the compiler read outside of it or fail without a reason.
TEST(Object, DamagedImages) {
  const std::vector<uint8_t> bytes = file("model.husk");
  std::string error;
  const auto artifact = Artifact::view(bytes, error);
  ASSERT_TRUE(artifact) << error;
  size_t refused = 0, accepted = 0;
  for (uint32_t image = 0; image < 2; ++image) {
    const fb::Blob* blob = artifact->program().images()->Get(image)->blob();
    const size_t begin = bytes.size() - artifact->blob_bytes() + blob->offset();
    std::vector<uint8_t> changed = bytes;
    for (size_t i = 0; i < blob->size();
         i += i > 2048 && i + 8192 < blob->size() ? kStep : kTableStep) {
      for (const uint8_t value : {0xff, 0x00, 0x80}) {
        changed[begin + i] = value;
        const std::string text = refusal([&] {
          const LinkedArtifact linked = take_kernels(changed, kHere);
          make_object(linked.bytes, "husk_model", kHere, linked.kernels, linked.launches);
        });
        ++(text.empty() ? accepted : refused);
        if (!text.empty()) {
          EXPECT_NE(text.find("image '"), std::string::npos) << text;
        }
      }
      changed[begin + i] = bytes[begin + i];
    }
  }
  EXPECT_GT(refused, 100u);
  EXPECT_GT(accepted, 100u);
}

TEST(Object, OnlyAnObjectFileIsMadeOfAnArtifact) {
  const auto result = compile_file(HUSK_LINKED_FOLDER "/model.husk", "/dev/null");
  ASSERT_TRUE(std::get_if<Error>(&result));
  EXPECT_EQ(std::get<Error>(result).text,
            "it is an artifact, not the text of a program; only --emit=obj takes artifacts");
}

TEST(Object, RefusesADamagedArtifact) {
  std::vector<uint8_t> bytes = file("model.husk");
  bytes.back() ^= 1;
  const std::string path = ::testing::TempDir() + "damaged.husk", out = path + ".o";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
  const auto result = compile_object(path, out, {}, "husk_damaged", kHere);
  const Error* error = std::get_if<Error>(&result);
  ASSERT_TRUE(error);
  EXPECT_NE(error->text.find("does not match its hash"), std::string::npos) << error->text;
  const auto same = compile_object(path, path, {}, "husk_damaged", kHere);
  ASSERT_TRUE(std::get_if<Error>(&same));
  EXPECT_NE(std::get<Error>(same).text.find("overwrite"), std::string::npos);
}

}  // namespace
}  // namespace husk::compiler
