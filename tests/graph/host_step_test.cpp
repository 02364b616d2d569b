// Steps that run on the host between kernels, and the copies from and to the host around them. The
// fake driver protects host memory while a queued copy uses it, so a step that does not wait ends
// the process.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../values.h"
#include "base/memory.h"
#include "loaded_program.h"
#include "programs.h"

namespace husk::test {
namespace {

husk_status refuse(husk_error* error, const char* text) {
  error->code = HUSK_INVALID_ARGUMENT;
  std::snprintf(error->text, sizeof error->text, "%s", text);
  return error->code;
}

// The calls of the ops of a test, and what each of them does.
struct Calls {
  int squares = 0;
  bool fail_next = false;
};

// out[i] = in[i]^2. `user` is a Calls.
husk_status square(const husk_op_context* context, const husk_op_arg* args, uint32_t,
                   husk_error* error) {
  auto* calls = static_cast<Calls*>(context->user);
  ++calls->squares;
  if (calls->fail_next) {
    calls->fail_next = false;
    return refuse(error, "square is to fail");
  }
  square_elements(args);
  return HUSK_OK;
}

husk_status square_on_host(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                           husk_error* error) {
  if (context->stream) return refuse(error, "an op of the host has no stream");
  if (context->device) return refuse(error, "an op beside a device does not know it");
  return square(context, args, count, error);
}

// The memory of the fake device is memory of the host.
husk_status square_on_device(const husk_op_context* context, const husk_op_arg* args,
                             uint32_t count, husk_error* error) {
  const husk_status status = husk_port_cuda()->stream_wait(context->device, context->stream, error);
  return status == HUSK_OK ? square(context, args, count, error) : status;
}

// The sum of the elements as a result.
husk_status sum(const husk_op_context*, const husk_op_arg* args, uint32_t, husk_error*) {
  double total = 0;
  for (int64_t i = 0; i < args[0].sizes[0]; ++i) total += static_cast<float*>(args[0].data)[i];
  *static_cast<double*>(args[1].data) = total;
  return HUSK_OK;
}

// The number of elements above 0, as a result.
husk_status positive_count(const husk_op_context*, const husk_op_arg* args, uint32_t, husk_error*) {
  int64_t found = 0;
  for (int64_t i = 0; i < args[0].sizes[0]; ++i) found += static_cast<float*>(args[0].data)[i] > 0;
  *static_cast<int64_t*>(args[1].data) = found;
  return HUSK_OK;
}

husk_status positives(const husk_op_context*, const husk_op_arg* args, uint32_t, husk_error*) {
  auto* out = static_cast<float*>(args[1].data);
  for (int64_t i = 0; i < args[0].sizes[0]; ++i)
    if (const float value = static_cast<float*>(args[0].data)[i]; value > 0) *out++ = value;
  return HUSK_OK;
}

husk_status number(const husk_op_context*, const husk_op_arg* args, uint32_t, husk_error*) {
  for (int64_t i = 0; i < args[1].sizes[0]; ++i)
    static_cast<float*>(args[1].data)[i] = static_cast<float>(args[0].i + i);
  return HUSK_OK;
}

husk_op op_of(const char* name, husk_op_fn call, const char* contract, int32_t place,
              void* user = nullptr) {
  husk_op op = HUSK_OP_INIT;
  op.name = name;
  op.call = call;
  op.contract = contract;
  op.place = place;
  op.user = user;
  return op;
}

std::vector<husk_op> ops(Calls* calls) {
  const auto host = [](const char* name, husk_op_fn call, const char* contract) {
    return op_of(name, call, contract, HUSK_OP_ON_HOST);
  };
  return {op_of("test::square", square_on_host, "in out:w", HUSK_OP_ON_HOST, calls),
          host("test::sum", sum, "in total"),
          host("test::positive_count", positive_count, "in found"),
          host("test::positives", positives, "in out:w"), host("test::number", number, "n out:w")};
}

class HostSteps : public FakeTest {
 protected:
  // Resizes and runs the function with `values`, and with `k` unless it is negative; gives its
  // output.
  std::vector<float> run(LoadedProgram& m, const std::vector<float>& values, int k,
                         size_t results) {
    const auto n = static_cast<int64_t>(values.size());
    void *in = m.alloc(values.size() * 4), *out = m.alloc(results * 4);
    EXPECT_EQ(m.upload(in, values.data(), values.size() * 4), HUSK_OK);
    DeviceTensor from = device_vector(in, n),
                 to = device_vector(out, static_cast<int64_t>(results));
    const husk_value inputs[] = {from.value(), integer(k)};
    husk_value output = to.value();
    const uint32_t count = k < 0 ? 1 : 2;
    EXPECT_EQ(husk_session_resize(m.session, 0, inputs, count, &m.error), HUSK_OK) << m.error.text;
    for (int i = 0; i < 3; ++i) {
      const uint64_t before = fake.fake_calls("cuStreamSynchronize");
      EXPECT_EQ(husk_session_run(m.session, 0, m.stream, inputs, count, &output, 1, &m.error),
                HUSK_OK)
          << m.error.text;
      waits = fake.fake_calls("cuStreamSynchronize") - before;
    }
    std::vector<float> y(results);
    EXPECT_EQ(m.download(y.data(), out, results * 4), HUSK_OK);
    return y;
  }

  Calls calls;
  uint64_t waits = 0;  // of the last run
  const std::vector<float> x = {1, -2, 3, 4, -5};
};

TEST_F(HostSteps, RunBetweenKernels) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    fake.fake_schedule(seed, seed % 2 * 50);
    LoadedProgram m(kSquareOnHost, nullptr, nullptr, ops(&calls));
    ASSERT_NE(m.session, nullptr) << m.error.text;
    EXPECT_EQ(run(m, x, 3, x.size()), square_of(x, 3));
    EXPECT_EQ(waits, 1u);
    EXPECT_EQ(husk_program_host_step_count(m.program, 0), 1u);
    EXPECT_EQ(husk_program_host_step_count(m.program, 1), 0u);
    EXPECT_EQ(husk_program_host_step_count(nullptr, 0), 0u);
    const husk_session_stats stats = m.stats(m.session);
    EXPECT_EQ(stats.runs_as_list, 3u);
    EXPECT_EQ(stats.graph_nodes, 0u);
    EXPECT_EQ(stats.host_arena_bytes, 8032u);  // two of 1000 floats, aligned to 64 bytes
    EXPECT_EQ(stats.arena_bytes, 4000u);       // the other device buffer takes its place
  }
}

// The device copies to and from the host arena of one run while the next run begins.
TEST_F(HostSteps, AtTheBeginningWaitForThePreviousRun) {
  const char* const text = R"(
function numbers {
  input n int 1..1000
  output y tensor f32 rank 1
  variant gpu {
    buffer a bytes mul(n, 4) align 64 on host
    buffer y of output bytes mul(n, 4)
    extern "test::number" (n, write tensor a f32 [n] [1])
    copy (write y, read a)
    return (tensor y f32 [n] [1])
  }
}
)";
  LoadedProgram m(text, nullptr, nullptr, ops(&calls));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  void* other_stream = nullptr;
  void* device = nullptr;
  const husk_port* port = husk_port_cuda();
  ASSERT_EQ(port->open(port->user, 0, default_allocator(), nullptr, &device, &m.error), HUSK_OK);
  ASSERT_EQ(port->stream_create(device, &other_stream, &m.error), HUSK_OK);
  void* out[3] = {m.alloc(800), m.alloc(800), m.alloc(800)};
  for (int i = 0; i < 3; ++i) {  // on one stream, then on another
    DeviceTensor to = device_vector(out[i], 100 + i);
    const husk_value n = integer(100 + i);
    husk_value output = to.value();
    ASSERT_EQ(husk_session_run(m.session, 0, i < 2 ? m.stream : other_stream, &n, 1, &output, 1,
                               &m.error),
              HUSK_OK)
        << m.error.text;
  }
  ASSERT_EQ(husk_session_wait(m.session, &m.error), HUSK_OK);
  for (int i = 0; i < 3; ++i) {
    std::vector<float> y(static_cast<size_t>(100 + i));
    ASSERT_EQ(m.download(y.data(), out[i], y.size() * 4), HUSK_OK);
    EXPECT_EQ(y.front(), 100.0f + static_cast<float>(i));
    EXPECT_EQ(y.back(), 199.0f + 2 * static_cast<float>(i));
  }
  port->stream_destroy(device, other_stream);
  port->close(device);
}

// The function `total` enqueues nothing, so only the other function is a reason to wait.
TEST_F(HostSteps, WaitForRunsOfOtherFunctions) {
  const char* const text = R"(
function numbers {
  input n int 1..1000
  output y tensor f32 rank 1
  variant gpu {
    buffer a bytes mul(n, 4) align 64 on host
    buffer y of output bytes mul(n, 4)
    extern "test::number" (n, write tensor a f32 [n] [1])
    copy (write y, read a)
    return (tensor y f32 [n] [1])
  }
}
function total {
  input n int 1..1000
  output sum float
  variant gpu {
    buffer a bytes mul(n, 4) align 64 on host
    extern "test::number" (n, write tensor a f32 [n] [1])
    extern "test::sum" (read tensor a f32 [n] [1], result float)
    return (float fresult(0))
  }
}
)";
  LoadedProgram m(text, nullptr, nullptr, ops(&calls));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  void* out = m.alloc(400);
  DeviceTensor to = device_vector(out, 100);
  const husk_value few = integer(3), many = integer(100);
  husk_value output = to.value();
  for (int i = 0; i < 3; ++i) {
    husk_value sum = {};
    ASSERT_EQ(husk_session_run(m.session, 1, m.stream, &few, 1, &sum, 1, &m.error), HUSK_OK)
        << m.error.text;
    EXPECT_EQ(sum.as.f, 12);
    ASSERT_EQ(husk_session_run(m.session, 0, m.stream, &many, 1, &output, 1, &m.error), HUSK_OK)
        << m.error.text;
  }
  std::vector<float> y(100);
  ASSERT_EQ(m.download(y.data(), out, 400), HUSK_OK);
  EXPECT_EQ(y[99], 199);
}

// Neither a read of host memory nor a step after another one waits again.
TEST_F(HostSteps, GiveResultsAndWaitOnce) {
  const char* const text = R"(
function sums {
  input x tensor f32 [1..1000]
  output total float
  output first float
  output last tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer a bytes mul(n, 4) align 64 on host
    buffer b bytes mul(n, 4) align 64 on host
    copy (write a, read x)
    extern "test::square" (read tensor a f32 [n] [1], write tensor b f32 [n] [1])
    extern "test::sum" (read tensor b f32 [n] [1], result float)
    read f32 (read b[0, 4])
    buffer last of output bytes 4
    let t = fresult(0)
    let f = fresult(1)
    copy (write last, read b[mul(sub(n, 1), 4), 4])
    return (float t, float f, tensor last f32 [1] [1])
  }
}
)";
  LoadedProgram m(text, nullptr, nullptr, ops(&calls));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  void *in = m.alloc(20), *out = m.alloc(4);
  ASSERT_EQ(m.upload(in, x.data(), 20), HUSK_OK);
  DeviceTensor from = device_vector(in, 5), to = device_vector(out, 1);
  const husk_value input = from.value();
  husk_value outputs[3] = {{}, {}, to.value()};
  const uint64_t before = fake.fake_calls("cuStreamSynchronize");
  ASSERT_EQ(husk_session_run(m.session, 0, m.stream, &input, 1, outputs, 3, &m.error), HUSK_OK)
      << m.error.text;
  EXPECT_EQ(fake.fake_calls("cuStreamSynchronize") - before, 1u);
  EXPECT_EQ(outputs[0].as.f, 55);
  EXPECT_EQ(outputs[1].as.f, 1);
  float last = 0;
  ASSERT_EQ(m.download(&last, out, 4), HUSK_OK);
  EXPECT_EQ(last, 25);
}

// A buffer of the host whose size only the data decides is placed when its segment begins.
TEST_F(HostSteps, HaveBuffersOfAnySize) {
  const char* const text = R"(
function positives {
  input x tensor f32 [1..1000]
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer a bytes mul(n, 4) align 64 on host
    copy (write a, read x)
    extern "test::positive_count" (read tensor a f32 [n] [1], result int)
    let m = result(0)
    buffer found bytes mul(m, 4) align 64 on host
    buffer d bytes mul(m, 4) align 64
    buffer y of output bytes mul(m, 4)
    extern "test::positives" (read tensor a f32 [n] [1], write tensor found f32 [m] [1])
    copy (write d, read found)
    copy (write y, read d)
    return (tensor y f32 [m] [1])
  }
}
)";
  LoadedProgram m(text, nullptr, nullptr, ops(&calls));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(run(m, x, -1, 3), (std::vector<float>{1, 3, 4}));
  EXPECT_EQ(run(m, std::vector<float>(900, 2), -1, 900), std::vector<float>(900, 2));
  const husk_session_stats stats = m.stats(m.session);
  EXPECT_EQ(stats.dynamic, 1u);
  EXPECT_GE(stats.dynamic_bytes, 2 * 3600u);
}

TEST_F(HostSteps, ThatFailLeaveTheSessionUsable) {
  LoadedProgram m(kSquareOnHost, nullptr, nullptr, ops(&calls));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(run(m, x, 3, x.size()), square_of(x, 3));
  void *in = m.alloc(20), *out = m.alloc(20);
  ASSERT_EQ(m.upload(in, x.data(), 20), HUSK_OK);
  DeviceTensor from = device_vector(in, 5), to = device_vector(out, 5);
  const husk_value inputs[] = {from.value(), integer(1)};
  husk_value output = to.value();
  calls.fail_next = true;
  EXPECT_EQ(husk_session_run(m.session, 0, m.stream, inputs, 2, &output, 1, &m.error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_STREQ(m.error.text, "function 'square': step 2 test::square (square): square is to fail");
  EXPECT_EQ(m.error.step, 2);
  fake.fake_fail_call("cuStreamSynchronize", 1, 999);
  EXPECT_EQ(husk_session_run(m.session, 0, m.stream, inputs, 2, &output, 1, &m.error), HUSK_DEVICE);
  EXPECT_NE(std::strstr(m.error.text, "step 2 test::square"), nullptr) << m.error.text;
  EXPECT_EQ(run(m, x, 2, x.size()), square_of(x, 2));
}

TEST_F(HostSteps, WorkWithPoisonedMemory) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.poison_memory = 1;
  LoadedProgram m(kSquareOnHost, &options, nullptr, ops(&calls));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  EXPECT_EQ(run(m, x, 3, x.size()), square_of(x, 3));
}

// A function whose sizes have no bound plans anew for each shape, and the arenas grow.
TEST_F(HostSteps, GrowTheArenaOfTheHost) {
  std::string text = kSquareOnHost;
  text.replace(text.find("1..1000"), 7, "1..inf");
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.external_arena = 1;
  LoadedProgram m(text, &options, nullptr, ops(&calls));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  ASSERT_EQ(husk_session_set_arena(m.session, m.alloc(1 << 16), 1 << 16, &m.error), HUSK_OK);
  EXPECT_EQ(run(m, x, 3, x.size()), square_of(x, 3));
  const std::vector<float> more(3000, 7);
  void *in = m.alloc(12000), *out = m.alloc(12000);
  DeviceTensor from = device_vector(in, 3000), to = device_vector(out, 3000);
  const husk_value inputs[] = {from.value(), integer(1)};
  husk_value output = to.value();
  EXPECT_EQ(husk_session_run(m.session, 0, m.stream, inputs, 2, &output, 1, &m.error),
            HUSK_NEEDS_RESIZE);
  EXPECT_NE(std::strstr(m.error.text,
                        "these shapes need 24032 bytes of memory of the host, the session has 84: "
                        "call husk_session_resize with them first"),
            nullptr)
      << m.error.text;
  EXPECT_EQ(run(m, more, 3, more.size()), square_of(more, 3));
  EXPECT_EQ(m.stats(m.session).host_arena_bytes, 24032u);
  EXPECT_EQ(run(m, x, 3, x.size()), square_of(x, 3));
}

TEST_F(HostSteps, TellThatMemoryOfTheHostIsMissing) {
  const std::vector<husk_op> all = ops(&calls);
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.memory_limit = 10000;  // less than 4000 bytes of the device and 8032 of the host
  LoadedProgram limited(kSquareOnHost, &options, nullptr, all);
  EXPECT_EQ(limited.session, nullptr);
  EXPECT_EQ(limited.error.code, HUSK_LIMIT);
  EXPECT_NE(std::strstr(limited.error.text, "the session's arena in host memory: 8032 bytes"),
            nullptr)
      << limited.error.text;
  fake.fake_fail_call("cuMemAllocHost", 1, 2);
  LoadedProgram full(kSquareOnHost, nullptr, nullptr, all);
  EXPECT_EQ(full.session, nullptr);
  EXPECT_EQ(full.error.code, HUSK_OUT_OF_MEMORY);
  EXPECT_NE(std::strstr(full.error.text, "the session's arena in host memory, 8032 bytes: "),
            nullptr)
      << full.error.text;
}

// Inputs and outputs on the host: an op reads and writes the caller's memory, copies join it with
// the device. Session-owned outputs and copies of misaligned inputs lie on the host too.
TEST_F(HostSteps, TakeInputsAndGiveOutputsOnTheHost) {
  const char* const text = R"(
function values {
  input x tensor f32 [1..1000]
  input w tensor f32 [1..1000]
  output y tensor f32 rank 1
  output z tensor f32 rank 1
  output first float
  variant gpu {
    let n = size(x, 0)
    check_eq(size(w, 0), n)
    buffer x of input bytes mul(n, 4) align 64 on host
    buffer w of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4) on host
    buffer z of output bytes mul(n, 4) on host
    buffer a bytes mul(n, 4) align 64
    buffer b bytes mul(n, 4) align 64
    copy (write a, read x)
    launch join grid (cdiv(n, 128), 1, 1) (read a, read w, write b, n)
    copy (write z, read b)
    extern "test::square" (read tensor x f32 [n] [1], write tensor y f32 [n] [1])
    read f32 (read x[0, 4])
    return (tensor y f32 [n] [1], tensor z f32 [n] [1], float fresult(0))
  }
}
)";
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.copy_misaligned = 1;
  LoadedProgram m(text, &options, nullptr, ops(&calls));
  ASSERT_NE(m.session, nullptr) << m.error.text;
  for (uint32_t i = 0; i < 2; ++i) {
    husk_value_info in = HUSK_VALUE_INFO_INIT, out = HUSK_VALUE_INFO_INIT;
    ASSERT_EQ(husk_program_input(m.program, 0, i, &in, &m.error), HUSK_OK);
    ASSERT_EQ(husk_program_output(m.program, 0, i, &out, &m.error), HUSK_OK);
    EXPECT_EQ(in.on_host, i == 0);
    EXPECT_EQ(in.alignment, i == 0 ? 64u : 1u);
    EXPECT_EQ(out.on_host, 1);
  }
  const std::vector<float> weights = {1, 1, 2, 2, 3};
  void* w = m.alloc(20);
  ASSERT_EQ(m.upload(w, weights.data(), 20), HUSK_OK);
  alignas(64) float memory[8];
  const std::vector<float> squares = {1, 4, 9, 16, 25}, differences = {0, -3, 1, 2, -8};
  for (const int shift : {0, 1, 0}) {  // 1: a misaligned input
    std::memcpy(memory + shift, x.data(), 20);
    float y[5] = {};
    DeviceTensor in = device_vector(memory + shift, 5), on_device = device_vector(w, 5),
                 out = device_vector(y, 5);
    in.dl.device = out.dl.device = {kDLCPU, 0};
    const husk_value inputs[] = {in.value(), on_device.value()};
    husk_value outputs[3] = {out.value(), {}, {}};
    ASSERT_EQ(husk_session_resize(m.session, 0, inputs, 2, &m.error), HUSK_OK) << m.error.text;
    for (int run = 0; run < 2; ++run) {
      ASSERT_EQ(husk_session_run(m.session, 0, m.stream, inputs, 2, outputs, 3, &m.error), HUSK_OK)
          << m.error.text;
      EXPECT_EQ(std::vector<float>(y, y + 5), squares) << "the op has written it";
    }
    ASSERT_EQ(outputs[1].kind, HUSK_VALUE_TENSOR);
    EXPECT_EQ(outputs[1].as.tensor->device.device_type, kDLCPU);
    ASSERT_EQ(husk_session_wait(m.session, &m.error), HUSK_OK);
    const auto* z = static_cast<const float*>(outputs[1].as.tensor->data);
    EXPECT_EQ(std::vector<float>(z, z + 5), differences);
    EXPECT_EQ(outputs[2].as.f, 1);

    float other[5] = {};  // pageable memory, which a copy has written when the run returns
    DeviceTensor plain = device_vector(other, 5);
    plain.dl.device = {kDLCPU, 0};
    outputs[1] = plain.value();
    ASSERT_EQ(husk_session_run(m.session, 0, m.stream, inputs, 2, outputs, 3, &m.error), HUSK_OK)
        << m.error.text;
    EXPECT_EQ(std::vector<float>(other, other + 5), differences);

    in.dl.device = {kDLCUDA, 0};
    EXPECT_EQ(husk_session_run(m.session, 0, m.stream, inputs, 2, outputs, 3, &m.error),
              HUSK_INVALID_INPUT);
    EXPECT_STREQ(m.error.text,
                 "function 'values': input 'x' lies on DLPack device 2:0, it must lie on the host: "
                 "copy it there");
    in.dl.device = {kDLCUDAHost, 0};
    EXPECT_EQ(husk_session_run(m.session, 0, m.stream, inputs, 2, outputs, 3, &m.error), HUSK_OK);
    on_device.dl.device = {kDLCPU, 0};
    EXPECT_EQ(husk_session_run(m.session, 0, m.stream, inputs, 2, outputs, 3, &m.error),
              HUSK_INVALID_INPUT);
  }
  EXPECT_EQ(m.stats(m.session).runs_as_list, 12u);
}

// One name may be an op of the host and one of the device: each step calls the op of its place.
TEST_F(HostSteps, CallTheOpOfTheirPlace) {
  const char* const text = R"(
function both {
  input x tensor f32 [1..1000]
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer a bytes mul(n, 4) align 64 on host
    buffer b bytes mul(n, 4) align 64 on host
    buffer d bytes mul(n, 4) align 64
    copy (write a, read x)
    extern "test::square" (read tensor a f32 [n] [1], write tensor b f32 [n] [1])
    copy (write d, read b)
    extern "test::square" (read tensor d f32 [n] [1], write tensor y f32 [n] [1])
    return (tensor y f32 [n] [1])
  }
}
)";
  Calls on_host, on_device;
  const husk_op host = op_of("test::square", square_on_host, "in out:w", HUSK_OP_ON_HOST, &on_host);
  const husk_op device = op_of("test::square", square_on_device, "in out:w", HUSK_OP_ON_DEVICE,
                               &on_device);
  for (const bool host_first : {true, false}) {
    LoadedProgram m(text, nullptr, nullptr,
                    host_first ? std::vector{host, device} : std::vector{device, host});
    ASSERT_NE(m.session, nullptr) << m.error.text;
    EXPECT_EQ(run(m, x, -1, x.size()), (std::vector<float>{1, 16, 81, 256, 625}));
  }
  EXPECT_EQ(on_host.squares, 6);
  EXPECT_EQ(on_device.squares, 6);

  LoadedProgram no_device(text, nullptr, nullptr, {host});
  EXPECT_EQ(no_device.program, nullptr);
  EXPECT_EQ(no_device.error.code, HUSK_UNSUPPORTED);
  EXPECT_STREQ(no_device.error.text,
               "op 'test::square' computes on the host, the tensors of its step lie on the device: "
               "export the model for this target again, or register an op with husk_op.place "
               "HUSK_OP_ON_DEVICE");
  LoadedProgram no_host(text, nullptr, nullptr, {device});
  EXPECT_EQ(no_host.program, nullptr);
  EXPECT_STREQ(no_host.error.text,
               "op 'test::square' computes on the device, the tensors of its step lie on the host: "
               "export the model for this target again, or register an op with husk_op.place "
               "HUSK_OP_ON_HOST");
  LoadedProgram none(text);
  EXPECT_EQ(none.error.code, HUSK_NOT_FOUND) << none.error.text;
  LoadedProgram unknown(text, nullptr, nullptr,
                        {op_of("test::square", square_on_host, "in out:w", 2)});
  EXPECT_EQ(unknown.error.code, HUSK_INVALID_ARGUMENT);
  EXPECT_STREQ(unknown.error.text, "op 'test::square': there is no place 2: husk_op.place");
}

TEST_F(HostSteps, NeedAPortWithHostMemory) {
  husk_port port = *husk_port_cuda();
  const std::vector<uint8_t>& file = artifact(kSquareOnHost);
  void* bytes = std::aligned_alloc(4096, (file.size() + 4095) / 4096 * 4096);
  std::memcpy(bytes, file.data(), file.size());
  for (const bool old : {true, false}) {
    if (old)
      port.struct_size = offsetof(husk_port, alloc_host);
    else
      port.free_host = nullptr;
    husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
    options.port = &port;
    husk_engine* engine = nullptr;
    husk_program* program = nullptr;
    husk_error error = {};
    ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
    EXPECT_EQ(husk_program_load(engine, bytes, file.size(), nullptr, nullptr, &program, &error),
              HUSK_UNSUPPORTED);
    EXPECT_STREQ(error.text,
                 "function 'square' has buffers in host memory beside the device, which port "
                 "'cuda' does not allocate (husk_port.alloc_host): export it without steps on the "
                 "host");
    husk_engine_release(engine);
    port.struct_size = sizeof port;
  }
  std::free(bytes);
}

}  // namespace
}  // namespace husk::test
