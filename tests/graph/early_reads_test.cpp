// Kernels that read a state before they wait (`pdl_in_graph`), on the fake driver, which starts
// waiting kernels early.
#include "../values.h"
#include "loaded_program.h"

namespace husk::test {
namespace {

constexpr int kRuns = 20;

// A function y = (x * 2 + 0.25) * sum, where the state `sum` counts runs from 1.
std::string counted(const std::string& kernel) {
  return R"(
state sum f32 [] fill 1.0
function counted {
  input x tensor f32 [4]
  output y tensor f32 rank 1
  variant gpu {
    buffer x of input bytes 16
    buffer y of output bytes 16
    buffer a bytes 16 align 64
    launch scale grid (1, 1, 1) (read x, write a, 2.0, 4)
    launch )" +
         kernel + R"( grid (1, 1, 1) (read a, write y, both sum, 4)
    return (tensor y f32 [4] [1])
  }
}
)";
}

class EarlyReads : public FakeTest {
 protected:
  // Whether all of several runs, which nothing waits for, have their results.
  bool are_right(const std::string& kernel, int32_t mode, uint64_t seed) {
    husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
    options.mode = mode;
    LoadedProgram m(counted(kernel), &options);
    if (!m.session) throw std::runtime_error(m.error.text);
    const float ones[4] = {1, 1, 1, 1};
    void* x = m.alloc(16);
    EXPECT_EQ(m.upload(x, ones, 16), HUSK_OK);
    DeviceTensor from = device_vector(x, 4);
    husk_value input = from.value();
    EXPECT_EQ(husk_session_resize(m.session, 0, &input, 1, &m.error), HUSK_OK) << m.error.text;
    fake.fake_schedule(seed, 0);
    void* results[kRuns];
    for (void*& memory : results) {
      memory = m.alloc(16);
      DeviceTensor to = device_vector(memory, 4);
      husk_value output = to.value();
      EXPECT_EQ(husk_session_run(m.session, 0, m.stream, &input, 1, &output, 1, &m.error), HUSK_OK)
          << m.error.text;
    }
    edges = m.stats(m.session).programmatic_edges;
    bool right = true;
    for (int run = 0; run < kRuns; ++run) {
      float y[4];
      EXPECT_EQ(m.download(y, results[run], 16), HUSK_OK);
      for (float element : y) right = right && element == 2.25f * static_cast<float>(run + 1);
    }
    return right;
  }

  uint64_t edges = 0;
};

TEST_F(EarlyReads, HaveProgrammaticEdgesInAGraph) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_TRUE(are_right("ahead", HUSK_MODE_GRAPH, seed)) << seed;
    EXPECT_EQ(edges, 1u);
  }
  EXPECT_GT(fake.fake_early_starts(), 0u);
}

TEST_F(EarlyReads, WaitForTheRunBeforeInAList) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    EXPECT_TRUE(are_right("ahead", HUSK_MODE_LIST, seed)) << seed;
}

// The same kernel, marked as one that may be launched early anywhere, reads the sum of an earlier
// run.
TEST_F(EarlyReads, AWrongMarkIsCaught) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) wrong += !are_right("rash", HUSK_MODE_LIST, seed);
  EXPECT_GT(wrong, 0);
}

}  // namespace
}  // namespace husk::test
