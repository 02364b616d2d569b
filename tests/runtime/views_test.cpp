// Views whose offset or extent depends on the shapes: every kind of step refuses a view that leaves
// its buffer, before anything runs.
#include <cstring>

#include "edited_artifact.h"

namespace husk::test {
namespace {

// `n` is a number of the caller; `t` has 64 bytes.
std::string program(const char* steps, const char* result = "int n") {
  return std::string(R"(
constant w f32 [2, 3] bytes "0000803f0000004000004040000080400000a0400000c040"
function f {
  input n int 0..100
  output y )") +
         (*result == 'i' ? "int" : "tensor f32 rank 1") + R"(
  variant cpu {
    buffer t bytes 64 align 64
    buffer u bytes 512 align 64
    )" + steps +
         R"(
    return ()" +
         result + R"()
  }
})";
}

struct ViewCase {
  const char* name;
  const char* steps;
  int64_t good, bad;
  const char* text;
};

const ViewCase kCases[] = {
    {"launch_offset", "launch count grid (1, 1, 1) (write t[mul(n, 8), 8])", 7, 8,
     "step 0 count: a view covers bytes 64 + 8 of the 64"},
    {"launch_extent", "launch count grid (1, 1, 1) (write t[0, n])", 64, 65,
     "step 0 count: a view covers bytes 0 + 65 of the 64"},
    {"launch_before", "launch count grid (1, 1, 1) (write t[sub(n, 8), 8])", 8, 0,
     "a view covers bytes -8 + 8"},
    {"launch_negative", "launch count grid (1, 1, 1) (write t[0, sub(n, 8)])", 8, 7,
     "a view covers bytes 0 + -1"},
    {"second_launch",
     "launch count grid (1, 1, 1) (write u)\nlaunch count grid (1, 1, 1) (write t[0, n])", 64, 65,
     "step 1 count: a view"},
    {"copy_to", "copy (write t[0, n], read u[0, n])", 64, 65, "step 0: a view covers bytes 0 + 65"},
    {"copy_from", "copy (write u[0, n], read t[0, n])", 64, 65,
     "step 0: a view covers bytes 0 + 65"},
    {"fill", "fill f32 (write t[mul(n, 4), 4], 1.0)", 15, 16, "step 0: a view covers bytes 64 + 4"},
    {"read", "read i64 (read t[mul(n, 8), 8])", 7, 8, "step 0: a view covers bytes 64 + 8"},
    {"buffer_smaller",
     "buffer v bytes mul(n, 8) align 8\nlaunch count grid (1, 1, 1) (write v[8, 8])", 2, 1,
     "a view covers bytes 8 + 8 of the 8"},
    {"tensor",
     "extern \"aten::mm.out\" (read tensor t f32 [n, 2] [2, 1], read tensor w f32 [2, 3] [3, 1], "
     "write tensor u f32 [n, 3] [3, 1])",
     8, 9, "step 0 aten::mm.out: a view covers bytes 0 + 72"},
};

class Views : public testing::TestWithParam<ViewCase> {};

TEST_P(Views, LieInTheirBuffers) {
  const ViewCase& c = GetParam();
  Machine m(program(c.steps));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  const auto run = [&](int64_t n) { return m.run({integer(n)}, {integer(0)}); };
  EXPECT_EQ(run(c.good), HUSK_OK) << m.error.text;
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(run(c.bad), HUSK_INVALID_INPUT);
    EXPECT_NE(std::strstr(m.error.text, c.text), nullptr) << m.error.text;
    EXPECT_EQ(m.resize({integer(c.bad)}), HUSK_INVALID_INPUT);
    EXPECT_NE(std::strstr(m.error.text, c.text), nullptr) << m.error.text;
    EXPECT_EQ(run(c.good), HUSK_OK) << m.error.text;
  }
}

// If the session fixes the number, the view does not change from run to run.
TEST_P(Views, LieInTheirBuffersWhereTheSessionFixesThem) {
  const ViewCase& c = GetParam();
  Machine m(program(c.steps));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  for (int64_t n : {c.bad, c.good}) {
    husk_session* fixed = nullptr;
    ASSERT_EQ(husk_session_create(m.program, nullptr, &fixed, &m.error), HUSK_OK) << m.error.text;
    ASSERT_EQ(husk_session_set_range(fixed, 0, 0, 0, n, n, &m.error), HUSK_OK) << m.error.text;
    husk_value in = integer(n), out = integer(0);
    for (int turn = 0; turn < 2; ++turn) {
      EXPECT_EQ(husk_session_run(fixed, 0, nullptr, &in, 1, &out, 1, &m.error),
                n == c.bad ? HUSK_INVALID_INPUT : HUSK_OK);
      EXPECT_TRUE(n != c.bad || std::strstr(m.error.text, c.text)) << m.error.text;
    }
    husk_session_release(fixed);
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, Views, testing::ValuesIn(kCases),
                         [](const auto& one) { return one.param.name; });

// An output need not be used by a step.
TEST(Views, OutputsFitTheirBuffers) {
  Machine m(program("buffer y of output bytes 16", "tensor y f32 [n] [1]"));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor four(HUSK_F32, {4}), five(HUSK_F32, {5});
  EXPECT_EQ(m.run({integer(4)}, {four.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.run({integer(5)}, {five.value()}), HUSK_INVALID_INPUT);
  EXPECT_NE(std::strstr(m.error.text, "a view covers bytes 0 + 20 of the 16 of buffer 'y'"),
            nullptr)
      << m.error.text;
  EXPECT_EQ(m.run({integer(4)}, {four.value()}), HUSK_OK) << m.error.text;
}

// The compiler writes views as large as their tensors. Another writer may not.
TEST(Views, HoldTheirTensors) {
  for (const bool output : {false, true}) {
    EditedArtifact edited(
        output ? program("buffer y of output bytes 16", "tensor y f32 [n] [1]")
               : program("extern \"aten::mm.out\" (read tensor t f32 [n, 2] [2, 1], read "
                         "tensor w f32 [2, 3] [3, 1], "
                         "write tensor u f32 [n, 3] [3, 1])"));
    View& view = edited.view(edited.tensor(0).view);
    view.extent = view.offset;
    write_hash(edited.file);
    Machine m(edited.file);
    ASSERT_NE(m.session, nullptr) << m.error.text;
    Tensor y(HUSK_F32, {4});
    EXPECT_EQ(m.run({integer(4)}, {output ? y.value() : integer(0)}), HUSK_INVALID_INPUT);
    EXPECT_NE(std::strstr(m.error.text, "a tensor does not fit into its view of buffer"), nullptr)
        << m.error.text;
  }
}

// A buffer of a constant may be larger than the constant in a file of another writer.
TEST(Views, LieInMemoryThatIsThere) {
  EditedArtifact edited(program(
      "buffer v bytes mul(n, 8)\nlaunch count grid (1, 1, 1) (write v)\n"
      "extern \"aten::mm.out\" (read tensor t f32 [1, 2] [2, 1], read tensor w f32 [2, 3] [3, 1], "
      "write tensor u f32 [1, 3] [3, 1])"));
  edited.buffer(Space::constant).size = edited.find(Scalar::op_mul);
  write_hash(edited.file);
  Machine m(edited.file);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(m.run({integer(3)}, {integer(0)}), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.run({integer(4)}, {integer(0)}), HUSK_INVALID_INPUT);
  EXPECT_NE(std::strstr(m.error.text, "needs 32 bytes, there are 24"), nullptr) << m.error.text;
}

// The same for an output whose size only the data decides.
TEST(Views, OutputsOfLaterSegmentsFitTheirBuffers) {
  Machine m(R"(
function f {
  input flag tensor i64 []
  output y tensor f32 rank 1
  variant cpu {
    buffer flag of input bytes 8
    read i64 (read flag)
    let n = result(0)
    buffer y of output bytes min(mul(n, 4), 16)
    return (tensor y f32 [n] [1])
  }
}
)");
  ASSERT_NE(m.session, nullptr) << m.error.text;
  int64_t n = 4;
  Tensor flag(HUSK_I64, {}, &n);
  EXPECT_EQ(m.run({flag.value()}, {none()}), HUSK_OK) << m.error.text;
  n = 5;
  EXPECT_EQ(m.run({flag.value()}, {none()}), HUSK_INVALID_INPUT);
  EXPECT_NE(std::strstr(m.error.text, "a view covers bytes 0 + 20 of the 16 of buffer 'y'"),
            nullptr)
      << m.error.text;
}

}  // namespace
}  // namespace husk::test
