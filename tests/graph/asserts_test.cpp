// Asserts of kernels that failed, on the fake driver: a status at the next wait or run, and the session goes on.
#include "../values.h"
#include "machine.h"

#include <cstring>

namespace husk::test {
namespace {

// y = x[index], twice over, where the indices are in range; the kernel's asserts tell those below 0 from those beyond.
const char* const kPick = R"(
assert "kernel pick: index out of bounds: index < 10"
assert "kernel pick: index out of bounds: 0 <= index"
function pick {
  input x tensor f32 [10]
  input index tensor i64 [1..100]
  output y tensor f32 rank 1
  output z tensor f32 rank 1
  variant gpu {
    let n = size(index, 0)
    buffer x of input bytes 40
    buffer index of input bytes mul(n, 8)
    buffer y of output bytes mul(n, 4)
    buffer z of output bytes mul(n, 4)
    launch pick grid (cdiv(n, 128), 1, 1) (read x, read index, write y, 10, n, asserts)
    launch pick grid (cdiv(n, 128), 1, 1) (read x, read index, write z, 10, n, asserts)
    return (tensor y f32 [n] [1], tensor z f32 [n] [1])
  }
}
)";

class Picker {
 public:
  explicit Picker(int32_t mode) : machine(kPick, options(mode)) {
    float numbers[10];
    for (int i = 0; i < 10; ++i) numbers[i] = static_cast<float>(i) + 0.5f;
    x_ = machine.alloc(40);
    index_ = machine.alloc(800);
    for (void*& y : y_) y = machine.alloc(400);
    (void)machine.upload(x_, numbers, 40);
  }

  // On the machine's stream, without a wait.
  husk_status run(const std::vector<int64_t>& indices, husk_session* session = nullptr) {
    n_ = static_cast<int64_t>(indices.size());
    if (machine.upload(index_, indices.data(), indices.size() * 8) != HUSK_OK) return HUSK_DEVICE;
    DeviceTensor x = Machine::vector(x_, 10), index = Machine::vector(index_, n_);
    DeviceTensor y = Machine::vector(y_[0], n_), z = Machine::vector(y_[1], n_);
    index.dl.dtype = {kDLInt, 64, 1};
    husk_value inputs[] = {x.value(), index.value()}, outputs[] = {y.value(), z.value()};
    if (!session) session = machine.session;
    if (husk_status status = husk_session_resize(session, 0, inputs, 2, &machine.error)) return status;
    return husk_session_run(session, 0, machine.stream, inputs, 2, outputs, 2, &machine.error);
  }

  husk_status wait() { return husk_session_wait(machine.session, &machine.error); }

  std::vector<float> result() {
    std::vector<float> y(static_cast<size_t>(n_));
    EXPECT_EQ(machine.download(y.data(), y_[1], y.size() * 4), HUSK_OK) << machine.error.text;
    return y;
  }

  Machine machine;

 private:
  static const husk_session_options* options(int32_t mode) {
    static husk_session_options made[3];
    made[mode] = HUSK_SESSION_OPTIONS_INIT;
    made[mode].mode = mode;
    return &made[mode];
  }

  void *x_ = nullptr, *index_ = nullptr, *y_[2] = {};
  int64_t n_ = 0;
};

class AssertsFault : public FakeTest {};
class AssertsTest : public AssertsFault, public testing::WithParamInterface<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Modes, AssertsTest, testing::Values(HUSK_MODE_LIST, HUSK_MODE_GRAPH));

TEST_P(AssertsTest, AWaitSaysWhichFailed) {
  Picker p(GetParam());
  ASSERT_NE(p.machine.session, nullptr) << p.machine.error.text;
  ASSERT_EQ(p.run({3, 0, 9}), HUSK_OK) << p.machine.error.text;
  ASSERT_EQ(p.wait(), HUSK_OK) << p.machine.error.text;
  EXPECT_EQ(p.result(), (std::vector<float>{3.5f, 0.5f, 9.5f}));

  ASSERT_EQ(p.run({3, 10, 9}), HUSK_OK) << p.machine.error.text;
  EXPECT_EQ(p.wait(), HUSK_KERNEL);
  EXPECT_STREQ(p.machine.error.text, "kernel pick: index out of bounds: index < 10");
  EXPECT_EQ(p.machine.error.code, HUSK_KERNEL);
  EXPECT_EQ(p.wait(), HUSK_OK);   // it was told

  ASSERT_EQ(p.run({-1}), HUSK_OK);
  EXPECT_EQ(p.wait(), HUSK_KERNEL);
  EXPECT_STREQ(p.machine.error.text, "kernel pick: index out of bounds: 0 <= index");

  ASSERT_EQ(p.run({4, 4}), HUSK_OK) << p.machine.error.text;
  ASSERT_EQ(p.wait(), HUSK_OK) << p.machine.error.text;
  EXPECT_EQ(p.result(), (std::vector<float>{4.5f, 4.5f}));
  const husk_session_stats stats = p.machine.stats(p.machine.session);
  EXPECT_EQ(GetParam() == HUSK_MODE_GRAPH ? stats.runs_as_graph : stats.runs_as_list, 4u);
  if (GetParam() == HUSK_MODE_GRAPH) {
    EXPECT_EQ(stats.graph_edges, 0u);   // asserts order nothing
  }
}

// Who waits for the stream by other means is told at the next run, which is not enqueued.
TEST_P(AssertsTest, TheNextRunSaysSo) {
  Picker p(GetParam());
  ASSERT_EQ(p.run({3, 11}), HUSK_OK) << p.machine.error.text;
  EXPECT_EQ(p.result()[0], 3.5f);
  EXPECT_EQ(p.run({1, 2}), HUSK_KERNEL);
  EXPECT_STREQ(p.machine.error.text, "function 'pick': kernel pick: index out of bounds: index < 10");
  EXPECT_EQ(p.result()[0], 3.5f);
  ASSERT_EQ(p.run({1, 2}), HUSK_OK) << p.machine.error.text;
  ASSERT_EQ(p.wait(), HUSK_OK) << p.machine.error.text;
  EXPECT_EQ(p.result(), (std::vector<float>{1.5f, 2.5f}));
}

TEST_P(AssertsTest, AreTheSessionsOwn) {
  Picker p(GetParam());
  husk_session* other = p.machine.open_session(nullptr);
  ASSERT_EQ(p.run({12}), HUSK_OK) << p.machine.error.text;
  ASSERT_EQ(p.run({5}, other), HUSK_OK) << p.machine.error.text;
  EXPECT_EQ(husk_session_wait(other, &p.machine.error), HUSK_OK) << p.machine.error.text;
  EXPECT_EQ(p.wait(), HUSK_KERNEL);
}

TEST_P(AssertsTest, OneThatNobodyAsksForIsForgotten) {
  Picker p(GetParam());
  ASSERT_EQ(p.run({12}), HUSK_OK) << p.machine.error.text;   // the session is released, and nothing leaks
}

TEST_F(AssertsFault, ASessionWithoutSharedMemoryIsRefused) {
  fake.fake_fail_call("cuMemAllocHost", 1, 2);
  Picker p(HUSK_MODE_LIST);
  EXPECT_EQ(p.machine.session, nullptr);
  EXPECT_EQ(p.machine.error.code, HUSK_OUT_OF_MEMORY);
  EXPECT_NE(std::strstr(p.machine.error.text, "a word that kernels write too"), nullptr) << p.machine.error.text;
}

}  // namespace
}  // namespace husk::test
