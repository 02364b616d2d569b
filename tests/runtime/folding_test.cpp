// Constants that functions of the file compute when it is opened (FORMAT.md, "Folded constants").
#include <cstring>

#include "edited_artifact.h"

namespace husk::test {
namespace {

// w is 1, 2, 3, 4. `swapped` has its halves in the other order. A run of `f` gives `swapped`.
constexpr char kSwapped[] = R"(
target gpu cuda "sm_90a"
constant w f32 [4] bytes "0000803f000000400000404000008040"
constant swapped f32 [4] folded_by fold
constant elsewhere f32 [2] folded_by fold.gpu
function f {
  output y tensor f32 rank 1
  variant cpu {
    buffer y of output bytes 16
    copy (write y, read swapped)
    return (tensor y f32 [4] [1])
  }
}
function fold {
  output out tensor f32 rank 1
  variant cpu {
    buffer out of output bytes 16
    buffer half bytes 8
    copy (write half, read w[0, 8])
    copy (write out[0, 8], read w[8, 8])
    copy (write out[8, 8], read half)
    return (tensor out f32 [4] [1])
  }
}
function fold.gpu {
  output out tensor f32 rank 1
  variant gpu {
    buffer out of output bytes 8
    copy (write out, read w[0, 8])
    return (tensor out f32 [2] [1])
  }
}
)";

std::vector<float> run(Machine& m) {
  Tensor y(HUSK_F32, {4});
  EXPECT_EQ(m.run({}, {y.value()}), HUSK_OK) << m.error.text;
  return {y.as<float>(), y.as<float>() + 4};
}

TEST(Folding, IsDoneWhenTheFileIsOpened) {
  Machine m(kSwapped);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(run(m), (std::vector<float>{3, 4, 1, 2}));
  EXPECT_EQ(husk_program_packed_bytes(m.program), 16u);
}

TEST(Folding, IsDoneAgainAfterAnUpdate) {
  Machine m(kSwapped);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(run(m), (std::vector<float>{3, 4, 1, 2}));
  const float values[4] = {5, 6, 7, 8};
  const husk_constant_update update = {0, 0, values};
  ASSERT_EQ(husk_program_update_constants(m.program, &update, 1, &m.error), HUSK_OK)
      << m.error.text;
  EXPECT_EQ(run(m), (std::vector<float>{7, 8, 5, 6}));
}

TEST(Folding, TheApplicationSeesNeitherItsFunctionsNorItsConstants) {
  Machine m(kSwapped);
  ASSERT_NE(m.program, nullptr) << m.error.text;
  EXPECT_EQ(husk_program_function_count(m.program), 1u);
  EXPECT_EQ(husk_program_constant_count(m.program), 1u);
  uint32_t index = 0;
  EXPECT_EQ(husk_program_find_function(m.program, "fold", &index, &m.error), HUSK_NOT_FOUND);
  EXPECT_EQ(husk_program_find_constant(m.program, "swapped", &index, &m.error), HUSK_NOT_FOUND);
  husk_storage_info info = HUSK_STORAGE_INFO_INIT;
  EXPECT_EQ(husk_program_constant(m.program, 1, &info, &m.error), HUSK_INVALID_ARGUMENT);
  const float values[4] = {};
  const husk_constant_update update = {1, 0, values};
  EXPECT_EQ(husk_program_update_constants(m.program, &update, 1, &m.error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_program_output_count(m.program, 1), 0u);
  Tensor y(HUSK_F32, {4});
  EXPECT_EQ(m.run({}, {y.value()}, 1), HUSK_INVALID_ARGUMENT);
}

TEST(Folding, CountsAsMemoryOfTheProgram) {
  husk_engine_options options = Machine::defaults();
  options.max_program_bytes = 15;
  Machine m(kSwapped, options);
  EXPECT_EQ(m.program, nullptr);
  EXPECT_EQ(m.error.code, HUSK_LIMIT);
  EXPECT_NE(std::strstr(m.error.text, "max_program_bytes"), nullptr) << m.error.text;
}

// `fold` with a buffer of `bytes`.
std::string with_buffer(const char* bytes) {
  std::string text = kSwapped;
  return text.insert(text.find("    copy (write half, read w[0, 8])\n"),
                     std::string("    buffer large bytes ") + bytes +
                         "\n    copy (write large[0, 8], read w[0, 8])\n");
}

TEST(Folding, MayNeedMoreThanTheBoundLimit) {
  Machine m(with_buffer("268439552"));
  ASSERT_NE(m.program, nullptr) << m.error.text;
  EXPECT_EQ(run(m), (std::vector<float>{3, 4, 1, 2}));
}

TEST(Folding, TheMemoryOfItsFunctionsCounts) {
  const std::string text = with_buffer("1099511627776");
  husk_engine_options options = Machine::defaults();
  options.max_program_bytes = 1 << 20;
  Machine m(text, options);
  EXPECT_EQ(m.program, nullptr);
  EXPECT_EQ(m.error.code, HUSK_LIMIT);
  EXPECT_NE(std::strstr(m.error.text, "function 'fold': "), nullptr) << m.error.text;
  EXPECT_NE(std::strstr(m.error.text, "max_program_bytes"), nullptr) << m.error.text;
}

TEST(Folding, HearsCancel) {
  husk_engine_options options = Machine::defaults();
  options.cancel = [](void*) { return int32_t{1}; };
  Machine m(kSwapped, options);
  EXPECT_EQ(m.program, nullptr);
  EXPECT_EQ(m.error.code, HUSK_CANCELLED);
}

TEST(Folding, AFailureIsThatOfTheOpen) {
  std::string text = kSwapped;
  const std::string line = "    copy (write half, read w[0, 8])\n";
  text.insert(text.find(line),
              "    read i32 (read w[0, 4])\n    check_eq(result(0), 2) \"model.py:7\"\n");
  Machine m(text);
  EXPECT_EQ(m.program, nullptr);
  EXPECT_NE(std::strstr(m.error.text, "function 'fold': "), nullptr) << m.error.text;
  EXPECT_NE(std::strstr(m.error.text, "model.py:7"), nullptr) << m.error.text;
}

TEST(Folding, AConstantHasTheBytesOfItsDims) {
  EditedArtifact edited(kSwapped);
  const fb::Constant* swapped = edited.program()->constants()->Get(1);
  edited.edit<int64_t>(swapped->dims()->Data()) = 5;
  write_hash(edited.file);
  Machine m(edited.file);
  EXPECT_EQ(m.program, nullptr);
  EXPECT_NE(std::strstr(m.error.text, "constant 'swapped' has 20 bytes, its function made 16"),
            nullptr)
      << m.error.text;
}

TEST(Folding, RulesOfTheFile) {
  using Constant = fb::Constant;
  const auto by = [](auto& e, uint32_t constant) -> uint32_t& {
    return e.template field<uint32_t>(e.program()->constants()->Get(constant),
                                      Constant::VT_FOLDED_BY);
  };
  const char* const function = "' folds constants: it must have one variant, no input, no state";
  const char* const order = "must be an output of the function that folds it";
  expect_refused(
      kSwapped,
      {{order, [&](auto& e) { by(e, 1) = 7; }},
       {order, [&](auto& e) { by(e, 1) = 3; }},
       {function, [&](auto& e) { by(e, 1) = 0; }},
       {function, [&](auto& e) { by(e, 2) = 1; }},
       {"constant 'swapped': its size", [&](auto& e) { by(e, 1) = 0xFFFFFFFF; }},
       {"constant 'swapped': its size",
        [&](auto& e) { e.blob(e.program()->constants()->Get(1)->blob()).size = 16; }},
       {function,
        [&](auto& e) {
          e.template edit<Buffer>(e.function(1)->variants()->Get(0)->buffers()->Get(2)).index = 1;
        }},
       {"buffer 1: its constant is folded for another target",
        [&](auto& e) { e.buffer(Space::constant).index = 2; }}});
}

TEST(Folding, NeedsAnotherFunction) {
  EXPECT_THROW(artifact(R"(
constant folded f32 [1] folded_by fold
function fold {
  output y tensor f32 rank 1
  variant cpu {
    buffer y of output bytes 4
    fill f32 (write y, 1.0)
    return (tensor y f32 [1] [1])
  }
}
)"),
               std::exception);
}

}  // namespace
}  // namespace husk::test
