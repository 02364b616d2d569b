// Calls of ops in graphs, runs on a stream that the application captures, and graphs of segments.
#include <cstring>
#include <random>

#include "../values.h"
#include "loaded_program.h"
#include "programs.h"

namespace husk::test {
namespace {

// y = 2 x for vectors with strides.
struct Vectors {
  const float* x;
  float* y;
  int64_t n, x_stride, y_stride;
};

void double_vector(const void* data) {
  Vectors v;
  std::memcpy(&v, data, sizeof v);
  for (int64_t i = 0; i < v.n; ++i) v.y[i * v.y_stride] = 2 * v.x[i * v.x_stride];
}

// The op "test::double", and what it does wrong.
struct DoubleOp {
  enum Fault { kNone, kFails, kWaits, kAllocates };
  const Fake* fake;
  Fault fault = kNone;
  int calls = 0;

  husk_op op(uint32_t flags, const char* contract = "x out:w") {
    return {sizeof(husk_op), 0,       "test::double",    call,  this, nullptr,
            contract,        nullptr, HUSK_OP_ON_DEVICE, flags, 0,    0};
  }

 private:
  static husk_status call(const husk_op_context* context, const husk_op_arg* args, uint32_t,
                          husk_error* error) {
    auto* self = static_cast<DoubleOp*>(context->user);
    ++self->calls;
    const husk_op_arg &x = args[0], &y = args[1];
    const Vectors v = {static_cast<const float*>(x.data), static_cast<float*>(y.data), x.sizes[0],
                       x.strides[0], y.strides[0]};
    const auto bytes = [&](int64_t stride) {
      return static_cast<uint64_t>((v.n - 1) * stride + 1) * sizeof(float);
    };
    const fake_range ranges[] = {{v.x, bytes(v.x_stride)}, {v.y, bytes(v.y_stride)}};
    const int32_t code = self->fake->fake_queue("double", context->stream, double_vector, &v,
                                                sizeof v, ranges, 2);
    const husk_port* port = husk_port_cuda();
    if (code || (self->fault == kFails && self->calls == 1)) {
      *error = {HUSK_DEVICE, code, -1, "the op refuses"};
      return HUSK_DEVICE;
    }
    if (self->fault == kWaits) return port->stream_wait(context->device, context->stream, error);
    if (self->fault == kAllocates) {
      void* memory = nullptr;
      const husk_status status = port->alloc(context->device, 64, &memory, error);
      port->free(context->device, memory);
      return status;
    }
    return HUSK_OK;
  }
};

// y = 2 ((2 x) / 2 + 1): two calls, one reads and one writes memory of the caller.
constexpr char kDoubled[] = R"(
function doubled {
  input x tensor f32 [1..2000000]
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer a bytes mul(n, 4) align 64
    buffer b bytes mul(n, 4) align 64
    extern "test::double" (read tensor x f32 [n] [1], write tensor a f32 [n] [1])
    launch shift grid (cdiv(n, 128), 1, 1) (read a, write b, 1, n)
    extern "test::double" (read tensor b f32 [n] [1], write tensor y f32 [n] [1])
    return (tensor y f32 [n] [1])
  }
}
)";

std::vector<float> fractions(size_t n, int seed = 0) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i)
    x[i] = static_cast<float>((i * 7 + static_cast<size_t>(seed)) % 23) / 4 - 2;
  return x;
}

std::vector<float> doubled_of(std::vector<float> x) {
  for (float& value : x) value = 2 * (value + 1);
  return x;
}

class CaptureTest : public FakeTest {
 protected:
  husk_status resize(LoadedProgram& m, int64_t n) {
    DeviceTensor x = device_vector(nullptr, n);
    const husk_value input = x.value();
    return husk_session_resize(m.session, 0, &input, 1, &m.error);
  }
  // Runs with x and y in memory of their own.
  husk_status run(LoadedProgram& m, const std::vector<float>& x, std::vector<float>* y) {
    const auto n = static_cast<int64_t>(x.size());
    void *in = m.alloc(x.size() * 4), *out = m.alloc(x.size() * 4);
    EXPECT_EQ(m.upload(in, x.data(), x.size() * 4), HUSK_OK);
    DeviceTensor from = device_vector(in, n), to = device_vector(out, n);
    const husk_value input = from.value();
    husk_value output = to.value();
    const husk_status status = husk_session_run(m.session, 0, m.stream, &input, 1, &output, 1,
                                                &m.error);
    y->assign(x.size(), 0);
    EXPECT_EQ(m.download(y->data(), out, x.size() * 4), HUSK_OK);
    return status;
  }
  void expect_doubled(LoadedProgram& m, size_t n, int seed = 0) {
    std::vector<float> y;
    ASSERT_EQ(run(m, fractions(n, seed), &y), HUSK_OK) << m.error.text;
    EXPECT_EQ(y, doubled_of(fractions(n, seed)));
  }
  // A resize makes no graph and says why; the run is a list.
  void expect_list(LoadedProgram& m, size_t n, const char* why) {
    ASSERT_NE(m.session, nullptr) << m.error.text;
    m.log.clear();
    ASSERT_EQ(resize(m, static_cast<int64_t>(n)), HUSK_OK) << m.error.text;
    EXPECT_EQ(m.stats(m.session).graph_nodes, 0u);
    EXPECT_NE(m.log.find(why), std::string::npos) << m.log;
    EXPECT_NE(m.log.find("no graph, it runs as a launch list"), std::string::npos) << m.log;
    const uint64_t graphs = m.stats(m.session).runs_as_graph;
    expect_doubled(m, n);
    EXPECT_EQ(m.stats(m.session).runs_as_graph, graphs);
  }

  DoubleOp op_{&fake};
};

TEST_F(CaptureTest, ACallOfALibraryIsANode) {
  LoadedProgram m(kProjections);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  ASSERT_EQ(resize(m, 200), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.stats(m.session).graph_nodes, 4u);  // two launches and two products
  EXPECT_EQ(m.stats(m.session).graph_edges, 3u);
  const uint64_t products = fake.fake_calls("cublasLtMatmul");
  std::vector<float> y;
  for (int round = 0; round < 20; ++round) {
    fake.fake_schedule(static_cast<uint64_t>(round), static_cast<uint32_t>(round % 3 * 30));
    ASSERT_EQ(run(m, fractions(200, round), &y), HUSK_OK) << m.error.text;
    ASSERT_EQ(y, projections_of(fractions(200, round)));
  }
  EXPECT_EQ(fake.fake_calls("cublasLtMatmul"), products);
  EXPECT_EQ(m.stats(m.session).runs_as_graph, 20u);
  EXPECT_EQ(m.stats(m.session).nodes_patched, 2u * 20);  // the launches with x and y
}

TEST_F(CaptureTest, ACapturedCallIsForOneShape) {
  LoadedProgram m(kProjections);
  ASSERT_EQ(resize(m, 200), HUSK_OK) << m.error.text;
  std::vector<float> y;
  uint64_t graphs = 0;
  for (const size_t n : {200u, 48u, 200u, 48u}) {
    ASSERT_EQ(run(m, fractions(n), &y), HUSK_OK) << m.error.text;
    EXPECT_EQ(y, projections_of(fractions(n)));
    graphs += n == 200;
    EXPECT_EQ(m.stats(m.session).runs_as_graph, graphs);
  }
  ASSERT_EQ(resize(m, 48), HUSK_OK) << m.error.text;
  ASSERT_EQ(run(m, fractions(48), &y), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.stats(m.session).runs_as_graph, graphs + 1);
  // A resize for the same shape keeps the graph.
  const uint64_t captures = fake.fake_calls("cuStreamBeginCapture");
  ASSERT_EQ(resize(m, 48), HUSK_OK) << m.error.text;
  EXPECT_EQ(fake.fake_calls("cuStreamBeginCapture"), captures);
}

TEST_F(CaptureTest, OperandsOfTheCallerAreCopied) {
  LoadedProgram m(kDoubled, nullptr, nullptr, {op_.op(HUSK_OP_CAPTURABLE)});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  ASSERT_EQ(resize(m, 1000), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.stats(m.session).graph_nodes, 5u);  // the copy of x, and the one to y
  EXPECT_EQ(m.stats(m.session).graph_edges, 4u);
  EXPECT_GE(m.stats(m.session).dynamic_bytes, 8000u);
  EXPECT_EQ(op_.calls, 2);
  for (int round = 0; round < 20; ++round) {
    fake.fake_schedule(static_cast<uint64_t>(round), static_cast<uint32_t>(round % 3 * 30));
    expect_doubled(m, 1000, round);
  }
  EXPECT_EQ(op_.calls, 2);
  EXPECT_EQ(m.stats(m.session).runs_as_graph, 20u);
  EXPECT_EQ(m.stats(m.session).nodes_patched, 2u * 20);
}

// A call that writes a part of an output keeps the rest.
TEST_F(CaptureTest, WhatACallDoesNotWriteStays) {
  LoadedProgram m(R"(
function interleaved {
  input x tensor f32 [1..1000]
  output y tensor f32 rank 2
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 8)
    buffer a bytes mul(n, 8) align 64
    fill f32 (write y, 7.0)
    launch shift grid (cdiv(n, 128), 1, 1) (read x, write a, 1, n)
    extern "test::double" (read tensor a f32 [n] [1], write tensor y f32 [n] [2])
    return (tensor y f32 [n, 2] [2, 1])
  }
}
)",
                  nullptr, nullptr, {op_.op(HUSK_OP_CAPTURABLE)});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  void *in = m.alloc(400), *out = m.alloc(800);
  const std::vector<float> x = fractions(100);
  ASSERT_EQ(m.upload(in, x.data(), 400), HUSK_OK);
  DeviceTensor from = device_vector(in, 100), to = device_vector(out, 200);
  int64_t sizes[] = {100, 2};
  husk_value input = from.value(), output = to.value();
  to.dl.ndim = 2;
  to.dl.shape = sizes;
  ASSERT_EQ(husk_session_resize(m.session, 0, &input, 1, &m.error), HUSK_OK) << m.error.text;
  for (int round = 0; round < 10; ++round) {
    fake.fake_schedule(static_cast<uint64_t>(round), 0);
    ASSERT_EQ(husk_session_run(m.session, 0, m.stream, &input, 1, &output, 1, &m.error), HUSK_OK)
        << m.error.text;
    std::vector<float> y(200);
    ASSERT_EQ(m.download(y.data(), out, 800), HUSK_OK);
    for (size_t i = 0; i < 100; ++i) {
      EXPECT_EQ(y[2 * i], x[i] + 2);
      EXPECT_EQ(y[2 * i + 1], 7);
    }
  }
  EXPECT_EQ(m.stats(m.session).runs_as_graph, 10u);
}

TEST_F(CaptureTest, MemoryThatMovesEndsTheGraph) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.external_arena = 1;
  LoadedProgram m(kProjections, &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  const uint64_t bytes = husk_session_arena_bytes(m.session);
  std::vector<float> y;
  uint64_t graphs = 0;
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(husk_session_set_arena(m.session, m.alloc(bytes), bytes, &m.error), HUSK_OK);
    ASSERT_EQ(run(m, fractions(200, round), &y), HUSK_OK) << m.error.text;
    EXPECT_EQ(y, projections_of(fractions(200, round)));
    EXPECT_EQ(m.stats(m.session).runs_as_graph, graphs);  // the arena is not that of the graph
    ASSERT_EQ(resize(m, 200), HUSK_OK) << m.error.text;
    ASSERT_EQ(run(m, fractions(200, round), &y), HUSK_OK) << m.error.text;
    EXPECT_EQ(y, projections_of(fractions(200, round)));
    EXPECT_EQ(m.stats(m.session).runs_as_graph, ++graphs);
  }
}

// Programs of one engine share constants, so an update moves those of one program.
TEST_F(CaptureTest, ConstantsThatMoveEndTheGraph) {
  LoadedProgram m(kProjections);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  const std::vector<uint8_t>& file = artifact(kProjections);
  void* bytes = std::aligned_alloc(4096, (file.size() + 4095) / 4096 * 4096);
  std::memcpy(bytes, file.data(), file.size());
  husk_program* other = nullptr;
  ASSERT_EQ(husk_program_load(m.engine, bytes, file.size(), nullptr, nullptr, &other, &m.error),
            HUSK_OK);
  ASSERT_EQ(resize(m, 200), HUSK_OK) << m.error.text;
  std::vector<float> y, w(&kW[0][0], &kW[0][0] + 16), x = fractions(200);
  ASSERT_EQ(run(m, x, &y), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.stats(m.session).runs_as_graph, 1u);
  for (float& value : w) value *= 2;
  const husk_constant_update update = {0, 0, w.data()};
  ASSERT_EQ(husk_program_update_constants(m.program, &update, 1, &m.error), HUSK_OK);
  const std::vector<float> before = y;
  std::vector<float> want = x;  // with w doubled
  for (float& value : want) value = value * 2 + 0.25f;
  want = multiply_rows(want, nullptr);
  for (size_t i = 0; i < want.size(); ++i) want[i] = 2 * want[i] + kB[i % 4];
  want = multiply_rows(want, nullptr);
  for (size_t i = 0; i < want.size(); ++i) want[i] = 2 * want[i] - x[i];
  ASSERT_EQ(run(m, x, &y), HUSK_OK) << m.error.text;
  EXPECT_EQ(y, want);
  EXPECT_EQ(m.stats(m.session).runs_as_graph, 1u);
  ASSERT_EQ(resize(m, 200), HUSK_OK) << m.error.text;
  ASSERT_EQ(run(m, x, &y), HUSK_OK) << m.error.text;
  EXPECT_EQ(y, want);
  EXPECT_EQ(m.stats(m.session).runs_as_graph, 2u);
  husk_program_release(other);
  std::free(bytes);
}

TEST_F(CaptureTest, AnOpThatDoesNotOptInMakesAList) {
  LoadedProgram m(kDoubled, nullptr, nullptr, {op_.op(0)});
  expect_list(m, 100, "not HUSK_OP_CAPTURABLE");
  EXPECT_EQ(fake.fake_calls("cuStreamBeginCapture"), 0u);
}

// An op that is older than the flags.
TEST_F(CaptureTest, AnOlderOpMakesAList) {
  husk_op op = op_.op(HUSK_OP_CAPTURABLE);
  op.struct_size = offsetof(husk_op, flags);
  LoadedProgram m(kDoubled, nullptr, nullptr, {op});
  expect_list(m, 100, "not HUSK_OP_CAPTURABLE");
}

TEST_F(CaptureTest, APortWithoutCapturesMakesAList) {
  husk_port_graphs graphs = *husk_port_cuda()->graphs;
  husk_port port = *husk_port_cuda();
  port.graphs = &graphs;
  for (const bool older : {true, false}) {
    if (older) {
      graphs.struct_size = offsetof(husk_port_graphs, capture_begin);
      port.struct_size = offsetof(husk_port, stream_capturing);
    } else {
      graphs = *husk_port_cuda()->graphs;
      graphs.capture_begin = nullptr;
      port = *husk_port_cuda();
      port.graphs = &graphs;
      port.stream_capturing = nullptr;
    }
    LoadedProgram m(kDoubled, nullptr, nullptr, {op_.op(HUSK_OP_CAPTURABLE)}, &port);
    expect_list(m, 100, "the port cannot capture");
  }
}

TEST_F(CaptureTest, ACallThatCannotBeCapturedMakesAList) {
  for (const auto& [fault, why] : {std::pair{DoubleOp::kFails, "the op refuses"},
                                   std::pair{DoubleOp::kWaits, "cuStreamSynchronize"},
                                   std::pair{DoubleOp::kAllocates, "cuMemAlloc"}}) {
    op_ = {&fake, fault};
    LoadedProgram m(kDoubled, nullptr, nullptr, {op_.op(HUSK_OP_CAPTURABLE)});
    expect_list(m, 100, why);
    EXPECT_NE(m.log.find("cannot be captured"), std::string::npos) << m.log;
    op_.fault = DoubleOp::kNone;  // the next resize tries again
    ASSERT_EQ(resize(m, 100), HUSK_OK) << m.error.text;
    EXPECT_EQ(m.stats(m.session).graph_nodes, 5u);
    expect_doubled(m, 100);
  }
}

TEST_F(CaptureTest, ADriverThatRefusesACaptureMakesAList) {
  for (const char* call : {"cuStreamBeginCapture", "cuStreamEndCapture"})
    for (const uint64_t n : {1u, 2u}) {
      LoadedProgram m(kDoubled, nullptr, nullptr, {op_.op(HUSK_OP_CAPTURABLE)});
      ASSERT_NE(m.session, nullptr) << m.error.text;
      fake.fake_fail_call(call, n, 900);
      expect_list(m, 100, call);
      fake.fake_fail_at(0, 0);
    }
}

TEST_F(CaptureTest, LargeOperandsOfTheCallerMakeAList) {
  LoadedProgram m(kDoubled, nullptr, nullptr, {op_.op(HUSK_OP_CAPTURABLE)});
  expect_list(m, (4u << 20) / 4 + 1, "more than 4 MiB");
  ASSERT_EQ(resize(m, 100), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.stats(m.session).graph_nodes, 5u);
}

TEST_F(CaptureTest, ACallIsNotCopiedBeyondTheMemoryLimit) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  LoadedProgram m(kDoubled, &options, nullptr, {op_.op(HUSK_OP_CAPTURABLE)});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  options.memory_limit = husk_session_arena_bytes(m.session) + 1000;
  m.session = m.open_session(&options);
  expect_list(m, 1000, "memory_limit");
}

TEST_F(CaptureTest, AnOperandInPlaceMakesAList) {
  LoadedProgram m(R"(
function in_place {
  input x tensor f32 [1..1000]
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    launch shift grid (cdiv(n, 128), 1, 1) (read x, write y, 0, n)
    launch scale grid (cdiv(n, 128), 1, 1) (read x, write y, 1.0, n)
    launch join grid (cdiv(n, 128), 1, 1) (read x, read x, write y, n)
    launch shift grid (cdiv(n, 128), 1, 1) (read y, write y, 1, n)
    launch join grid (cdiv(n, 128), 1, 1) (read x, read y, write y, n)
    launch join grid (cdiv(n, 128), 1, 1) (read x, read y, write y, n)
    extern "test::double" (read tensor y f32 [n] [1], write tensor y f32 [n] [1])
    return (tensor y f32 [n] [1])
  }
}
)",
                  nullptr, nullptr, {op_.op(HUSK_OP_CAPTURABLE, "x out:w=x")});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  ASSERT_EQ(resize(m, 100), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.stats(m.session).graph_nodes, 0u);
  EXPECT_NE(m.log.find("takes it as another operand too"), std::string::npos) << m.log;
  std::vector<float> y;
  ASSERT_EQ(run(m, fractions(100), &y), HUSK_OK) << m.error.text;
  EXPECT_EQ(y, std::vector<float>(100, 2));  // 2 (x - (x - 1))
}

// The stream of an application that captures it.
class StreamCapture {
 public:
  explicit StreamCapture(LoadedProgram& m) : m_(m) {
    EXPECT_EQ(graphs_.capture_begin(m.device(), m.stream, &m.error), HUSK_OK) << m.error.text;
  }
  ~StreamCapture() {
    graphs_.exec_destroy(m_.device(), exec_);
    if (graph_) graphs_.graph_destroy(m_.device(), graph_);
  }
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;
  // Returns the status of the end of the capture, and makes a graph of it.
  husk_status end() {
    void* captured = nullptr;
    const husk_status status = graphs_.capture_end(m_.device(), m_.stream, &captured, &m_.error);
    if (status != HUSK_OK) return status;
    EXPECT_EQ(graphs_.graph_create(m_.device(), &graph_, &m_.error), HUSK_OK);
    EXPECT_EQ(graphs_.graph_add_captured(m_.device(), graph_, captured, nullptr, 0, &m_.error),
              HUSK_OK);
    EXPECT_EQ(graphs_.graph_instantiate(m_.device(), graph_, &exec_, &m_.error), HUSK_OK);
    graphs_.captured_destroy(m_.device(), captured);
    return HUSK_OK;
  }
  husk_status launch() { return graphs_.exec_launch(m_.device(), exec_, m_.stream, &m_.error); }

 private:
  LoadedProgram& m_;
  const husk_port_graphs& graphs_ = *husk_port_cuda()->graphs;
  void *graph_ = nullptr, *exec_ = nullptr;
};

TEST_F(CaptureTest, ARunGoesIntoTheCaptureOfItsStream) {
  for (const int32_t mode : {HUSK_MODE_LIST, HUSK_MODE_GRAPH}) {
    husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
    options.mode = mode;
    options.poison_memory = 1;
    LoadedProgram m(kProjections, &options);
    ASSERT_NE(m.session, nullptr) << m.error.text;
    ASSERT_EQ(resize(m, 200), HUSK_OK) << m.error.text;
    void *in = m.alloc(800), *out = m.alloc(800), *stream = nullptr;
    DeviceTensor from = device_vector(in, 200), to = device_vector(out, 200);
    const husk_value input = from.value();
    husk_value output = to.value();
    // The previous run is on another stream and is not waited for.
    const husk_port* port = husk_port_cuda();
    ASSERT_EQ(port->stream_create(m.device(), &stream, &m.error), HUSK_OK);
    ASSERT_EQ(husk_session_run(m.session, 0, stream, &input, 1, &output, 1, &m.error), HUSK_OK);
    StreamCapture capture(m);
    const uint64_t waits = fake.fake_calls("cuStreamSynchronize"),
                   launches = fake.fake_calls("cuGraphLaunch");
    ASSERT_EQ(husk_session_run(m.session, 0, m.stream, &input, 1, &output, 1, &m.error), HUSK_OK)
        << m.error.text;
    EXPECT_EQ(fake.fake_calls("cuStreamSynchronize"), waits);
    EXPECT_EQ(fake.fake_calls("cuGraphLaunch"), launches);
    ASSERT_EQ(capture.end(), HUSK_OK) << m.error.text;
    ASSERT_EQ(husk_session_wait(m.session, &m.error), HUSK_OK);  // for the run before
    for (int round = 0; round < 5; ++round) {
      fake.fake_schedule(static_cast<uint64_t>(round), 0);
      const std::vector<float> x = fractions(200, round);
      ASSERT_EQ(m.upload(in, x.data(), 800), HUSK_OK);
      ASSERT_EQ(capture.launch(), HUSK_OK) << m.error.text;
      std::vector<float> y(200);
      ASSERT_EQ(m.download(y.data(), out, 800), HUSK_OK);
      EXPECT_EQ(y, projections_of(x));
    }
    std::vector<float> y;
    ASSERT_EQ(run(m, fractions(200), &y), HUSK_OK) << m.error.text;
    EXPECT_EQ(y, projections_of(fractions(200)));
    port->stream_destroy(m.device(), stream);
  }
}

TEST_F(CaptureTest, WhatACaptureDoesNotAllowIsRefusedBeforeIt) {
  LoadedProgram reads(kRead), calls(kDoubled, nullptr, nullptr, {op_.op(0)}),
      owns(branches("scale", "100000"));
  for (LoadedProgram* m : {&reads, &calls, &owns}) {
    ASSERT_NE(m->session, nullptr) << m->error.text;
    DeviceTensor x = device_vector(m->alloc(400), 100), y = device_vector(m->alloc(400), 100);
    std::vector<husk_value> inputs = {x.value()};
    husk_value output = m == &reads ? integer(0) : y.value();
    if (m == &owns) {
      inputs.push_back(floating(1));
      inputs.push_back(integer(1));
      output = none();  // the session's memory would have to grow
    }
    const auto n = static_cast<uint32_t>(inputs.size());
    StreamCapture capture(*m);
    const uint64_t live = fake.fake_live_objects();
    EXPECT_EQ(husk_session_run(m->session, 0, m->stream, inputs.data(), n, &output, 1, &m->error),
              HUSK_UNSUPPORTED);
    EXPECT_NE(std::strstr(m->error.text, m == &reads   ? "function 'count_positive'"
                                         : m == &calls ? "test::double"
                                                       : "output 'y'"),
              nullptr)
        << m->error.text;
    EXPECT_EQ(fake.fake_live_objects(), live);
    ASSERT_EQ(capture.end(), HUSK_OK) << m->error.text;  // valid, and without work
    if (m == &owns) output = none();
    EXPECT_EQ(husk_session_run(m->session, 0, m->stream, inputs.data(), n, &output, 1, &m->error),
              HUSK_OK)
        << m->error.text;
    EXPECT_EQ(husk_session_wait(m->session, &m->error), HUSK_OK);
  }
}

TEST_F(CaptureTest, AnAssertThatFailsInACapturedRunIsReported) {
  LoadedProgram m(kPick);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  const int64_t index[] = {1, 99};
  void *in = m.alloc(40), *indices = m.alloc(16), *out = m.alloc(8), *second = m.alloc(8);
  ASSERT_EQ(m.upload(indices, index, 16), HUSK_OK);
  DeviceTensor x = device_vector(in, 10), i = device_vector(indices, 2), y = device_vector(out, 2),
               z = device_vector(second, 2);
  i.dl.dtype = {kDLInt, 64, 1};
  const husk_value inputs[] = {x.value(), i.value()};
  husk_value outputs[] = {y.value(), z.value()};
  StreamCapture capture(m);
  ASSERT_EQ(husk_session_run(m.session, 0, m.stream, inputs, 2, outputs, 2, &m.error), HUSK_OK)
      << m.error.text;
  ASSERT_EQ(capture.end(), HUSK_OK) << m.error.text;
  EXPECT_EQ(husk_session_wait(m.session, &m.error), HUSK_OK);
  ASSERT_EQ(capture.launch(), HUSK_OK);
  float result[2];
  ASSERT_EQ(m.download(result, out, 8), HUSK_OK);
  EXPECT_EQ(husk_session_wait(m.session, &m.error), HUSK_KERNEL);
  EXPECT_NE(std::strstr(m.error.text, "index out of bounds"), nullptr) << m.error.text;
  EXPECT_EQ(husk_session_wait(m.session, &m.error), HUSK_OK);
}

// The session is told about every step on the host, except while its stream is captured.
TEST_F(CaptureTest, ACapturedRunIsNotTraced) {
  int events = 0;
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.trace = [](void* user, const husk_trace_event*) { ++*static_cast<int*>(user); };
  options.trace_user = &events;
  LoadedProgram m(kProjections, &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  DeviceTensor from = device_vector(m.alloc(800), 200), to = device_vector(m.alloc(800), 200);
  const husk_value input = from.value();
  husk_value output = to.value();
  StreamCapture capture(m);
  ASSERT_EQ(husk_session_run(m.session, 0, m.stream, &input, 1, &output, 1, &m.error), HUSK_OK)
      << m.error.text;
  ASSERT_EQ(capture.end(), HUSK_OK) << m.error.text;
  EXPECT_EQ(events, 0);
  ASSERT_EQ(husk_session_run(m.session, 0, m.stream, &input, 1, &output, 1, &m.error), HUSK_OK);
  EXPECT_EQ(events, 4);
}

// Branches and a loop around launches, a copy and a product. The numbers of the second part come
// from the device.
constexpr char kSegments[] = R"(
function segments {
  input x tensor f32 [4..1000]
  input times int 0..100
  output y tensor f32 rank 1
  output found int
  variant gpu {
    let n = size(x, 0)
    let blocks = cdiv(n, 128)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer a bytes mul(n, 4) align 64
    buffer b bytes mul(n, 4) align 64
    buffer tally bytes 8 align 8
    buffer turns bytes 8 align 8
    launch scale grid (blocks, 1, 1) (read x, write a, 1.0, n)
    extern "test::double" (read tensor a f32 [n] [1], write tensor b f32 [n] [1])
    launch positive grid (1, 1, 1) (read b, write tally, n)
    fill i64 (write turns, 0)
    read i64 (read tally)
    let hits = result(0)
    launch shift grid (blocks, 1, 1) (read b, write a, hits, n)
    extern "test::double" (read tensor a f32 [n] [1], write tensor b f32 [n] [1])
    copy (write a, read b)
    copy (write b, read a)
    loop {
      read i64 (read turns)
      while lt(result(0), times)
      launch shift grid (blocks, 1, 1) (read b, write a, 1, n)
      extern "test::double" (read tensor a f32 [n] [1], write tensor b f32 [n] [1])
      launch count grid (1, 1, 1) (both turns)
    }
    when lt(hits, 2) {
      launch scale grid (blocks, 1, 1) (read b, write a, 3.0, n)
      launch scale grid (blocks, 1, 1) (read a, write y, 1.0, n)
    } else {
      copy (write y, read b)
    }
    return (tensor y f32 [n] [1], int hits)
  }
}
)";

std::vector<float> segments_of(const std::vector<float>& x, int64_t times, int64_t* found) {
  std::vector<float> b = x;
  *found = 0;
  for (float& value : b) {
    value = 2 * (value + 0.25f);
    *found += value > 0;
  }
  for (float& value : b) {
    value = 2 * (value * 0.5f + static_cast<float>(*found));
    for (int64_t turn = 0; turn < times; ++turn) value = 2 * (value * 0.5f + 1);
    if (*found < 2) value = (value * 3 + 0.25f) * 1 + 0.25f;
  }
  return b;
}

class SegmentGraphTest : public CaptureTest {
 protected:
  void run(LoadedProgram& m, const std::vector<float>& x, int64_t times) {
    const auto n = static_cast<int64_t>(x.size());
    void *in = m.alloc(x.size() * 4), *out = m.alloc(x.size() * 4);
    ASSERT_EQ(m.upload(in, x.data(), x.size() * 4), HUSK_OK);
    DeviceTensor from = device_vector(in, n), to = device_vector(out, n);
    const husk_value inputs[] = {from.value(), integer(times)};
    husk_value outputs[] = {to.value(), integer(0)};
    ASSERT_EQ(husk_session_run(m.session, 0, m.stream, inputs, 2, outputs, 2, &m.error), HUSK_OK)
        << m.error.text;
    std::vector<float> y(x.size());
    ASSERT_EQ(m.download(y.data(), out, x.size() * 4), HUSK_OK);
    int64_t found = 0;
    EXPECT_EQ(y, segments_of(x, times, &found));
    EXPECT_EQ(outputs[1].as.i, found);
  }
  husk_status resize(LoadedProgram& m, int64_t n, int64_t times = 0) {
    DeviceTensor x = device_vector(nullptr, n);
    const husk_value inputs[] = {x.value(), integer(times)};
    return husk_session_resize(m.session, 0, inputs, 2, &m.error);
  }
};

TEST_F(SegmentGraphTest, EachSegmentHasItsGraph) {
  LoadedProgram m(kSegments, nullptr, nullptr, {op_.op(HUSK_OP_CAPTURABLE)});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  ASSERT_EQ(resize(m, 300), HUSK_OK) << m.error.text;
  // The four steps before the first read, the four after it, the three of the loop, the two of the
  // branch. The other branch has one step and stays a list.
  EXPECT_EQ(m.stats(m.session).graph_nodes, 4u + 4 + 3 + 2) << m.log;
  EXPECT_EQ(m.log, "");
  const int calls = op_.calls;
  std::mt19937 random(3);
  for (int round = 0; round < 30; ++round) {
    fake.fake_schedule(random(), random() % 60);
    std::vector<float> x = fractions(300, static_cast<int>(random() % 23));
    if (round % 3 == 0) x.assign(300, -1);
    run(m, x, round % 4);
  }
  EXPECT_EQ(op_.calls, calls);
  EXPECT_EQ(m.stats(m.session).runs_as_graph, 30u);
  // Another shape runs the segments with calls as lists, and the others as graphs.
  run(m, std::vector<float>(200, -1), 2);
  EXPECT_EQ(op_.calls, calls + 4);
  EXPECT_EQ(m.stats(m.session).runs_as_graph, 30u + 1);  // the branch without a call
  ASSERT_EQ(resize(m, 200), HUSK_OK) << m.error.text;
  run(m, fractions(200), 2);
  EXPECT_EQ(op_.calls, calls + 4 + 3);  // by the resize
}

TEST_F(SegmentGraphTest, ASegmentWithoutAGraphIsAList) {
  LoadedProgram m(kSegments, nullptr, nullptr, {op_.op(0)});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  ASSERT_EQ(resize(m, 300), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.stats(m.session).graph_nodes, 2u);
  EXPECT_NE(m.log.find("segment 0: "), std::string::npos) << m.log;
  for (int round = 0; round < 6; ++round)
    run(m, round % 2 ? fractions(300, round) : std::vector<float>(300, -1), round);
  EXPECT_EQ(m.stats(m.session).runs_as_graph, 3u);  // those that take the branch
}

TEST_F(SegmentGraphTest, ModesAgree) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.mode = HUSK_MODE_LIST;
  LoadedProgram m(kSegments, &options, nullptr, {op_.op(HUSK_OP_CAPTURABLE)});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  ASSERT_EQ(resize(m, 300), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.stats(m.session).graph_nodes, 0u);
  for (int round = 0; round < 4; ++round) run(m, fractions(300, round), round);
  EXPECT_EQ(m.stats(m.session).runs_as_list, 4u);
}

// A refused patch in a loop makes that turn a list, and the next one catches up.
TEST_F(SegmentGraphTest, ARefusedPatchMakesTheTurnAList) {
  LoadedProgram m(kSegments, nullptr, nullptr, {op_.op(HUSK_OP_CAPTURABLE)});
  ASSERT_NE(m.session, nullptr) << m.error.text;
  ASSERT_EQ(resize(m, 300), HUSK_OK) << m.error.text;
  for (uint64_t n = 1; n <= 12; ++n) {
    fake.fake_fail_call("cuGraphExecKernelNodeSetParams", n % 6 + 1, 910);
    run(m, fractions(300, static_cast<int>(n)), 3);
  }
}

}  // namespace
}  // namespace husk::test
