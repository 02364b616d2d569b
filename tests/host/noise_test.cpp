// Every op with random arguments that nearly fit. The op may succeed or fail, but it must not touch
// memory outside of its tensors, and an error must name the op. Tensors end where their memory
// ends, so that sanitizers see every access outside of it.
#include "noise.h"

#include "host_device.h"

namespace husk::host_test {
namespace {

class NoisyOps : public HostDevice {};

TEST_F(NoisyOps, StayInBounds) {
  uint32_t count = 0;
  const husk_op* ops = husk_host_ops(&count);
  constexpr int kRounds = 400, kMostRounds = 4000;  // the latter of an op that never succeeded
  int ops_with_success = 0, calls = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const husk_op_context context = context_of(ops[i]);
    const std::vector<Entry> contract = parse_contract(ops[i].contract);
    // Every run has the same arguments; --gtest_random_seed=N chooses others. The seed of UnitTest
    // would follow the clock where the flag is not given.
    std::mt19937 random(7 + i + GTEST_FLAG_GET(random_seed));
    int successes = 0;
    for (int round = 0; round < kRounds || (!successes && round < kMostRounds); ++round) {
      Noise noise(pick_from(random));
      const std::vector<husk_op_arg> args = noise.args(ops[i].name, contract);
      error = {};
      const husk_status status = ops[i].call(&context, args.data(),
                                             static_cast<uint32_t>(args.size()), &error);
      successes += status == HUSK_OK;
      ASSERT_EQ(status, error.code) << ops[i].name;
      ASSERT_TRUE(status == HUSK_OK || std::string(error.text).find(ops[i].name) == 0)
          << error.text;
      ASSERT_TRUE(noise.guards_intact()) << ops[i].name;
    }
    ops_with_success += successes > 0;
    calls += successes;
    RecordProperty(ops[i].name, successes);
  }
  // At least three quarters of the ops must succeed sometimes. Otherwise the arguments test too
  // little.
  EXPECT_GT(ops_with_success, static_cast<int>(count) * 3 / 4) << calls << " calls succeeded";
}

}  // namespace
}  // namespace husk::host_test
