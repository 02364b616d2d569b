// Tensors in host memory that a session copies to and from the device (stage_host_tensors), on the
// fake driver.
#include <cstring>

#include "../values.h"
#include "loaded_program.h"
#include "programs.h"

namespace husk::test {
namespace {

// A vector of floats in host memory.
struct HostVector {
  explicit HostVector(std::vector<float> content)
      : values(std::move(content)),
        tensor(device_vector(values.data(), static_cast<int64_t>(values.size()))) {
    tensor.dl.device = {kDLCPU, 0};
  }
  husk_value value() { return tensor.value(); }

  std::vector<float> values;
  DeviceTensor tensor;
};

std::vector<float> zeros(size_t n) { return std::vector<float>(n); }

std::vector<float> numbers(size_t n, int seed = 0) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i)
    x[i] = static_cast<float>((i * 7 + static_cast<size_t>(seed)) % 23) / 4 - 2;
  return x;
}

class StagingTest : public FakeTest, public testing::WithParamInterface<int32_t> {
 protected:
  StagingTest() {
    options.mode = GetParam();
    options.stage_host_tensors = 1;
  }
  husk_status run(LoadedProgram& m, std::vector<husk_value> inputs, std::vector<husk_value> outputs,
                  uint32_t function = 0) {
    results = std::move(outputs);
    return husk_session_run(m.session, function, m.stream, inputs.data(),
                            static_cast<uint32_t>(inputs.size()), results.data(),
                            static_cast<uint32_t>(results.size()), &m.error);
  }
  husk_status resize(LoadedProgram& m, std::vector<husk_value> inputs) {
    return husk_session_resize(m.session, 0, inputs.data(), static_cast<uint32_t>(inputs.size()),
                               &m.error);
  }
  bool graph() const { return GetParam() == HUSK_MODE_GRAPH; }

  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  std::vector<husk_value> results;
};
INSTANTIATE_TEST_SUITE_P(Modes, StagingTest, testing::Values(HUSK_MODE_LIST, HUSK_MODE_GRAPH));

// Each side may lie on the host or on the device, and the shape may change from run to run. A
// session without a resize allocates in its first run.
TEST_P(StagingTest, TensorsOfEitherSideAndAnySize) {
  LoadedProgram m(branches("scale"), &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  void *in = m.alloc(4000), *out = m.alloc(4000);
  int64_t runs = 0;
  for (int round = 0; round < 40; ++round) {
    fake.fake_schedule(static_cast<uint64_t>(round), static_cast<uint32_t>(round % 2) * 50);
    if (round == 3) {
      HostVector largest(zeros(1000));
      ASSERT_EQ(resize(m, {largest.value(), floating(1), integer(1)}), HUSK_OK) << m.error.text;
    }
    const size_t n = round % 5 == 0 ? 1000 : 1 + static_cast<size_t>(round) * 13;
    HostVector x(numbers(n, round)), y(zeros(n));
    const std::vector<float> expected = branches_of(x.values, 0.5f, round % 9);
    ASSERT_EQ(m.upload(in, x.values.data(), n * 4), HUSK_OK);
    DeviceTensor from = device_vector(in, static_cast<int64_t>(n)),
                 to = device_vector(out, static_cast<int64_t>(n));
    if (round % 7 == 0) x.tensor.dl.device = y.tensor.dl.device = {kDLCUDAHost, 0};
    const bool host_input = round % 2 == 0, host_output = round % 3 != 1;
    ASSERT_EQ(run(m, {host_input ? x.value() : from.value(), floating(0.5), integer(round % 9)},
                  {host_output ? y.value() : to.value()}),
              HUSK_OK)
        << m.error.text;
    ++runs;
    if (host_input) x.values.assign(n, -1);  // the run has read it
    if (!host_output) {
      ASSERT_EQ(m.download(y.values.data(), out, n * 4), HUSK_OK);
    }
    ASSERT_EQ(y.values, expected) << "round " << round;
  }
  int64_t ticks = 0;
  ASSERT_EQ(husk_session_state_get(m.session, 0, &ticks, &m.error), HUSK_OK);
  EXPECT_EQ(ticks, runs);
  const husk_session_stats stats = m.stats(m.session);
  EXPECT_GT(graph() ? stats.runs_as_graph : stats.runs_as_list, 35u);
}

// A resize allocates for the host tensors that it sees and for outputs, once. The graph has these
// addresses, so another address of the caller patches nothing.
TEST_P(StagingTest, AResizeAllocatesAndRunsDoNot) {
  LoadedProgram m(branches("scale"), &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(m.stats(m.session).dynamic_bytes, 0u);
  DeviceTensor shape = device_vector(nullptr, 700);
  ASSERT_EQ(resize(m, {shape.value(), floating(1), integer(1)}), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.stats(m.session).dynamic_bytes, 0u);
  shape.dl.device = {kDLCPU, 0};
  ASSERT_EQ(resize(m, {shape.value(), floating(1), integer(1)}), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.stats(m.session).dynamic_bytes, 2 * 2800u);
  const uint64_t allocations = fake.fake_calls("cuMemAlloc");
  uint64_t patched = 0;
  for (int round = 0; round < 5; ++round) {
    HostVector x(numbers(700, round)), y(zeros(700));
    ASSERT_EQ(run(m, {x.value(), floating(0.5), integer(3)}, {y.value()}), HUSK_OK) << m.error.text;
    EXPECT_EQ(y.values, branches_of(x.values, 0.5f, 3));
    if (round == 0) patched = m.stats(m.session).nodes_patched;
  }
  EXPECT_EQ(m.stats(m.session).nodes_patched, patched);
  EXPECT_EQ(fake.fake_calls("cuMemAlloc"), allocations);
  EXPECT_EQ(m.stats(m.session).dynamic_bytes, 2 * 2800u);
}

TEST_P(StagingTest, DeviceTensorsCostNothing) {
  LoadedProgram m(kCopyInput, &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  DeviceTensor x = device_vector(m.alloc(16), 4), y = device_vector(m.alloc(16), 4);
  ASSERT_EQ(resize(m, {x.value()}), HUSK_OK) << m.error.text;
  const uint64_t waits = fake.fake_calls("cuStreamSynchronize");
  for (int i = 0; i < 2; ++i) ASSERT_EQ(run(m, {x.value()}, {y.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(fake.fake_calls("cuStreamSynchronize"), waits);
  EXPECT_EQ(m.stats(m.session).dynamic_bytes, 0u);
}

// Tensors without elements, with and without an address, are not copied.
TEST_P(StagingTest, EmptyTensors) {
  LoadedProgram m(branches("scale"), &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  float byte = 0;
  for (float* memory : {static_cast<float*>(nullptr), &byte}) {
    HostVector x({}), y({});
    x.tensor.dl.data = y.tensor.dl.data = memory;
    ASSERT_EQ(run(m, {x.value(), floating(1), integer(1)}, {y.value()}), HUSK_OK) << m.error.text;
  }
  EXPECT_EQ(fake.fake_calls("cuMemcpyHtoDAsync"), 0u);
  EXPECT_EQ(fake.fake_calls("cuMemcpyDtoHAsync"), 0u);
  EXPECT_EQ(m.stats(m.session).dynamic_bytes, 0u);
}

// An input that a step writes is copied back; what lies between its elements stays as it was. An
// output of kind NONE is memory of the device.
TEST_P(StagingTest, InputsThatAStepWrites) {
  LoadedProgram m(R"(
function update {
  input x tensor f32 [2, 2]
  input w tensor f32 [4]
  output y tensor f32 rank 1
  variant gpu {
    check_eq(stride(x, 0), 3)
    buffer x of input bytes 20 align 16
    buffer w of input bytes 16
    buffer y of output bytes 16
    launch shift grid (1, 1, 1) (read w, write y, 1, 4)
    copy (write x[0, 8], read w[8, 8])
    copy (write x[12, 8], read w[0, 8])
    return (tensor y f32 [4] [1])
  }
}
)",
                  &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  alignas(16) float memory[6] = {9, 1, 2, 7, 4, 5};
  int64_t sizes[] = {2, 2}, strides[] = {3, 1};
  DLTensor x = {memory + 1, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, sizes, strides, 0};
  husk_value value = {HUSK_VALUE_TENSOR, 0, {}};
  value.as.tensor = &x;  // its address is a multiple of 4 only
  HostVector w({10, 20, 30, 40});
  ASSERT_EQ(run(m, {value, w.value()}, {none()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(std::vector<float>(memory, memory + 6), (std::vector<float>{9, 30, 40, 7, 10, 20}));
  EXPECT_EQ(w.values, (std::vector<float>{10, 20, 30, 40}));
  ASSERT_EQ(results[0].kind, HUSK_VALUE_TENSOR);
  EXPECT_EQ(results[0].as.tensor->device.device_type, kDLCUDA);
  std::vector<float> y(4);
  ASSERT_EQ(m.download(y.data(), results[0].as.tensor->data, 16), HUSK_OK);
  EXPECT_EQ(y, (std::vector<float>{6, 11, 16, 21}));
  // The session's tensor may be passed back, while other tensors are staged.
  ASSERT_EQ(run(m, {value, w.value()}, results), HUSK_OK) << m.error.text;
  ASSERT_EQ(m.download(y.data(), results[0].as.tensor->data, 16), HUSK_OK);
  EXPECT_EQ(y, (std::vector<float>{6, 11, 16, 21}));
}

// The rule of overlaps is about the caller's memory, not about the copies.
TEST_P(StagingTest, OverlapsAreRefused) {
  LoadedProgram m(kCopyInput, &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  HostVector memory({1, 2, 3, 4, 5});
  DeviceTensor x = device_vector(memory.values.data(), 4),
               y = device_vector(memory.values.data() + 1, 4);
  x.dl.device = y.dl.device = {kDLCPU, 0};
  EXPECT_EQ(run(m, {x.value()}, {y.value()}), HUSK_INVALID_INPUT);
  EXPECT_STREQ(m.error.text,
               "function 'forward': output 'y' overlaps input 'x': give it memory of its own");
  EXPECT_EQ(memory.values[4], 5);
  HostVector apart(zeros(4));
  EXPECT_EQ(run(m, {x.value()}, {apart.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(apart.values, (std::vector<float>{1, 2, 3, 4}));
  // The tensor of the session that an earlier run gave is no tensor of the host.
  ASSERT_EQ(run(m, {x.value()}, {none()}), HUSK_OK) << m.error.text;
  const husk_value owned = results[0];
  HostVector again(zeros(4));
  ASSERT_EQ(run(m, {owned}, {again.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(again.values, (std::vector<float>{1, 2, 3, 4}));
}

// An output whose shape only the data decides, in segments with branches: the run writes the shape
// into the caller's tensor and copies as many bytes.
TEST_P(StagingTest, OutputsThatLaterSegmentsShape) {
  LoadedProgram m(R"(
function positives {
  input x tensor f32 [1..1000]
  output first tensor f32 rank 1
  output y tensor f32 rank 1
  output found int
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer first of output bytes 4
    buffer tally bytes 8 align 8
    copy (write first, read x[0, 4])
    launch positive grid (1, 1, 1) (read x, write tally, n)
    read i64 (read tally)
    let m = result(0)
    check_le(m, n)
    buffer y of output bytes mul(m, 4)
    launch shift grid (cdiv(m, 128), 1, 1) (read x[0, mul(m, 4)], write y, 1, m)
    return (tensor first f32 [1] [1], tensor y f32 [m] [1], int m)
  }
}
)",
                  &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  for (const size_t n : {10u, 900u, 10u}) {
    HostVector x(std::vector<float>(n, 3)), first(zeros(1)), y(std::vector<float>(1000, -1));
    for (size_t i = 0; i < n; i += 2) x.values[i] = -4;
    ASSERT_EQ(resize(m, {x.value()}), HUSK_OK) << m.error.text;
    ASSERT_EQ(run(m, {x.value()}, {first.value(), y.value(), integer(0)}), HUSK_OK) << m.error.text;
    EXPECT_EQ(results[2].as.i, static_cast<int64_t>(n / 2));
    EXPECT_EQ(y.tensor.size, static_cast<int64_t>(n / 2));
    EXPECT_EQ(first.values[0], -4);
    for (size_t i = 0; i < 1000; ++i)
      ASSERT_EQ(y.values[i], i >= n / 2 ? -1 : x.values[i] / 2 + 1) << i;
  }
}

TEST_P(StagingTest, CountTowardsTheMemoryLimit) {
  options.memory_limit = 16 + 20;
  LoadedProgram m(kCopyInput, &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  HostVector x({1, 2, 3, 4}), y(zeros(4)), large(zeros(100));
  EXPECT_EQ(resize(m, {large.value()}), HUSK_LIMIT);
  EXPECT_STREQ(m.error.text,
               "function 'forward': input 'x' lies in host memory and is copied: 400 bytes on top "
               "of the session's 0 would pass its memory_limit of 36");
  HostVector five({1, 2, 3, 4, 5});
  EXPECT_EQ(resize(m, {five.value()}), HUSK_LIMIT);
  EXPECT_STREQ(m.error.text,
               "function 'forward': output 'y' lies in host memory and is copied: 20 bytes on top "
               "of the session's 20 would pass its memory_limit of 36");
  EXPECT_EQ(run(m, {five.value()}, {five.value()}), HUSK_LIMIT);
  EXPECT_EQ(run(m, {x.value()}, {y.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(y.values, x.values);
  EXPECT_EQ(m.stats(m.session).dynamic_bytes, 36u);
}

TEST_P(StagingTest, AFailedAssertIsReportedByTheRun) {
  LoadedProgram m(kPick, &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  HostVector x(numbers(10)), y(std::vector<float>(2, -1)), z(std::vector<float>(2, -1));
  int64_t index[] = {1, 99};
  DeviceTensor i = device_vector(index, 2);
  i.dl.dtype = {kDLInt, 64, 1};
  i.dl.device = {kDLCPU, 0};
  EXPECT_EQ(run(m, {x.value(), i.value()}, {y.value(), z.value()}), HUSK_KERNEL);
  EXPECT_STREQ(m.error.text, "function 'pick': kernel pick: index out of bounds: index < 10");
  EXPECT_EQ(y.values[0], -1) << "a failed run gives no results";
  index[1] = 2;
  EXPECT_EQ(run(m, {x.value(), i.value()}, {y.value(), z.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(y.values, z.values);
  EXPECT_NE(y.values[0], -1);
}

TEST_P(StagingTest, WithoutTheOptionTheErrorNamesIt) {
  options.stage_host_tensors = 0;
  LoadedProgram m(kCopyInput, &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  HostVector host({1, 2, 3, 4});
  DeviceTensor device = device_vector(m.alloc(16), 4);
  EXPECT_EQ(run(m, {host.value()}, {device.value()}), HUSK_INVALID_INPUT);
  const char* const remedy = ": copy it there, or set husk_session_options.stage_host_tensors";
  EXPECT_NE(std::strstr(m.error.text, "input 'x' lies on DLPack device 1:0"), nullptr)
      << m.error.text;
  EXPECT_NE(std::strstr(m.error.text, remedy), nullptr) << m.error.text;
  EXPECT_EQ(run(m, {device.value()}, {host.value()}), HUSK_INVALID_INPUT);
  EXPECT_NE(std::strstr(m.error.text, "output 'y' lies on DLPack device 1:0"), nullptr)
      << m.error.text;
  EXPECT_NE(std::strstr(m.error.text, remedy), nullptr) << m.error.text;
  EXPECT_EQ(resize(m, {host.value()}), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.stats(m.session).dynamic_bytes, 0u);
  // The option is no remedy for a tensor of another device.
  device.dl.device = {kDLCUDA, 9};
  for (const int32_t stages : {0, 1}) {
    options.stage_host_tensors = stages;
    m.session = m.open_session(&options);
    EXPECT_EQ(run(m, {device.value()}, {host.value()}), HUSK_INVALID_INPUT);
    EXPECT_EQ(std::strstr(m.error.text, remedy), nullptr) << m.error.text;
  }
  host.tensor.dl.data = nullptr;
  EXPECT_EQ(run(m, {host.value()}, {none()}), HUSK_INVALID_INPUT);
  EXPECT_STREQ(m.error.text, "function 'forward': input 'x' has no memory");
}

TEST_P(StagingTest, ACaptureIsRefusedAndStaysValid) {
  LoadedProgram m(kCopyInput, &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  HostVector x({1, 2, 3, 4}), y(zeros(4));
  DeviceTensor in = device_vector(m.alloc(16), 4), out = device_vector(m.alloc(16), 4);
  ASSERT_EQ(run(m, {x.value()}, {y.value()}), HUSK_OK) << m.error.text;  // has allocated
  ASSERT_EQ(m.upload(in.dl.data, x.values.data(), 16), HUSK_OK);
  const husk_port_graphs* graphs = husk_port_cuda()->graphs;
  void* captured = nullptr;
  ASSERT_EQ(graphs->capture_begin(m.device(), m.stream, &m.error), HUSK_OK);
  EXPECT_EQ(run(m, {x.value()}, {out.value()}), HUSK_UNSUPPORTED);
  EXPECT_STREQ(m.error.text,
               "function 'forward': input 'x' lies in host memory, and a run whose stream is "
               "captured stages nothing: pass memory of the device");
  EXPECT_EQ(run(m, {in.value()}, {y.value()}), HUSK_UNSUPPORTED);
  EXPECT_NE(std::strstr(m.error.text, "output 'y' lies in host memory, and"), nullptr)
      << m.error.text;
  EXPECT_EQ(run(m, {in.value()}, {out.value()}), HUSK_OK) << m.error.text;
  ASSERT_EQ(graphs->capture_end(m.device(), m.stream, &captured, &m.error), HUSK_OK)
      << m.error.text;
  graphs->captured_destroy(m.device(), captured);
  EXPECT_EQ(run(m, {x.value()}, {y.value()}), HUSK_OK) << m.error.text;
}

// Programs with steps on the host: a tensor that belongs on the host is used in place.
TEST_P(StagingTest, TensorsOfTheHostStayThere) {
  if (graph()) options.mode = HUSK_MODE_AUTO;
  options.copy_misaligned = 1;
  LoadedProgram m(R"(
function values {
  input x tensor f32 [1..1000]
  input w tensor f32 [1..1000]
  output y tensor f32 rank 1
  output z tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    check_eq(size(w, 0), n)
    buffer x of input bytes mul(n, 4) align 64 on host
    buffer w of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4) on host
    buffer z of output bytes mul(n, 4)
    buffer a bytes mul(n, 4) align 64
    copy (write a, read x)
    launch join grid (cdiv(n, 128), 1, 1) (read a, read w, write z, n)
    copy (write y, read z)
    return (tensor y f32 [n] [1], tensor z f32 [n] [1])
  }
}
)",
                  &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  alignas(64) float memory[8] = {0, 1, 2, 3, 4};
  for (const int shift : {0, 1}) {  // 1: a misaligned input, which is copied in host memory
    HostVector w({1, 1, 1, 1}), y(zeros(4)), z(zeros(4));
    DeviceTensor x = device_vector(memory + shift, 4);
    x.dl.device = {kDLCPU, 0};
    ASSERT_EQ(resize(m, {x.value(), w.value()}), HUSK_OK) << m.error.text;
    ASSERT_EQ(run(m, {x.value(), w.value()}, {y.value(), z.value()}), HUSK_OK) << m.error.text;
    for (int i = 0; i < 4; ++i) EXPECT_EQ(z.values[static_cast<size_t>(i)], i + shift - 1);
    EXPECT_EQ(y.values, z.values);
    EXPECT_EQ(m.stats(m.session).dynamic_bytes, 32u + (shift ? 16 : 0));
  }
}

// Each driver call of a resize and two runs fails once. The caller gets an error, which names the
// tensor whose memory could not be allocated, and the next calls work.
TEST_P(StagingTest, EveryDriverCallFailsOnce) {
  constexpr int32_t kDriverFailed = 999;
  uint64_t calls = 0, named = 0;
  for (uint64_t n = 0; n <= calls; ++n) {
    SCOPED_TRACE("call " + std::to_string(n));
    LoadedProgram m(branches("scale"), &options);
    ASSERT_NE(m.session, nullptr) << m.error.text;
    HostVector x(numbers(300)), y(zeros(300));
    auto pass = [&] {
      const std::vector<husk_value> inputs = {x.value(), floating(0.5), integer(2)};
      husk_status status = resize(m, inputs);
      for (int i = 0; i < 2 && status == HUSK_OK; ++i) status = run(m, inputs, {y.value()});
      return status;
    };
    fake.fake_reset();
    if (n) fake.fake_fail_at(n, kDriverFailed);
    const husk_status status = pass();
    if (n == 0) calls = fake.fake_calls(nullptr);
    if (status != HUSK_OK) {
      EXPECT_EQ(m.error.driver_code, kDriverFailed) << m.error.text;
      named += std::strstr(m.error.text, "input 'x' ") || std::strstr(m.error.text, "output 'y' ");
      fake.fake_fail_at(0, 0);
      y.values.assign(300, 0);
      ASSERT_EQ(pass(), HUSK_OK) << m.error.text;
    }
    EXPECT_EQ(y.values, branches_of(x.values, 0.5f, 2));
  }
  EXPECT_GT(calls, 20u);
  EXPECT_GE(named, 2u);
}

}  // namespace
}  // namespace husk::test
