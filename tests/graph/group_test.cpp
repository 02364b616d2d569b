// Sessions of a program for several ranks, on a fake NCCL whose work never ends once another rank
// is gone.
#include "ops/group.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>

#include "loaded_program.h"
#include "program/engine.h"

namespace husk::test {
namespace {

// y: the sum of x over two ranks.
constexpr char kSum[] = R"(hir 1
world 2 rank RANK set "5555555555555555555555555555555555555555555555555555555555555555"
target gpu cuda "sm_90a"
function sum {
  input x tensor f32 [1..1000]
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer t bytes mul(n, 4) align 256
    buffer order bytes 1
    copy (write t, read x)
    extern "husk::all_reduce" (both tensor t f32 [n] [1], "sum", [0, 1],
      both tensor t f32 [n] [1], write tensor order u8 [1] [1])
    copy (write y, read t)
    return (tensor y f32 [n] [1])
  }
}
)";

// The same between two kernels that wait for the work before them by themselves.
const std::string kBetweenKernels = std::string(R"(hir 1
world 2 rank RANK set "5555555555555555555555555555555555555555555555555555555555555555"
target gpu cuda "sm_90a"
image kernels gpu cubin ")") + std::filesystem::path(HUSK_GRAPH_KERNELS).filename().string() +
                                    R"("
kernel shift kernels "shift" (ptr, ptr, i32, i32) block 128 1 1 pdl_wait_first
function sum {
  input x tensor f32 [1..1000]
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer s bytes mul(n, 4) align 256
    buffer t bytes mul(n, 4) align 256
    buffer order bytes 1
    launch shift grid (8, 1, 1) (read x, write s, 2, n)
    extern "husk::all_reduce" (read tensor s f32 [n] [1], "sum", [0, 1],
      write tensor t f32 [n] [1], write tensor order u8 [1] [1])
    launch shift grid (8, 1, 1) (read t, write y, 0, n)
    return (tensor y f32 [n] [1])
  }
}
)";

// The same with a residual, which a third kernel computes: x / 2 + 1.
std::string with_residual(std::string text) {
  const auto replace = [&text](const char* old, const std::string& now) {
    text.replace(text.find(old), strlen(old), now);
  };
  replace("buffer t", "buffer r bytes mul(n, 4) align 256\n    buffer t");
  replace("launch", "launch shift grid (8, 1, 1) (read x, write r, 1, n)\n    launch");
  replace("order u8 [1] [1])", "order u8 [1] [1], read tensor r f32 [n] [1])");
  return text;
}

// One rank: an engine with a session.
class Rank {
 public:
  Rank(uint32_t rank, const husk_group_id& id, int32_t mode, std::string text = kSum,
       uint32_t world = 2) {
    text.replace(text.find("RANK"), 4, std::to_string(rank));
    file_ = &artifact(text);
    husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
    options.port = husk_port_cuda();
    options.rank = rank;
    options.world = world;
    options.group = &id;
    options.group_timeout_ms = 20000;
    husk_session_options session_options = HUSK_SESSION_OPTIONS_INIT;
    session_options.mode = mode;
    session_options.stage_host_tensors = 1;
    if (husk_engine_create(&options, &engine, &error) == HUSK_OK &&
        husk_engine_stream_create(engine, &stream, &error) == HUSK_OK &&
        husk_program_load(engine, file_->data(), file_->size(), nullptr, nullptr, &program,
                          &error) == HUSK_OK)
      (void)husk_session_create(program, &session_options, &session, &error);
  }
  ~Rank() {
    husk_session_release(session);
    husk_program_release(program);
    if (engine) husk_engine_stream_destroy(engine, stream);
    husk_engine_release(engine);
  }
  Rank(const Rank&) = delete;

  // The sum of 1, 2, 3 of each rank, to memory of the host, or to memory of the session's.
  husk_status run(bool to_host) {
    const DLDataType f32 = husk_dtype_to_dlpack(HUSK_F32);
    int64_t size = 3;
    float x[3] = {1, 2, 3};
    y = {};
    DLTensor in = {x, {kDLCPU, 0}, 1, f32, &size, nullptr, 0};
    DLTensor out = {y.data(), {kDLCPU, 0}, 1, f32, &size, nullptr, 0};
    husk_value input = {HUSK_VALUE_TENSOR, 0, {}}, output = {HUSK_VALUE_NONE, 0, {}};
    input.as.tensor = &in;
    if (to_host) {
      output.kind = HUSK_VALUE_TENSOR;
      output.as.tensor = &out;
    }
    if (!is_sized_ && husk_session_resize(session, 0, &input, 1, &error) != HUSK_OK)
      return error.code;
    is_sized_ = true;
    return husk_session_run(session, 0, stream, &input, 1, &output, 1, &error);
  }
  husk_status wait() { return husk_session_wait(session, &error); }
  bool error_says(const char* words) const { return std::strstr(error.text, words) != nullptr; }

  std::array<float, 3> y = {};
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  husk_session* session = nullptr;
  void* stream = nullptr;
  husk_error error = {};

 private:
  const std::vector<uint8_t>* file_ = nullptr;
  bool is_sized_ = false;
};

// Ends the other process with its failures, if this is it, and waits for it here otherwise.
void end_of(pid_t child) {
  if (child == 0) {
    fflush(nullptr);
    _exit(testing::Test::HasFailure());
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank 1 failed: " << status;
}

constexpr uint32_t kDeadline = 200;
constexpr char kLate[] = "did not end within 200 ms, and was ended: another rank is late";
constexpr char kNoMoreUse[] = "the group of ranks is of no more use";

class OneMachine : public FakeTest, public testing::WithParamInterface<int32_t> {};

class GroupTest : public FakeTest, public testing::WithParamInterface<int32_t> {
 protected:
  // Runs `body` on rank 0. Rank 1, a process, makes one run and is gone; from then on NCCL's work
  // never ends.
  void with_endless_work(const std::function<void(Rank&)>& body) {
    husk_group_id id;
    husk_error error = {};
    ASSERT_EQ(husk_group_id_create(husk_port_cuda(), &id, &error), HUSK_OK) << error.text;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    const uint32_t number = child == 0;
    {
      Rank rank(number, id, GetParam());
      EXPECT_NE(rank.session, nullptr) << rank.error.text;
      if (rank.session) {
        EXPECT_EQ(rank.run(true), HUSK_OK) << rank.error.text;
        EXPECT_EQ(rank.y, (std::array<float, 3>{2, 4, 6}));
        EXPECT_EQ(rank.wait(), HUSK_OK) << rank.error.text;
        husk_session_stats stats = HUSK_SESSION_STATS_INIT;
        EXPECT_EQ(husk_session_stats_get(rank.session, 0, &stats, &rank.error), HUSK_OK);
        EXPECT_EQ(stats.runs_as_graph, GetParam() == HUSK_MODE_GRAPH ? 1u : 0u);
      }
      if (number == 0 && !HasFailure()) {
        cuda::as_device(rank.engine->device).group->timeout_ms = kDeadline;
        setenv("FAKE_NCCL_STALL", "1", 1);
        body(rank);
      }
    }
    unsetenv("FAKE_NCCL_STALL");
    end_of(child);
    EXPECT_EQ(fake.fake_calls("ncclCommAbort"), 1u);
    EXPECT_EQ(fake.fake_calls("ncclCommDestroy"), 0u);
    EXPECT_EQ(fake.fake_live_objects(), 0u);
  }
  // All later runs and waits of the session are refused.
  void expect_no_more_use(Rank& rank) {
    for (const bool to_host : {true, false}) {
      EXPECT_EQ(rank.run(to_host), HUSK_DEVICE);
      EXPECT_TRUE(rank.error_says(kNoMoreUse)) << rank.error.text;
      EXPECT_EQ(rank.wait(), HUSK_DEVICE);
      EXPECT_TRUE(rank.error_says(kNoMoreUse)) << rank.error.text;
    }
  }
};

TEST_P(GroupTest, ASessionsWaitHasADeadline) {
  with_endless_work([&](Rank& rank) {
    ASSERT_EQ(rank.run(false), HUSK_OK) << rank.error.text;
    EXPECT_EQ(rank.wait(), HUSK_DEVICE);
    EXPECT_TRUE(rank.error_says(kLate)) << rank.error.text;
    expect_no_more_use(rank);
  });
}

TEST_P(GroupTest, ADownloadOfAnOutputHasADeadline) {
  with_endless_work([&](Rank& rank) {
    EXPECT_EQ(rank.run(true), HUSK_DEVICE);
    EXPECT_TRUE(rank.error_says(kLate)) << rank.error.text;
    expect_no_more_use(rank);
  });
}

// The next run writes the input of the first one, so it waits.
TEST_P(GroupTest, ARunAfterOneInFlightHasADeadline) {
  with_endless_work([&](Rank& rank) {
    ASSERT_EQ(rank.run(false), HUSK_OK) << rank.error.text;
    EXPECT_EQ(rank.run(false), HUSK_DEVICE);
    EXPECT_TRUE(rank.error_says(kLate)) << rank.error.text;
    expect_no_more_use(rank);
  });
}

TEST_P(GroupTest, ReleasesWithWorkInFlight) {
  with_endless_work([](Rank& rank) { ASSERT_EQ(rank.run(false), HUSK_OK) << rank.error.text; });
}

// Ranks of one machine open NCCL when a session is sized, so no capture begins with it. The kernel
// of the port sums no ints: those that the bits of 1, 2 and 3 are.
TEST_P(OneMachine, OpensNcclBeforeACapture) {
  setenv("FAKE_PEERS", "1", 1);
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  options.one_machine = 1;
  husk_port port = *husk_port_cuda();
  port.user = &options;
  husk_group_id id;
  husk_error error = {};
  ASSERT_EQ(husk_group_id_create(&port, &id, &error), HUSK_OK) << error.text;
  std::string text = kSum;
  for (size_t at; (at = text.find("tensor t f32")) != std::string::npos;)
    text.replace(at, strlen("tensor t f32"), "tensor t i32");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  {
    Rank rank(child == 0, id, GetParam(), text);
    ASSERT_NE(rank.session, nullptr) << rank.error.text;
    EXPECT_EQ(fake.fake_calls("ncclCommInitRankConfig"), 0u);
    for (uint32_t run = 0; run < 3; ++run) {
      EXPECT_EQ(rank.run(true), HUSK_OK) << rank.error.text;
      EXPECT_EQ(rank.y, (std::array<float, 3>{0x1p127f, 0, -0x1p-126f}));
    }
    EXPECT_EQ(fake.fake_calls("ncclCommInitRankConfig"), 1u);
    EXPECT_EQ(rank.wait(), HUSK_OK) << rank.error.text;
    husk_session_stats stats = HUSK_SESSION_STATS_INIT;
    EXPECT_EQ(husk_session_stats_get(rank.session, 0, &stats, &rank.error), HUSK_OK);
    EXPECT_EQ(stats.runs_as_graph, GetParam() == HUSK_MODE_GRAPH ? 3u : 0u);
  }
  unsetenv("FAKE_PEERS");
  end_of(child);
  EXPECT_EQ(fake.fake_live_objects(), 0u);
}

// x / 2 + 2 of both ranks, divided by 2, with NCCL and through the memory of the other rank.
class Between : public FakeTest, public testing::WithParamInterface<bool> {
 protected:
  void exchange_between_kernels(const std::string& text, const std::array<float, 3>& y,
                                uint64_t programmatic_edges);
  void on_four_ranks(std::string text, const std::array<float, 3>& y, uint64_t programmatic_edges,
                     uint64_t nodes);
};

TEST_P(Between, ExchangesLieBetweenKernels) {
  exchange_between_kernels(kBetweenKernels, {2.5f, 3, 3.5f}, 2);
}

TEST_P(Between, ExchangesAddAResidual) {
  exchange_between_kernels(with_residual(kBetweenKernels), {3.25f, 4, 4.75f}, 3);
}

void Between::exchange_between_kernels(const std::string& text, const std::array<float, 3>& y,
                                       uint64_t programmatic_edges) {
  setenv("FAKE_PEERS", GetParam() ? "1" : "0", 1);
  husk_group_id id;
  husk_error error = {};
  ASSERT_EQ(husk_group_id_create(husk_port_cuda(), &id, &error), HUSK_OK) << error.text;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  {
    Rank rank(child == 0, id, HUSK_MODE_GRAPH, text);
    ASSERT_NE(rank.session, nullptr) << rank.error.text;
    for (uint32_t run = 0; run < 5; ++run) {
      fake.fake_schedule(run + 1, 30);
      EXPECT_EQ(rank.run(true), HUSK_OK) << rank.error.text;
      EXPECT_EQ(rank.y, y);
    }
    EXPECT_EQ(rank.wait(), HUSK_OK) << rank.error.text;
    husk_session_stats stats = HUSK_SESSION_STATS_INIT;
    EXPECT_EQ(husk_session_stats_get(rank.session, 0, &stats, &rank.error), HUSK_OK);
    EXPECT_EQ(stats.runs_as_graph, 5u);
    EXPECT_EQ(stats.programmatic_edges, programmatic_edges);
    // The port makes a node of a kernel of its own, and a graph in the graph of NCCL's calls.
    EXPECT_EQ(fake.fake_calls("cuGraphAddChildGraphNode"), GetParam() ? 0u : 1u);
    EXPECT_EQ(fake.fake_calls("cuGraphAddNode"), GetParam() ? 2u : 0u);
  }
  unsetenv("FAKE_PEERS");
  end_of(child);
  EXPECT_EQ(fake.fake_live_objects(), 0u);
}

// Runs a text on four ranks, with the pair of the rank in place of "PAIR". `nodes` are those that
// are added with programmatic edges.
void Between::on_four_ranks(std::string text, const std::array<float, 3>& y,
                            uint64_t programmatic_edges, uint64_t nodes) {
  setenv("FAKE_PEERS", GetParam() ? "1" : "0", 1);
  husk_group_id id;
  husk_error error = {};
  ASSERT_EQ(husk_group_id_create(husk_port_cuda(), &id, &error), HUSK_OK) << error.text;
  std::vector<pid_t> children;
  uint32_t number = 0;
  for (uint32_t other = 1; other < 4 && number == 0; ++other) {
    children.push_back(fork());
    if (children.back() == 0) number = other;
  }
  {
    text.replace(text.find("world 2"), 7, "world 4");
    text.replace(text.find("PAIR"), 4, number % 2 == 0 ? "[0, 2]" : "[1, 3]");
    Rank rank(number, id, HUSK_MODE_GRAPH, text, 4);
    ASSERT_NE(rank.session, nullptr) << rank.error.text;
    for (uint32_t run = 0; run < 5; ++run) {
      fake.fake_schedule(5 * number + run + 1, 30);
      EXPECT_EQ(rank.run(true), HUSK_OK) << rank.error.text;
      EXPECT_EQ(rank.y, y);
    }
    EXPECT_EQ(rank.wait(), HUSK_OK) << rank.error.text;
    husk_session_stats stats = HUSK_SESSION_STATS_INIT;
    EXPECT_EQ(husk_session_stats_get(rank.session, 0, &stats, &rank.error), HUSK_OK);
    EXPECT_EQ(stats.runs_as_graph, 5u);
    EXPECT_EQ(stats.programmatic_edges, programmatic_edges);
    EXPECT_EQ(fake.fake_calls("cuGraphAddNode"), nodes);
  }
  unsetenv("FAKE_PEERS");
  if (number > 0) end_of(0);
  for (const pid_t child : children) end_of(child);
  EXPECT_EQ(fake.fake_live_objects(), 0u);
}

// Two pairs of four ranks, of which each computes what two ranks alone do.
TEST_P(Between, ExchangesOfSomeRanksLieBetweenKernels) {
  std::string text = kBetweenKernels;
  text.replace(text.find("[0, 1]"), 6, "PAIR");
  on_four_ranks(text, {2.5f, 3, 3.5f}, 2, GetParam() ? 2 : 0);
}

// Collectives of four ranks, of a pair, and of four ranks again, with kernels beside each. In
// another order than that of the other ranks they would never end.
//
// y = (4 (x / 2 + 2) - 2 (x / 2 + 1)) - 4 (x / 2 + 3)
constexpr char kSeveralGroups[] =
    R"(kernel join kernels "join" (ptr, ptr, ptr, i32) block 128 1 1 pdl_wait_first
function sum {
  input x tensor f32 [1..1000]
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer s bytes mul(n, 4) align 256
    buffer t bytes mul(n, 4) align 256
    buffer u bytes mul(n, 4) align 256
    buffer v bytes mul(n, 4) align 256
    buffer w bytes mul(n, 4) align 256
    buffer q bytes mul(n, 4) align 256
    buffer d bytes mul(n, 4) align 256
    buffer order bytes 1
    launch shift grid (8, 1, 1) (read x, write s, 2, n)
    extern "husk::all_reduce" (read tensor s f32 [n] [1], "sum", [0, 1, 2, 3],
      write tensor t f32 [n] [1], write tensor order u8 [1] [1])
    launch shift grid (8, 1, 1) (read x, write u, 1, n)
    extern "husk::all_reduce" (read tensor u f32 [n] [1], "sum", PAIR,
      write tensor v f32 [n] [1], write tensor order u8 [1] [1])
    launch shift grid (8, 1, 1) (read x, write w, 3, n)
    extern "husk::all_reduce" (read tensor w f32 [n] [1], "sum", [0, 1, 2, 3],
      write tensor q f32 [n] [1], write tensor order u8 [1] [1])
    launch join grid (8, 1, 1) (read t, read v, write d, n)
    launch join grid (8, 1, 1) (read d, read q, write y, n)
    return (tensor y f32 [n] [1])
  }
}
)";

// The edges: each collective waits for a kernel and for the collective before it, two kernels join
// the results.
TEST_P(Between, CollectivesOfSeveralGroupsKeepOneOrder) {
  std::string text = kBetweenKernels;
  text.replace(text.find("function sum"), std::string::npos, kSeveralGroups);
  on_four_ranks(text, {-7, -8, -9}, 8, GetParam() ? 5 : 1);
}

INSTANTIATE_TEST_SUITE_P(, Between, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "Memory" : "NCCL"; });

std::string mode_name(const testing::TestParamInfo<int32_t>& tested) {
  return tested.param == HUSK_MODE_LIST ? "List" : "Graph";
}
INSTANTIATE_TEST_SUITE_P(, GroupTest, testing::Values(HUSK_MODE_LIST, HUSK_MODE_GRAPH), mode_name);
INSTANTIATE_TEST_SUITE_P(, OneMachine, testing::Values(HUSK_MODE_LIST, HUSK_MODE_GRAPH), mode_name);

}  // namespace
}  // namespace husk::test
