// Explicit graphs on the fake driver, which runs nodes in any order that the edges allow and starts
// waiting kernels early.
#include <cmath>
#include <cstring>
#include <random>

#include "../values.h"
#include "loaded_program.h"
#include "programs.h"

namespace husk::test {
namespace {

// Runs a function of x, t, k -> y on sessions of several modes. Each tensor has two addresses, so
// that pointers change between runs.
class FunctionRunner {
 public:
  FunctionRunner(const std::string& text, const husk_session_options* options)
      : loaded(text, options) {
    for (void*& memory : in_) memory = loaded.alloc(kLargest * 4);
    for (void*& memory : out_) memory = loaded.alloc(kLargest * 4);
  }

  husk_status resize(husk_session* session, int64_t n) {
    DeviceTensor x = device_vector(nullptr, n);
    husk_value inputs[] = {x.value(), floating(1), integer(1)};
    return husk_session_resize(session, 0, inputs, 3, &loaded.error);
  }

  husk_status run(husk_session* session, const std::vector<float>& x, double t, int64_t k,
                  int place, std::vector<float>* y) {
    const auto n = static_cast<int64_t>(x.size());
    if (n && loaded.upload(in_[place], x.data(), x.size() * 4) != HUSK_OK) return HUSK_DEVICE;
    DeviceTensor from = device_vector(in_[place], n), to = device_vector(out_[place], n);
    husk_value inputs[] = {from.value(), floating(t), integer(k)};
    husk_value output = to.value();
    const husk_status status = husk_session_run(session, 0, loaded.stream, inputs, 3, &output, 1,
                                                &loaded.error);
    if (status != HUSK_OK) return status;
    y->assign(x.size(), NAN);
    return n ? loaded.download(y->data(), out_[place], x.size() * 4) : HUSK_OK;
  }

  LoadedProgram loaded;

 private:
  void* in_[2] = {};
  void* out_[2] = {};
};

husk_session_options in_mode(int32_t mode, int32_t full_edges = 0) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.mode = mode;
  options.full_edges = full_edges;
  return options;
}

std::vector<float> random_vector(std::mt19937& random, size_t n) {
  std::vector<float> x(n);
  for (float& value : x) value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 500;
  return x;
}

class GraphTest : public FakeTest {};

TEST_F(GraphTest, EqualsTheListInEveryOrder) {
  const husk_session_options graph = in_mode(HUSK_MODE_GRAPH), list = in_mode(HUSK_MODE_LIST),
                             full = in_mode(HUSK_MODE_GRAPH, 1);
  FunctionRunner r(branches("scale"), &graph);
  ASSERT_NE(r.loaded.session, nullptr) << r.loaded.error.text;
  husk_session* sessions[] = {r.loaded.session, r.loaded.open_session(&list),
                              r.loaded.open_session(&full)};
  for (husk_session* session : sessions)
    ASSERT_EQ(r.resize(session, 300), HUSK_OK) << r.loaded.error.text;
  std::mt19937 random(5);
  std::vector<float> y;
  const int runs = 60;
  for (int run = 0; run < runs; ++run) {
    fake.fake_schedule(random(), random() % 60);
    const std::vector<float> x = random_vector(random, 1 + random() % kLargest);
    const float t = static_cast<float>(random() % 100) / 64;
    const auto k = static_cast<int32_t>(random() % 9) - 4;
    const std::vector<float> expected = branches_of(x, t, k);
    for (husk_session* session : sessions) {
      ASSERT_EQ(r.run(session, x, t, k, static_cast<int>(random() % 2), &y), HUSK_OK)
          << r.loaded.error.text;
      ASSERT_EQ(std::memcmp(y.data(), expected.data(), y.size() * 4), 0) << "run " << run;
    }
  }
  for (husk_session* session : sessions) {
    int64_t ticks = 0;
    ASSERT_EQ(husk_session_state_get(session, 0, &ticks, &r.loaded.error), HUSK_OK);
    EXPECT_EQ(ticks, runs);
  }
  EXPECT_EQ(r.loaded.stats(sessions[0]).runs_as_graph, static_cast<uint64_t>(runs));
  EXPECT_EQ(r.loaded.stats(sessions[1]).runs_as_list, static_cast<uint64_t>(runs));
  EXPECT_EQ(r.loaded.stats(sessions[2]).programmatic_edges, 0u);
  EXPECT_GT(fake.fake_early_starts(), 0u);  // programmatic edges did start kernels early
}

TEST_F(GraphTest, HasTrueEdgesOnly) {
  const husk_session_options options = in_mode(HUSK_MODE_GRAPH);
  FunctionRunner r(branches("scale"), &options);
  ASSERT_EQ(r.resize(r.loaded.session, 300), HUSK_OK) << r.loaded.error.text;
  const husk_session_stats s = r.loaded.stats(r.loaded.session);
  EXPECT_EQ(s.graph_nodes, 2u * kSteps + 2);
  // Edges within the branches and into the join; the counter has none.
  EXPECT_EQ(s.graph_edges, 2u * (kSteps - 1) + 2);
  EXPECT_EQ(s.programmatic_edges, s.graph_edges);
  EXPECT_EQ(s.bounded, 1u);
}

TEST_F(GraphTest, KernelsThatDoNotWaitGetFullEdges) {
  const husk_session_options options = in_mode(HUSK_MODE_GRAPH);
  FunctionRunner r(branches("late"), &options);
  ASSERT_EQ(r.resize(r.loaded.session, 300), HUSK_OK) << r.loaded.error.text;
  const husk_session_stats s = r.loaded.stats(r.loaded.session);
  EXPECT_EQ(s.programmatic_edges, s.graph_edges - (kSteps - 1));
}

// A kernel that is marked as waiting first and does not wait is a race, which shows as wrong
// results here. The exporter therefore checks the mark in the PTX.
TEST_F(GraphTest, AKernelThatDoesNotWaitIsCaught) {
  const husk_session_options options = in_mode(HUSK_MODE_GRAPH);
  FunctionRunner r(branches("liar"), &options);
  ASSERT_EQ(r.resize(r.loaded.session, 300), HUSK_OK) << r.loaded.error.text;
  std::mt19937 random(6);
  std::vector<float> y;
  int wrong = 0;
  for (int run = 0; run < 20; ++run) {
    fake.fake_schedule(random(), 0);
    const std::vector<float> x = random_vector(random, 200);
    ASSERT_EQ(r.run(r.loaded.session, x, 1.5, 2, 0, &y), HUSK_OK) << r.loaded.error.text;
    const std::vector<float> expected = branches_of(x, 1.5f, 2);
    wrong += std::memcmp(y.data(), expected.data(), y.size() * 4) != 0;
  }
  EXPECT_GT(wrong, 0);
}

TEST_F(GraphTest, PatchesWhatChangedAndNothingElse) {
  const husk_session_options options = in_mode(HUSK_MODE_GRAPH);
  FunctionRunner r(branches("scale"), &options);
  husk_session* session = r.loaded.session;
  ASSERT_EQ(r.resize(session, 300), HUSK_OK) << r.loaded.error.text;
  std::mt19937 random(7);
  std::vector<float> x = random_vector(random, 300), y;
  auto patched_by = [&](double t, int64_t k, int place) {
    const uint64_t before = r.loaded.stats(session).nodes_patched;
    EXPECT_EQ(r.run(session, x, t, k, place, &y), HUSK_OK) << r.loaded.error.text;
    EXPECT_EQ(y, branches_of(x, static_cast<float>(t), static_cast<int32_t>(k)));
    return r.loaded.stats(session).nodes_patched - before;
  };
  EXPECT_EQ(patched_by(1, 1, 0), 3u);  // the nodes with the addresses of x and y
  EXPECT_EQ(patched_by(1, 1, 0), 0u);
  EXPECT_EQ(patched_by(2, 1, 0), unsigned(kSteps));
  EXPECT_EQ(patched_by(2, 5, 0), unsigned(kSteps));
  EXPECT_EQ(patched_by(2, 5, 1), 3u);
  x = random_vector(random, 301);
  EXPECT_EQ(patched_by(2, 5, 1), 2u * kSteps + 1);  // the nodes with n: all but the counter
}

TEST_F(GraphTest, ARefusedPatchMakesTheRunAList) {
  const husk_session_options options = in_mode(HUSK_MODE_GRAPH);
  FunctionRunner r(branches("scale"), &options);
  husk_session* session = r.loaded.session;
  ASSERT_EQ(r.resize(session, 300), HUSK_OK) << r.loaded.error.text;
  std::mt19937 random(8);
  std::vector<float> y;
  for (int run = 0; run < 6; ++run) {
    const std::vector<float> x = random_vector(random, 100 + random() % 100);
    if (run % 2)
      fake.fake_fail_call("cuGraphExecKernelNodeSetParams", 1 + static_cast<uint64_t>(run), 910);
    ASSERT_EQ(r.run(session, x, 0.5, run, 0, &y), HUSK_OK) << r.loaded.error.text;
    EXPECT_EQ(fake.fake_failed(), run % 2);
    fake.fake_fail_at(0, 0);
    EXPECT_EQ(y, branches_of(x, 0.5f, run));
  }
  EXPECT_EQ(r.loaded.stats(session).runs_as_list, 3u);
  EXPECT_EQ(r.loaded.stats(session).runs_as_graph, 3u);
}

// A graph run after a list run must patch the arguments that the list run had changed, even if it
// repeats that run.
TEST_F(GraphTest, CatchesUpAfterAList) {
  const husk_session_options options = in_mode(HUSK_MODE_GRAPH);
  FunctionRunner r(branches("scale"), &options);
  husk_session* session = r.loaded.session;
  ASSERT_EQ(r.resize(session, 300), HUSK_OK) << r.loaded.error.text;
  std::mt19937 random(14);
  const std::vector<float> x = random_vector(random, 100), z = random_vector(random, 100);
  std::vector<float> y;
  auto run = [&](const std::vector<float>& in, int64_t k) {
    ASSERT_EQ(r.run(session, in, 0.5, k, 0, &y), HUSK_OK) << r.loaded.error.text;
    ASSERT_EQ(y, branches_of(in, 0.5f, static_cast<int32_t>(k)));
  };
  run(x, 1);
  run(x, 1);
  fake.fake_fail_call("cuGraphExecKernelNodeSetParams", 1, 910);
  run(x, 2);  // the patch is refused, so this run is a list
  fake.fake_fail_at(0, 0);
  run(z, 2);
  run(z, 2);
  EXPECT_EQ(r.loaded.stats(session).runs_as_list, 1u);
  EXPECT_EQ(r.loaded.stats(session).runs_as_graph, 4u);
}

TEST_F(GraphTest, AnEmptyGridMakesTheRunAList) {
  const husk_session_options options = in_mode(HUSK_MODE_GRAPH);
  FunctionRunner r(branches("scale"), &options);
  husk_session* session = r.loaded.session;
  std::vector<float> y;
  ASSERT_EQ(r.resize(session, 0), HUSK_OK) << r.loaded.error.text;
  EXPECT_EQ(r.loaded.stats(session).graph_nodes, 0u);  // empty grids have no graph
  ASSERT_EQ(r.resize(session, 10), HUSK_OK) << r.loaded.error.text;
  EXPECT_NE(r.loaded.stats(session).graph_nodes, 0u);
  std::mt19937 random(9);
  for (size_t n : {10u, 0u, 20u}) {
    const std::vector<float> x = random_vector(random, n);
    ASSERT_EQ(r.run(session, x, 0.5, 1, 0, &y), HUSK_OK) << r.loaded.error.text;
    EXPECT_EQ(y, branches_of(x, 0.5f, 1));
  }
  EXPECT_EQ(r.loaded.stats(session).runs_as_list, 1u);
}

TEST_F(GraphTest, WithoutBoundsEveryPlanHasItsGraph) {
  const husk_session_options options = in_mode(HUSK_MODE_AUTO);
  FunctionRunner r(branches("scale", "inf"), &options);
  husk_session* session = r.loaded.session;
  ASSERT_NE(session, nullptr) << r.loaded.error.text;
  std::mt19937 random(10);
  std::vector<float> y;
  uint64_t graphs = 0;
  for (size_t n : {100u, 3000u, 40u}) {
    const std::vector<float> x = random_vector(random, n);
    if (n > 40) {
      ASSERT_EQ(r.resize(session, static_cast<int64_t>(n)), HUSK_OK) << r.loaded.error.text;
    }
    ASSERT_EQ(r.run(session, x, 0.5, 1, 0, &y), HUSK_OK) << r.loaded.error.text;
    EXPECT_EQ(y, branches_of(x, 0.5f, 1));
    graphs += n > 40;
    // A shape that was not resized runs as a list.
    EXPECT_EQ(r.loaded.stats(session).runs_as_graph, graphs) << n;
  }
}

TEST_F(GraphTest, HoldsCopiesAndFills) {
  const husk_session_options options = in_mode(HUSK_MODE_GRAPH);
  FunctionRunner r(kPieces, &options);
  husk_session* session = r.loaded.session;
  ASSERT_NE(session, nullptr) << r.loaded.error.text;
  ASSERT_EQ(r.resize(session, 300), HUSK_OK) << r.loaded.error.text;
  EXPECT_EQ(r.loaded.stats(session).graph_nodes, 5u);
  std::mt19937 random(12);
  std::vector<float> y;
  for (int run = 0; run < 20; ++run) {
    fake.fake_schedule(random(), random() % 60);
    const std::vector<float> x = random_vector(random, 1 + random() % 1000);
    const float t = static_cast<float>(run) / 4;
    ASSERT_EQ(r.run(session, x, t, run, run % 2, &y), HUSK_OK) << r.loaded.error.text;
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(y[i], x[i] - (t * 0.5f + static_cast<float>(run))) << run;
  }
  EXPECT_EQ(r.loaded.stats(session).runs_as_graph, 20u);
}

TEST_F(GraphTest, CopiesToTheCallerWithoutAnArena) {
  const husk_session_options options = in_mode(HUSK_MODE_GRAPH);
  LoadedProgram m(kOutOfState, &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  ASSERT_EQ(husk_session_resize(m.session, 0, nullptr, 0, &m.error), HUSK_OK) << m.error.text;
  void* memory = m.alloc(8);
  DeviceTensor tensor = device_vector(memory, 1);
  tensor.dl.ndim = 0;
  tensor.dl.dtype = husk_dtype_to_dlpack(HUSK_I64);
  husk_value out = tensor.value();
  for (int64_t run = 1; run <= 3; ++run) {
    ASSERT_EQ(husk_session_run(m.session, 0, m.stream, nullptr, 0, &out, 1, &m.error), HUSK_OK)
        << m.error.text;
    int64_t now = 0;
    ASSERT_EQ(m.download(&now, memory, 8), HUSK_OK);
    EXPECT_EQ(now, 41 + run);
  }
  EXPECT_EQ(m.stats(m.session).runs_as_graph, 3u);
}

TEST_F(GraphTest, AFunctionThatReadsIsAList) {
  LoadedProgram m(kRead);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  void* memory = m.alloc(4000);
  const std::vector<float> x = {1, -1, 2, 3, -4};
  ASSERT_EQ(m.upload(memory, x.data(), 20), HUSK_OK);
  DeviceTensor tensor = device_vector(memory, 5);
  husk_value in = tensor.value(), out = integer(0);
  ASSERT_EQ(husk_session_resize(m.session, 0, &in, 1, &m.error), HUSK_OK) << m.error.text;
  ASSERT_EQ(husk_session_run(m.session, 0, m.stream, &in, 1, &out, 1, &m.error), HUSK_OK)
      << m.error.text;
  EXPECT_EQ(out.as.i, 3);
  EXPECT_EQ(m.stats(m.session).graph_nodes, 0u);
}

TEST_F(GraphTest, AHostTensorIsRefused) {
  LoadedProgram m(kRead);
  float x[4] = {};
  DeviceTensor tensor = device_vector(x, 4);
  tensor.dl.device = {kDLCPU, 0};
  husk_value in = tensor.value(), out = integer(0);
  EXPECT_EQ(husk_session_run(m.session, 0, m.stream, &in, 1, &out, 1, &m.error),
            HUSK_INVALID_INPUT);
  EXPECT_NE(
      std::strstr(m.error.text, "input 'x' lies on DLPack device 1:0, the program runs on 2:0"),
      nullptr)
      << m.error.text;
}

// A graph gets an input's address in place of one that it does not know yet. An address of the host
// is not one that a copy node on the device may have.
TEST_F(GraphTest, AResizeTakesNoAddressOfTheHost) {
  const husk_session_options options = in_mode(HUSK_MODE_GRAPH);
  LoadedProgram m(kCopyInput, &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  float host[4] = {1, 2, 3, 4};
  DeviceTensor x = device_vector(host, 4), y = device_vector(m.alloc(16), 4);
  x.dl.device = {kDLCPU, 0};
  husk_value in = x.value(), out = y.value();
  ASSERT_EQ(husk_session_resize(m.session, 0, &in, 1, &m.error), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.stats(m.session).graph_nodes, 0u);
  EXPECT_EQ(husk_session_run(m.session, 0, m.stream, &in, 1, &out, 1, &m.error),
            HUSK_INVALID_INPUT);
  EXPECT_NE(std::strstr(m.error.text, "input 'x' lies on DLPack device 1:0"), nullptr)
      << m.error.text;

  void* memory = m.alloc(16);
  ASSERT_EQ(m.upload(memory, host, 16), HUSK_OK);
  DeviceTensor there = device_vector(memory, 4);
  in = there.value();
  ASSERT_EQ(husk_session_resize(m.session, 0, &in, 1, &m.error), HUSK_OK) << m.error.text;
  ASSERT_EQ(husk_session_run(m.session, 0, m.stream, &in, 1, &out, 1, &m.error), HUSK_OK)
      << m.error.text;
  EXPECT_EQ(m.stats(m.session).runs_as_graph, 1u);
  float result[4] = {};
  ASSERT_EQ(m.download(result, y.dl.data, 16), HUSK_OK);
  EXPECT_EQ(result[3], 4);
}

}  // namespace
}  // namespace husk::test
