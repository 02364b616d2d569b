// Failed asserts of kernels: the next wait or run returns an error, and the session stays usable.
#include <cstring>

#include "../values.h"
#include "loaded_program.h"
#include "programs.h"

namespace husk::test {
namespace {

class PickProgram {
 public:
  explicit PickProgram(int32_t mode) : loaded(kPick, options(mode)) {
    float numbers[10];
    for (int i = 0; i < 10; ++i) numbers[i] = static_cast<float>(i) + 0.5f;
    x_ = loaded.alloc(40);
    index_ = loaded.alloc(800);
    for (void*& y : y_) y = loaded.alloc(400);
    (void)loaded.upload(x_, numbers, 40);
  }

  // Enqueues a run on the loaded program's stream, without a wait.
  husk_status run(const std::vector<int64_t>& indices, husk_session* session = nullptr) {
    n_ = static_cast<int64_t>(indices.size());
    if (loaded.upload(index_, indices.data(), indices.size() * 8) != HUSK_OK) return HUSK_DEVICE;
    DeviceTensor x = device_vector(x_, 10), index = device_vector(index_, n_);
    DeviceTensor y = device_vector(y_[0], n_), z = device_vector(y_[1], n_);
    index.dl.dtype = {kDLInt, 64, 1};
    husk_value inputs[] = {x.value(), index.value()}, outputs[] = {y.value(), z.value()};
    if (!session) session = loaded.session;
    if (husk_status status = husk_session_resize(session, 0, inputs, 2, &loaded.error))
      return status;
    return husk_session_run(session, 0, loaded.stream, inputs, 2, outputs, 2, &loaded.error);
  }

  husk_status wait() { return husk_session_wait(loaded.session, &loaded.error); }

  std::vector<float> result() {
    std::vector<float> y(static_cast<size_t>(n_));
    EXPECT_EQ(loaded.download(y.data(), y_[1], y.size() * 4), HUSK_OK) << loaded.error.text;
    return y;
  }

  LoadedProgram loaded;

 private:
  static const husk_session_options* options(int32_t mode) {
    static husk_session_options all[3];
    all[mode] = HUSK_SESSION_OPTIONS_INIT;
    all[mode].mode = mode;
    return &all[mode];
  }

  void *x_ = nullptr, *index_ = nullptr, *y_[2] = {};
  int64_t n_ = 0;
};

class AssertsFault : public FakeTest {};
class AssertsTest : public AssertsFault, public testing::WithParamInterface<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Modes, AssertsTest, testing::Values(HUSK_MODE_LIST, HUSK_MODE_GRAPH));

TEST_P(AssertsTest, AWaitSaysWhichFailed) {
  PickProgram p(GetParam());
  ASSERT_NE(p.loaded.session, nullptr) << p.loaded.error.text;
  ASSERT_EQ(p.run({3, 0, 9}), HUSK_OK) << p.loaded.error.text;
  ASSERT_EQ(p.wait(), HUSK_OK) << p.loaded.error.text;
  EXPECT_EQ(p.result(), (std::vector<float>{3.5f, 0.5f, 9.5f}));

  ASSERT_EQ(p.run({3, 10, 9}), HUSK_OK) << p.loaded.error.text;
  EXPECT_EQ(p.wait(), HUSK_KERNEL);
  EXPECT_STREQ(p.loaded.error.text, "kernel pick: index out of bounds: index < 10");
  EXPECT_EQ(p.loaded.error.code, HUSK_KERNEL);
  EXPECT_EQ(p.wait(), HUSK_OK);  // the failure is reported once

  ASSERT_EQ(p.run({-1}), HUSK_OK);
  EXPECT_EQ(p.wait(), HUSK_KERNEL);
  EXPECT_STREQ(p.loaded.error.text, "kernel pick: index out of bounds: 0 <= index");

  ASSERT_EQ(p.run({4, 4}), HUSK_OK) << p.loaded.error.text;
  ASSERT_EQ(p.wait(), HUSK_OK) << p.loaded.error.text;
  EXPECT_EQ(p.result(), (std::vector<float>{4.5f, 4.5f}));
  const husk_session_stats stats = p.loaded.stats(p.loaded.session);
  EXPECT_EQ(GetParam() == HUSK_MODE_GRAPH ? stats.runs_as_graph : stats.runs_as_list, 4u);
  if (GetParam() == HUSK_MODE_GRAPH) {
    EXPECT_EQ(stats.graph_edges, 0u);  // the assert flag adds no edges
  }
}

// A caller that waits for the stream in another way gets the error from the next run, which is not
// enqueued.
TEST_P(AssertsTest, TheNextRunSaysSo) {
  PickProgram p(GetParam());
  ASSERT_EQ(p.run({3, 11}), HUSK_OK) << p.loaded.error.text;
  EXPECT_EQ(p.result()[0], 3.5f);
  EXPECT_EQ(p.run({1, 2}), HUSK_KERNEL);
  EXPECT_STREQ(p.loaded.error.text,
               "function 'pick': kernel pick: index out of bounds: index < 10");
  EXPECT_EQ(p.result()[0], 3.5f);
  ASSERT_EQ(p.run({1, 2}), HUSK_OK) << p.loaded.error.text;
  ASSERT_EQ(p.wait(), HUSK_OK) << p.loaded.error.text;
  EXPECT_EQ(p.result(), (std::vector<float>{1.5f, 2.5f}));
}

TEST_P(AssertsTest, AreTheSessionsOwn) {
  PickProgram p(GetParam());
  husk_session* other = p.loaded.open_session(nullptr);
  ASSERT_EQ(p.run({12}), HUSK_OK) << p.loaded.error.text;
  ASSERT_EQ(p.run({5}, other), HUSK_OK) << p.loaded.error.text;
  EXPECT_EQ(husk_session_wait(other, &p.loaded.error), HUSK_OK) << p.loaded.error.text;
  EXPECT_EQ(p.wait(), HUSK_KERNEL);
}

TEST_P(AssertsTest, OneThatNobodyAsksForIsForgotten) {
  PickProgram p(GetParam());
  // The session is released with a failed assert that no call reported, and nothing leaks.
  ASSERT_EQ(p.run({12}), HUSK_OK) << p.loaded.error.text;
}

TEST_F(AssertsFault, ASessionWithoutSharedMemoryIsRefused) {
  fake.fake_fail_call("cuMemAllocHost", 1, 2);
  PickProgram p(HUSK_MODE_LIST);
  EXPECT_EQ(p.loaded.session, nullptr);
  EXPECT_EQ(p.loaded.error.code, HUSK_OUT_OF_MEMORY);
  EXPECT_NE(std::strstr(p.loaded.error.text, "a flag in host memory"), nullptr)
      << p.loaded.error.text;
}

}  // namespace
}  // namespace husk::test
