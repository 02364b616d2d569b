// The artifacts that the verifier refuses. The rules about rows are tested with rows that are
// edited after the compiler has written them.
#include "model/verify.h"

#include <array>
#include <cstring>

#include "edited_artifact.h"

namespace husk::test {
namespace {

const char* const kProgram = R"(
target gpu cuda "sm_90a"
constant w f32 [4] bytes "00000000000000000000000000000000"
state ticks i64 [] fill 0
function f {
  input x tensor f32 [1..16]
  input n int
  output y tensor f32 rank 1
  output k int
  variant cpu {
    let m = size(x, 0)
    check_eq(mod(m, 2), 0) "even"
    buffer x of input bytes mul(m, 4)
    buffer y of output bytes mul(m, 4)
    buffer t bytes mul(m, 4) align 64
    launch count grid (1, 1, 1) (both ticks) at "a"
    launch scale grid (1, 1, 1) (read x, write t, 2.0, m) at "b"
    launch add grid (1, 1, 1) (read t, read w, write y, min(m, 4)) at "c"
    read i64 (read ticks)
    return (tensor y f32 [m] [1], int add(result(0), n))
  }
}
)";

TEST(Verify, AcceptsWhatTheCompilerWrote) {
  const std::vector<uint8_t> file = artifact(kProgram);
  EXPECT_EQ(verify_error(file, HUSK_OK), "");
}

TEST(Verify, HeaderRules) {
  const std::vector<uint8_t> good = artifact(kProgram);
  auto with_byte = [&](size_t at, uint8_t value) {
    std::vector<uint8_t> file = good;
    file[at] = value;
    return file;
  };
  EXPECT_NE(verify_error(with_byte(0, 'X')).find("not a Husk artifact"), std::string::npos);
  EXPECT_NE(verify_error(with_byte(8, 9), HUSK_UNSUPPORTED)
                .find("format 9.7, this library reads 0.2 to 0.7: update libhusk"),
            std::string::npos);
  EXPECT_NE(verify_error(with_byte(10, 200), HUSK_UNSUPPORTED).find("format 0.200"),
            std::string::npos);
  EXPECT_NE(verify_error(with_byte(24, 8), HUSK_UNSUPPORTED).find("needs features 0x8"),
            std::string::npos);
  EXPECT_NE(verify_error(with_byte(40, static_cast<uint8_t>(good[40] + 1)))
                .find("does not match its hash"),
            std::string::npos);
  EXPECT_NE(verify_error(with_byte(100, static_cast<uint8_t>(good[100] + 1)))
                .find("does not match its hash"),
            std::string::npos);
  std::vector<uint8_t> file = good;
  file.resize(file.size() - 1);
  EXPECT_NE(verify_error(file).find("the artifact is truncated: its header says"),
            std::string::npos);
  file.resize(file.size() + 2);
  EXPECT_NE(verify_error(file).find("the artifact is too long"), std::string::npos);
  for (size_t size : {0u, 1u, 63u, 64u, 65u, 1000u}) {
    file.assign(good.begin(), good.begin() + static_cast<long>(size));
    verify_error(file);
  }
  file = good;
  file[15] = 1;  // the metadata has 2^24 bytes
  EXPECT_NE(verify_error(file).find("the metadata ends after the end of the file"),
            std::string::npos);
  file[12] = file[13] = file[14] = file[15] = 0;  // the metadata has 0 bytes
  write_hash(file);
  EXPECT_NE(verify_error(file).find("not a well-formed FlatBuffer"), std::string::npos);
}

TEST(Verify, NoByteOfTheMetadataCanCrashIt) {
  const std::vector<uint8_t> good = artifact(kProgram);
  uint32_t metadata;
  std::memcpy(&metadata, good.data() + 12, 4);
  size_t refused = 0;
  for (uint32_t at = 0; at < metadata; ++at)
    for (uint8_t flip : {0x01, 0x80, 0xFF}) {
      std::vector<uint8_t> file = good;
      file[64 + at] ^= flip;
      write_hash(file);
      const Aligned bytes(file);
      husk_error error = {};
      const husk_status status = husk_program_verify(bytes.data(), file.size(), &error);
      if (status != HUSK_OK) {
        ++refused;
        EXPECT_GT(std::strlen(error.text), 10u);
      }
    }
  EXPECT_GT(refused, metadata);
}

TEST(Verify, APlacementOrderNamesEachBufferOnce) {
  EditedArtifact edited(R"(
target gpu cuda "sm_90a"
function f {
  variant cpu {
    buffer a bytes 16
    buffer b bytes 32
    buffer c bytes 64
    fill u8 (write a, 1)
    fill u8 (write b, 1)
    fill u8 (write c, 1)
    return ()
  }
}
)");
  ASSERT_EQ(edited.variant()->placement_order()->size(), 3u);
  uint32_t* const order = const_cast<uint32_t*>(edited.variant()->placement_order()->data());
  for (const auto& [a, b, c] : {std::array{0u, 1u, 2u}, {2u, 0u, 1u}}) {
    order[0] = a, order[1] = b, order[2] = c;
    write_hash(edited.file);
    EXPECT_EQ(verify_error(edited.file, HUSK_OK), "");
  }
  for (uint32_t wrong : {0u, 3u, 0xFFFFFFFFu}) {
    order[1] = wrong, order[0] = 0, order[2] = 2;
    EXPECT_NE(edited.verify_error().find("the order is not a permutation of the arena buffers"),
              std::string::npos)
        << wrong;
  }
  uint32_t* const size = order - 1;  // the length of a vector precedes its elements
  for (uint32_t wrong : {1u, 2u}) {
    *size = wrong;
    EXPECT_NE(edited.verify_error().find("the order is not a permutation of the arena buffers"),
              std::string::npos)
        << wrong;
  }
  *size = 0;  // no order is stored
  write_hash(edited.file);
  EXPECT_EQ(verify_error(edited.file, HUSK_OK), "");
}

// The verifier checks the arguments of steps. The runtime must not read the others.
TEST(Verify, ArgumentsOfNoStepAreIgnored) {
  EditedArtifact edited(R"(
function f {
  variant cpu {
    buffer a bytes 16
    fill u8 (write a, 1)
    fill u8 (write a, 2)
    return ()
  }
}
)");
  edited.step(1).argument(0) = {uint8_t(ArgumentKind::tensor), HUSK_ACCESS_WRITE, 0, 0, 5000, 0, 0};
  --edited.last_segment().step_end;
  --const_cast<uint32_t*>(
      reinterpret_cast<const uint32_t*>(edited.variant()->steps()->Data()))[-1];  // the length
  write_hash(edited.file);
  Machine m(edited.file);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(m.run({}, {}), HUSK_OK) << m.error.text;
}

TEST(Verify, ScalarRules) {
  expect_refused(
      kProgram,
      {{"unknown code 95", [](auto& edited) { edited.scalar(0) = {95, 0, 0, 0, 0}; }},
       {"an unused field is set", [](auto& edited) { edited.scalar(0).aux = 1; }},
       {"operand 0 is not of the kind that the op takes",  // the op's own register
        [](auto& edited) { edited.scalar(Scalar::op_mul).a = edited.find(Scalar::op_mul); }},
       {"operand 1 is not of the kind that the op takes",  // x has one dimension
        [](auto& edited) { edited.scalar(Scalar::op_size).b = 1; }},
       {"operand 0 is not of the kind that the op takes",  // n is not a tensor
        [](auto& edited) { edited.scalar(Scalar::op_size).a = 1; }},
       {"operand 0 is not of the kind that the op takes",  // a read has one result
        [](auto& edited) { edited.scalar(Scalar::op_result).a = 1; }},
       {"the segments are out of order", [](auto& edited) { ++edited.segment(1).scalar_begin; }},
       {"the segments do not cover all ops and steps",
        [](auto& edited) { --edited.segment(1).scalar_end; }}});
}

TEST(Verify, MemoryRules) {
  expect_refused(
      kProgram,
      {{"buffer 0: unknown space, alignment over 4096, a reserved field is set, or its size",
        [](auto& edited) { edited.buffer(0).space = 9; }},
       {"buffer 0: unknown device", [](auto& edited) { edited.buffer(0).device = 2; }},
       {"buffer 0: a host target has no host beside its device",
        [](auto& edited) { edited.buffer(0).device = 1; }},
       {"in the arena, but names a value",
        [](auto& edited) { edited.buffer(Space::arena).index = 0; }},
       {"its value does not exist", [](auto& edited) { edited.buffer(Space::state).index = 1; }},
       {"its value is not a tensor", [](auto& edited) { edited.buffer(Space::input).index = 1; }},
       {"view 0: its buffer does not exist, a reserved field is set, or its offset or extent",
        [](auto& edited) { edited.view(0).buffer = 99; }},
       {"tensor 0: invalid view, dtype, rank, sizes, strides or reserved field",
        [](auto& edited) { edited.tensor(0).rank = 15; }},
       {"tensor 0: invalid view, dtype, rank, sizes, strides or reserved field",
        [](auto& edited) { edited.tensor(0).dtype = HUSK_POINTER; }}});
}

TEST(Verify, StepRules) {
  constexpr uint8_t no_access = 0, read = HUSK_ACCESS_READ, write = HUSK_ACCESS_WRITE;
  expect_refused(
      kProgram,
      {{"step 1: its arguments do not exist or belong to another step",
        [](auto& edited) { edited.step(1).row.b = 0; }},
       {"step 0: unknown code 77", [](auto& edited) { edited.step(0).row.op = 77; }},
       {"step 0: its kernel does not exist", [](auto& edited) { edited.step(0).row.a = 1000; }},
       {"step 0: kernel 'add' takes 4 arguments", [](auto& edited) { edited.step(0).row.a = 0; }},
       {"step 2: argument 4: a constant cannot be written",
        [](auto& edited) { edited.step(2).argument(4).access = write; }},
       {"step 0: argument 3: access not allowed for this parameter",
        [](auto& edited) { edited.step(0).argument(3).access = no_access; }},
       {"step 1: argument 6: access not allowed for this parameter",  // an int
        [](auto& edited) { edited.step(1).argument(6).access = read; }},
       {"step 1: argument 3: its view does not exist",
        [](auto& edited) { edited.step(1).argument(3).index = 500; }},
       {"step 1: argument 6: its register does not exist, has another type, or is computed later",
        [](auto& edited) { edited.step(1).argument(6).index = 500; }},
       {"step 1: argument 6: unknown kind",
        [](auto& edited) { edited.step(1).argument(6).kind = 50; }},
       {"argument 5 of kernel 'scale' does not have the type of its parameter",
        [](auto& edited) { edited.step(1).argument(5) = edited.step(1).argument(6); }},
       {"step 3: a read takes one view with access read and an int or float type",
        [](auto& edited) { edited.step(3).argument(0).type = HUSK_C64; }},
       {"result 1 does not have the kind, dtype and rank of output 'k'",
        [](auto& edited) { edited.result(1) = {}; }},
       {"result 0 does not have the kind, dtype and rank of output 'y'",
        [](auto& edited) { edited.result(0).index = 9; }}});
}

TEST(Verify, UnusedFieldsAreZero) {
  const char* const program = R"(
state ticks i64 [] fill 0
function f {
  output y tensor f32 rank 1
  output k int
  output n none
  variant cpu {
    buffer y of output bytes 8
    extern "test::op" (write tensor y f32 [2] [1], 2, 1.5, [3], floats [2.5], "text", dtype f16,
      tensors [none], result int)
    launch positive grid (1, 1, 1) (both ticks, null, 1)
    return (tensor y f32 [2] [1], int result(0), none)
  }
}
)";
  expect_refused(program,
                 {{"buffer 0: unknown space, alignment over 4096, a reserved field",
                   [](auto& e) { e.buffer(0).reserved = 1; }},
                  {"buffer 0: unknown space, alignment over 4096, a reserved field",
                   [](auto& e) { e.buffer(0).reserved2 = 1; }},
                  {"view 0: its buffer does not exist, a reserved field is set",
                   [](auto& e) { e.view(0).reserved = 1; }},
                  {"tensor 0: invalid view, dtype, rank, sizes, strides or reserved",
                   [](auto& e) { e.tensor(0).reserved = 1; }},
                  {"tensor 0: invalid view, dtype, rank, sizes, strides or reserved",
                   [](auto& e) { e.tensor(0).reserved2 = 1; }},
                  {"result 0: an unused field is set", [](auto& e) { e.result(0).access = 1; }},
                  {"result 1: an unused field is set", [](auto& e) { e.result(1).type = 1; }},
                  {"result 1: an unused field is set", [](auto& e) { e.result(1).count = 1; }},
                  {"result 2: an unused field is set", [](auto& e) { e.result(2).index = 1; }}});
  // By argument: whether index, count and type are used.
  constexpr bool kUsed[][3] = {{true, false, false}, {true, false, true}, {true, false, true},
                               {true, true, false},  {true, true, false}, {true, false, false},
                               {false, false, true}, {true, true, false}, {false, false, true},
                               {false, false, false}};
  for (uint32_t i = 0; i < std::size(kUsed); ++i)
    for (int field = 0; field < 5; ++field) {
      EditedArtifact edited(program);
      Argument& argument = edited.step(0).argument(i);
      if (field < 3 && kUsed[i][field]) continue;
      if (field == 0) argument.index = 1;
      if (field == 1) argument.count = 1;
      if (field == 2) argument.type = HUSK_F64;
      if (field == 3) argument.flags = 1;
      if (field == 4) argument.reserved = 1;
      const std::string text = "step 0: argument " + std::to_string(i) + ": an unused field is set";
      EXPECT_NE(edited.verify_error().find(text), std::string::npos) << i << ' ' << field;
    }
  EditedArtifact edited(program);
  edited.step(1).argument(4).index = 2;  // 0 is the null pointer, 1 is the assert flag
  EXPECT_NE(edited.verify_error().find("argument 4: an unused field is set"), std::string::npos);
}

}  // namespace
}  // namespace husk::test
