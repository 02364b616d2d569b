// Calls of the port that fail at moments which PortFault does not reach: waits before memory moves,
// launches and patches of graphs, and the copy back to a misaligned input.
#include <cstring>
#include <utility>

#include "fixture.h"
#include "graph_port.h"

namespace husk::test {
namespace {

// The functions that fail. The process has one port, whose functions have no argument for them.
struct Failing {
  bool wait = false;  // the next one
  bool launch = false, patch = false;
  int copies_left = -1;  // the copy that fails after so many others; -1: none
} failing;

husk_status refuse(husk_error* error) {
  error->code = HUSK_DEVICE;
  std::strcpy(error->text, "the device said no");
  return HUSK_DEVICE;
}

const husk_port* answering_port() {
  static const husk_port_graphs graphs = [] {
    husk_port_graphs g = *graph_port()->graphs;
    g.exec_launch = [](void* device, void* exec, void* stream, husk_error* error) {
      return failing.launch ? refuse(error)
                            : graph_port()->graphs->exec_launch(device, exec, stream, error);
    };
    g.exec_set_fill = [](void* device, void* exec, uint32_t node, void* to, uint64_t pattern,
                         uint32_t width, uint64_t count, husk_error* error) {
      return failing.patch ? refuse(error)
                           : graph_port()->graphs->exec_set_fill(device, exec, node, to, pattern,
                                                                 width, count, error);
    };
    return g;
  }();
  static const husk_port port = [] {
    husk_port p = *graph_port();
    p.graphs = &graphs;
    p.stream_wait = [](void* device, void* stream, husk_error* error) {
      return std::exchange(failing.wait, false)
                 ? refuse(error)
                 : husk_port_host()->stream_wait(device, stream, error);
    };
    p.copy = [](void* device, void* stream, void* to, const void* from, uint64_t size,
                husk_error* error) {
      return failing.copies_left >= 0 && failing.copies_left-- == 0
                 ? refuse(error)
                 : husk_port_host()->copy(device, stream, to, from, size, error);
    };
    return p;
  }();
  return &port;
}

class PortAnswers : public testing::Test {
 protected:
  void SetUp() override {
    failing = {};
    options.port = answering_port();
  }
  void TearDown() override { failing = {}; }
  static void expect_refused(husk_status status, const husk_error& error) {
    EXPECT_EQ(status, HUSK_DEVICE);
    EXPECT_EQ(error.code, HUSK_DEVICE);
    EXPECT_NE(std::strstr(error.text, "the device said no"), nullptr) << error.text;
  }
  husk_engine_options options = Machine::defaults();
};

// y = x, with a fill of `v` before it, in n elements.
const char* const kFillAndCopy = R"(
state sum f32 [4] fill 0
function f {
  input x tensor f32 [1..inf]
  input v float
  output y tensor f32 rank 1
  output z tensor f32 rank 1
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer z of output bytes mul(n, 4)
    buffer t bytes mul(n, 4) align 64
    copy (write t, read x)
    fill f32 (write z, v)
    copy (write y, read t)
    return (tensor y f32 [n] [1], tensor z f32 [n] [1])
  }
}
)";

TEST_F(PortAnswers, AWaitBeforeMemoryMoves) {
  husk_session_options session_options = HUSK_SESSION_OPTIONS_INIT;
  session_options.mode = HUSK_MODE_LIST;
  Machine m(kFillAndCopy, options, &session_options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  husk_session* other = nullptr;
  ASSERT_EQ(husk_session_create(m.program, &session_options, &other, &m.error), HUSK_OK);
  Tensor x(HUSK_F32, {4}), more(HUSK_F32, {400});
  // A call that waits for the last run. It fails once, and succeeds afterwards.
  const auto expect = [&](const char* what, const auto& call) {
    SCOPED_TRACE(what);
    ASSERT_EQ(m.resize({x.value(), floating(1)}), HUSK_OK) << m.error.text;
    ASSERT_EQ(m.run({x.value(), floating(1)}, {none(), none()}), HUSK_OK) << m.error.text;
    failing.wait = true;
    expect_refused(call(), m.error);
    EXPECT_EQ(call(), HUSK_OK) << m.error.text;
  };
  expect("wait", [&] { return husk_session_wait(m.session, &m.error); });
  expect("a larger arena", [&] { return m.resize({more.value(), floating(1)}); });
  expect("range", [&] { return husk_session_set_range(m.session, 0, 0, 0, 1, 1000, &m.error); });
  expect("the other session of a copy",
         [&] { return husk_session_state_copy(other, 0, m.session, &m.error); });
  expect("the session of a copy",
         [&] { return husk_session_state_copy(m.session, 0, other, &m.error); });
  husk_session_release(other);
}

TEST_F(PortAnswers, AWaitBeforeTheArenaIsReplaced) {
  husk_session_options session_options = HUSK_SESSION_OPTIONS_INIT;
  session_options.external_arena = 1;
  Machine m(kFillAndCopy, options, &session_options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  alignas(256) static uint8_t arena[2][4096];
  Tensor x(HUSK_F32, {4});
  ASSERT_EQ(husk_session_set_arena(m.session, arena[0], sizeof arena[0], &m.error), HUSK_OK);
  ASSERT_EQ(m.run({x.value(), floating(1)}, {none(), none()}), HUSK_OK) << m.error.text;
  failing.wait = true;
  expect_refused(husk_session_set_arena(m.session, arena[1], sizeof arena[1], &m.error), m.error);
  EXPECT_EQ(husk_session_set_arena(m.session, arena[1], sizeof arena[1], &m.error), HUSK_OK);
}

TEST_F(PortAnswers, AWaitBeforeAGraphIsReplaced) {
  Machine m(kFillAndCopy, options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {40}), less(HUSK_F32, {4});
  ASSERT_EQ(m.resize({x.value(), floating(1)}), HUSK_OK) << m.error.text;
  ASSERT_EQ(m.run({x.value(), floating(1)}, {none(), none()}), HUSK_OK) << m.error.text;
  failing.wait = true;  // the arena is large enough, but the plan has another graph
  expect_refused(m.resize({less.value(), floating(1)}), m.error);
  EXPECT_EQ(m.resize({less.value(), floating(1)}), HUSK_OK) << m.error.text;
}

TEST_F(PortAnswers, ALaunchOfAGraphThatFails) {
  Machine m(kFillAndCopy, options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {4}), y(HUSK_F32, {4}), z(HUSK_F32, {4});
  ASSERT_EQ(m.resize({x.value(), floating(1)}), HUSK_OK) << m.error.text;
  failing.launch = true;
  expect_refused(m.run({x.value(), floating(1)}, {y.value(), z.value()}), m.error);
  failing.launch = false;
  EXPECT_EQ(m.run({x.value(), floating(2)}, {y.value(), z.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(z.as<float>()[3], 2.0f);
}

TEST_F(PortAnswers, AFillThatAGraphCannotChange) {
  Machine m(kFillAndCopy, options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  Tensor x(HUSK_F32, {4}), y(HUSK_F32, {4}), z(HUSK_F32, {4});
  ASSERT_EQ(m.resize({x.value(), floating(1)}), HUSK_OK) << m.error.text;
  ASSERT_EQ(m.run({x.value(), floating(1)}, {y.value(), z.value()}), HUSK_OK) << m.error.text;
  failing.patch = true;
  ASSERT_EQ(m.run({x.value(), floating(2)}, {y.value(), z.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(z.as<float>()[3], 2.0f);
  husk_session_stats stats = HUSK_SESSION_STATS_INIT;
  ASSERT_EQ(husk_session_stats_get(m.session, 0, &stats, nullptr), HUSK_OK);
  EXPECT_EQ(stats.runs_as_graph, 1u);
  EXPECT_EQ(stats.runs_as_list, 1u);
}

// A resize knows no memory of the caller's, so a node between two tensors of the caller's gets the
// address of the arena, if that is large enough.
TEST_F(PortAnswers, ACopyThatIsLargerThanTheArena) {
  for (const int64_t n : {16, 17}) {
    Machine m(R"(
function f {
  input x tensor f32 [1..inf]
  output y tensor f32 rank 1
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer t bytes 64 align 64
    fill f32 (write t, 1.0)
    copy (write y, read x)
    return (tensor y f32 [n] [1])
  }
}
)",
              options);
    ASSERT_NE(m.session, nullptr) << m.error.text;
    Tensor x(HUSK_F32, {n}), y(HUSK_F32, {n});
    void* const data = x.dl.data;
    x.dl.data = nullptr;
    ASSERT_EQ(m.resize({x.value()}), HUSK_OK) << m.error.text;
    x.dl.data = data;
    husk_session_stats stats = HUSK_SESSION_STATS_INIT;
    ASSERT_EQ(husk_session_stats_get(m.session, 0, &stats, nullptr), HUSK_OK);
    EXPECT_EQ(stats.arena_bytes, 64u);
    EXPECT_EQ(stats.graph_nodes, n == 16 ? 2u : 0u);
    x.as<float>()[n - 1] = 5;
    ASSERT_EQ(m.run({x.value()}, {y.value()}), HUSK_OK) << m.error.text;
    EXPECT_EQ(y.as<float>()[n - 1], 5.0f);
  }
}

TEST_F(PortAnswers, ACopyBackToAMisalignedInput) {
  husk_session_options session_options = HUSK_SESSION_OPTIONS_INIT;
  session_options.copy_misaligned = 1;
  Machine m(R"(
function f {
  input x tensor f32 [4]
  variant cpu {
    buffer x of input bytes 16 align 64
    fill f32 (write x, 3.0)
    return ()
  }
}
)",
            options, &session_options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  alignas(64) float memory[8] = {};
  Tensor x(HUSK_F32, {4}, memory + 1);
  failing.copies_left = 1;  // the first copy is to the aligned memory
  expect_refused(m.run({x.value()}, {}), m.error);
  EXPECT_EQ(memory[1], 0.0f);
  EXPECT_EQ(m.run({x.value()}, {}), HUSK_OK) << m.error.text;
  EXPECT_EQ(memory[4], 3.0f);
}

// A device of the port that is not the host has an index, which tensors must name.
TEST_F(PortAnswers, ATensorOnAnotherDeviceOfThePort) {
  husk_port port = *husk_port_host();
  port.properties = [](void* device, husk_port_properties* out) {
    husk_port_host()->properties(device, out);
    out->dl_device_type = kDLCUDA;
    out->device_index = 1;
  };
  options.port = &port;
  Machine m(kFillAndCopy, options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  for (const int index : {1, 0}) {
    Tensor x(HUSK_F32, {4});
    x.dl.device = {kDLCUDA, index};
    ASSERT_EQ(m.resize({x.value(), floating(1)}), HUSK_OK) << m.error.text;
    EXPECT_EQ(m.run({x.value(), floating(1)}, {none(), none()}),
              index == 1 ? HUSK_OK : HUSK_INVALID_INPUT)
        << m.error.text;
  }
  EXPECT_NE(std::strstr(m.error.text, "lies on DLPack device 2:0, the program runs on 2:1"),
            nullptr)
      << m.error.text;
}

// A port of a device whose memory the host can read. Counts what goes to the device and back.
struct Transfers {
  int uploads = 0, downloads = 0;
} transfers;

const husk_port* staging_port() {
  static const husk_port port = [] {
    husk_port p = *answering_port();
    p.properties = [](void* device, husk_port_properties* out) {
      husk_port_host()->properties(device, out);
      out->dl_device_type = kDLCUDA;
    };
    p.upload = [](void* device, void* stream, void* to, const void* from, uint64_t size,
                  husk_error* error) {
      ++transfers.uploads;
      return answering_port()->copy(device, stream, to, from, size, error);
    };
    p.download = [](void* device, void* stream, void* to, const void* from, uint64_t size,
                    husk_error* error) {
      ++transfers.downloads;
      return answering_port()->copy(device, stream, to, from, size, error);
    };
    return p;
  }();
  return &port;
}

TEST_F(PortAnswers, HostTensorsAreUploadedAndDownloaded) {
  options.port = staging_port();
  for (const int32_t mode : {HUSK_MODE_LIST, HUSK_MODE_GRAPH}) {
    transfers = {};
    husk_session_options session_options = HUSK_SESSION_OPTIONS_INIT;
    session_options.mode = mode;
    session_options.stage_host_tensors = 1;
    Machine m(kFillAndCopy, options, &session_options);
    ASSERT_NE(m.session, nullptr) << m.error.text;
    alignas(64) float memory[8] = {0, 1, 2, 3, 4};
    Tensor x(HUSK_F32, {4}, memory + 1), y(HUSK_F32, {4}), z(HUSK_F32, {4});
    z.dl.device = {kDLCUDA, 0};
    ASSERT_EQ(m.resize({x.value(), floating(5)}), HUSK_OK) << m.error.text;
    ASSERT_EQ(m.run({x.value(), floating(5)}, {y.value(), z.value()}), HUSK_OK) << m.error.text;
    EXPECT_EQ(transfers.uploads, 1);
    EXPECT_EQ(transfers.downloads, 1);
    EXPECT_EQ(y.as<float>()[3], 4.0f);
    EXPECT_EQ(z.as<float>()[3], 5.0f);
    husk_session_stats stats = HUSK_SESSION_STATS_INIT;
    ASSERT_EQ(husk_session_stats_get(m.session, 0, &stats, nullptr), HUSK_OK);
    EXPECT_EQ(mode == HUSK_MODE_LIST ? stats.runs_as_list : stats.runs_as_graph, 1u);

    // The copies of a list: the upload, two steps, the download. The wait before the download.
    if (mode != HUSK_MODE_LIST) continue;
    for (const int copy : {0, 1, 3}) {
      failing.copies_left = copy;
      expect_refused(m.run({x.value(), floating(5)}, {y.value(), z.value()}), m.error);
    }
    failing.wait = true;
    expect_refused(m.run({x.value(), floating(5)}, {y.value(), z.value()}), m.error);
    ASSERT_EQ(m.run({x.value(), floating(6)}, {y.value(), z.value()}), HUSK_OK) << m.error.text;
    EXPECT_EQ(z.as<float>()[3], 6.0f);
  }
}

// Memory of the caller that a run copies must not overlap memory that it writes, as any other.
TEST_F(PortAnswers, ACopiedInputThatOverlapsAWrittenOne) {
  husk_session_options session_options = HUSK_SESSION_OPTIONS_INIT;
  session_options.copy_misaligned = 1;
  Machine m(R"(
function f {
  input x tensor f32 [4]
  input w tensor f32 [4]
  variant cpu {
    buffer x of input bytes 16 align 64
    buffer w of input bytes 16
    copy (write x, read w)
    return ()
  }
}
)",
            options, &session_options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  alignas(64) float memory[12] = {};
  Tensor x(HUSK_F32, {4}, memory + 1), near(HUSK_F32, {4}, memory + 4),
      apart(HUSK_F32, {4}, memory + 5);
  EXPECT_EQ(m.run({x.value(), near.value()}, {}), HUSK_INVALID_INPUT);
  EXPECT_STREQ(m.error.text,
               "function 'f': input 'x' overlaps input 'w': give it memory of its own");
  EXPECT_EQ(m.run({x.value(), apart.value()}, {}), HUSK_OK) << m.error.text;
}

// Memory that grows during a run waits for the steps before. The steps after that are waited for
// too.
TEST_F(PortAnswers, AWaitAfterMemoryGrewDuringTheRun) {
  Machine m(R"(
function f {
  input flag tensor i64 []
  output y tensor f32 rank 1
  variant cpu {
    buffer flag of input bytes 8
    read i64 (read flag)
    let n = range(result(0), 0, 100)
    buffer y of output bytes mul(n, 4)
    fill f32 (write y, 1.0)
    return (tensor y f32 [n] [1])
  }
}
)",
            options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  for (int64_t n : {10, 50}) {
    Tensor flag(HUSK_I64, {}, &n);
    ASSERT_EQ(m.run({flag.value()}, {none()}), HUSK_OK) << m.error.text;
    failing.wait = true;
    expect_refused(husk_session_wait(m.session, &m.error), m.error);
    EXPECT_EQ(husk_session_wait(m.session, &m.error), HUSK_OK) << m.error.text;
  }
}

}  // namespace
}  // namespace husk::test
