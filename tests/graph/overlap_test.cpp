// Work beside a collective in a graph: steps that neither read nor overwrite its tensors run while
// it waits for other ranks. The op of these tests waits until the test lets it go on.
#include <cstring>
#include <functional>
#include <memory>

#include "../values.h"
#include "device.h"
#include "loaded_program.h"
#include "program/engine.h"

namespace husk::test {
namespace {

constexpr int64_t kExchanged = 16384;  // the elements of each tensor
constexpr uint64_t kExchangedBytes = kExchanged * sizeof(float);

// The op "test::exchange": y = 3 x, which does not end while `is_held`.
struct ExchangeOp {
  const Fake* fake;
  bool is_held = false;
  std::vector<int64_t> ended;  // the numbers of the calls, in the order of their work

  husk_op op() {
    return {sizeof(husk_op),
            0,
            "test::exchange",
            call,
            this,
            nullptr,
            "number self out:w token:w",
            nullptr,
            HUSK_OP_ON_DEVICE,
            HUSK_OP_CAPTURABLE | HUSK_OP_WAITS_FIRST,
            0,
            0};
  }

 private:
  struct Work {
    ExchangeOp* self;
    int64_t number;
    const float* x;
    float* y;
  };
  static husk_status call(const husk_op_context* context, const husk_op_arg* args, uint32_t,
                          husk_error*) {
    auto* self = static_cast<ExchangeOp*>(context->user);
    const Work work = {self, args[0].i, static_cast<const float*>(args[1].data),
                       static_cast<float*>(args[2].data)};
    const fake_range ranges[] = {
        {work.x, kExchangedBytes}, {work.y, kExchangedBytes}, {args[3].data, 1}};
    const auto compute = [](const void* data) {
      Work w;
      std::memcpy(&w, data, sizeof w);
      for (int64_t i = 0; i < kExchanged; ++i) w.y[i] = 3 * w.x[i];
      w.self->ended.push_back(w.number);
    };
    const auto state = [](const void* data) -> int32_t {
      Work w;
      std::memcpy(&w, data, sizeof w);
      return w.self->is_held;
    };
    const int32_t code = self->fake->fake_queue_endless("exchange", context->stream, compute, state,
                                                        &work, sizeof work, ranges, 3);
    return code ? HUSK_DEVICE : HUSK_OK;
  }
};

// A function of x with the results y and z. `buffers` are names in the arena.
std::string exchanging(const std::vector<std::string>& buffers, const std::string& steps) {
  std::string text = R"(
function f {
  input x tensor f32 [16384]
  output y tensor f32 rank 1
  output z tensor f32 rank 1
  variant gpu {
    buffer x of input bytes 65536
    buffer y of output bytes 65536
    buffer z of output bytes 65536
    buffer order bytes 1
)";
  for (const std::string& name : buffers) text += "    buffer " + name + " bytes 65536 align 256\n";
  return text + steps + "    return (tensor y f32 [16384] [1], tensor z f32 [16384] [1])\n  }\n}\n";
}
std::string shift_step(const std::string& from, const std::string& to, int k) {
  return "    launch shift grid (128, 1, 1) (read " + from + ", write " + to + ", " +
         std::to_string(k) + ", 16384)\n";
}
std::string join_step(const std::string& a, const std::string& b, const std::string& to) {
  return "    launch join grid (128, 1, 1) (read " + a + ", read " + b + ", write " + to +
         ", 16384)\n";
}
std::string exchange_step(int number, const std::string& from, const std::string& to) {
  return "    extern \"test::exchange\" (" + std::to_string(number) + ", read tensor " + from +
         " f32 [16384] [1], write tensor " + to +
         " f32 [16384] [1], write tensor order u8 [1] [1])\n";
}

// Three kernels between a collective and its reader.
const std::string kBetween = exchanging({"s", "r", "b0", "b1"},
                                        shift_step("x", "s", 1) + exchange_step(0, "s", "r") +
                                            shift_step("x", "b0", 5) + shift_step("b0", "b1", 6) +
                                            shift_step("b1", "z", 7) + shift_step("r", "y", 0));
float y_between(float x) { return 3 * (x * 0.5f + 1) * 0.5f; }
float z_between(float x) { return ((x * 0.5f + 5) * 0.5f + 6) * 0.5f + 7; }

// The same behind steps that have five tensors at once. A plan that keeps all independent steps
// apart takes two tensors more than one for steps in their order.
const std::string kBehindMany = exchanging(
    {"a0", "a1", "a2", "a3", "c0", "c1", "s", "r", "b0", "b1"},
    shift_step("x", "a0", 0) + shift_step("a0", "a1", 1) + shift_step("a1", "a2", 2) +
        shift_step("a2", "a3", 3) + join_step("a0", "a1", "c0") + join_step("a2", "a3", "c1") +
        join_step("c0", "c1", "s") + exchange_step(0, "s", "r") + shift_step("x", "b0", 5) +
        shift_step("b0", "b1", 6) + shift_step("b1", "z", 7) + shift_step("r", "y", 0));
float y_behind_many(float x) {
  const float a0 = x * 0.5f, a1 = a0 * 0.5f + 1, a2 = a1 * 0.5f + 2, a3 = a2 * 0.5f + 3;
  return 3 * ((a0 - a1) - (a2 - a3)) * 0.5f;
}

class Overlap : public FakeTest {
 protected:
  // A program with its tensors and the op.
  struct Machine {
    Machine(const Fake& driver, const std::string& text, int32_t mode, int32_t percent = 0)
        : exchanges{&driver, false, {}} {
      options.mode = mode;
      options.parallel_memory_percent = percent;
      m = std::make_unique<LoadedProgram>(text, &options, nullptr,
                                          std::vector<husk_op>{exchanges.op()});
      for (size_t i = 0; i < 3; ++i) {
        tensors[i] = static_cast<float*>(m->alloc(kExchangedBytes));
        values[i] = device_vector(tensors[i], kExchanged);
      }
      for (int64_t i = 0; i < kExchanged; ++i)
        x[static_cast<size_t>(i)] = static_cast<float>(i % 97);
      if (m->session && m->upload(tensors[0], x.data(), kExchangedBytes) == HUSK_OK) {
        const husk_value input = values[0].value();
        is_ready = husk_session_resize(m->session, 0, &input, 1, &m->error) == HUSK_OK;
      }
    }
    husk_status run() {
      std::fill_n(y(), kExchanged, -1.0f);
      std::fill_n(z(), kExchanged, -1.0f);
      const husk_value input = values[0].value();
      husk_value outputs[] = {values[1].value(), values[2].value()};
      return husk_session_run(m->session, 0, m->stream, &input, 1, outputs, 2, &m->error);
    }
    // Runs all work that can run now. Returns whether that is all.
    bool is_done() {
      const cuda::Current current(m->engine->device);
      const cuda::Driver& driver = cuda::as_device(m->engine->device).driver;
      return driver.cuStreamQuery(cuda::as_stream(m->stream)) == cuda::CUDA_SUCCESS;
    }
    husk_status wait() { return husk_session_wait(m->session, &m->error); }
    bool has(const float* found, const std::function<float(float)>& wanted) const {
      for (size_t i = 0; i < x.size(); ++i)
        if (found[i] != wanted(x[i])) return false;
      return true;
    }
    float* y() { return tensors[1]; }
    float* z() { return tensors[2]; }

    ExchangeOp exchanges;
    husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
    std::unique_ptr<LoadedProgram> m;
    float* tensors[3] = {};
    DeviceTensor values[3] = {};
    std::vector<float> x = std::vector<float>(kExchanged);
    bool is_ready = false;
  };

  // The steps between a collective and its reader run while the collective waits.
  void expect_overlap(Machine& machine, float (*y)(float), float (*z)(float)) {
    ASSERT_TRUE(machine.is_ready) << machine.m->error.text;
    for (uint32_t seed = 1; seed <= 10; ++seed) {
      fake.fake_schedule(seed, seed * 7);
      machine.exchanges.is_held = true;
      ASSERT_EQ(machine.run(), HUSK_OK) << machine.m->error.text;
      EXPECT_FALSE(machine.is_done());
      EXPECT_TRUE(machine.has(machine.z(), z)) << "with seed " << seed;
      EXPECT_TRUE(machine.has(machine.y(), [](float) { return -1.0f; }));
      machine.exchanges.is_held = false;
      ASSERT_EQ(machine.wait(), HUSK_OK) << machine.m->error.text;
      EXPECT_TRUE(machine.has(machine.y(), y)) << "with seed " << seed;
      EXPECT_TRUE(machine.has(machine.z(), z)) << "with seed " << seed;
    }
    EXPECT_EQ(machine.m->stats(machine.m->session).runs_as_graph, 10u);
  }
};

TEST_F(Overlap, StepsBetweenACollectiveAndItsReaderDoNotWaitForIt) {
  Machine machine(fake, kBetween, HUSK_MODE_GRAPH);
  expect_overlap(machine, y_between, z_between);
  const husk_session_stats stats = machine.m->stats(machine.m->session);
  EXPECT_EQ(stats.graph_nodes, 6u);
  EXPECT_EQ(stats.graph_edges, 4u);  // two chains
}

TEST_F(Overlap, MemoryOfACollectiveHasNoOtherUseMeanwhile) {
  Machine machine(fake, kBehindMany, HUSK_MODE_GRAPH);
  expect_overlap(machine, y_behind_many, z_between);
  Machine apart(fake, kBehindMany, HUSK_MODE_GRAPH, 100);
  expect_overlap(apart, y_behind_many, z_between);
  const uint64_t bytes = machine.m->stats(machine.m->session).arena_bytes;
  EXPECT_LT(bytes, 6 * kExchangedBytes);
  EXPECT_GE(apart.m->stats(apart.m->session).arena_bytes, bytes + kExchangedBytes);
}

// Without memory for it, the steps between a collective and its reader wait, and have the right
// results.
TEST_F(Overlap, TheSmallestPlanMayMakeStepsWait) {
  Machine machine(fake, kBehindMany, HUSK_MODE_GRAPH, -1);
  ASSERT_TRUE(machine.is_ready) << machine.m->error.text;
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    fake.fake_schedule(seed, 30);
    ASSERT_EQ(machine.run(), HUSK_OK) << machine.m->error.text;
    ASSERT_EQ(machine.wait(), HUSK_OK) << machine.m->error.text;
    EXPECT_TRUE(machine.has(machine.y(), y_behind_many));
    EXPECT_TRUE(machine.has(machine.z(), z_between));
  }
}

// Three collectives that do not depend on one another, and the steps of each.
TEST_F(Overlap, CollectivesKeepTheirOrder) {
  const std::string text = exchanging(
      {"s0", "s1", "s2", "r0", "r1", "r2", "b"},
      shift_step("x", "s0", 1) + exchange_step(0, "s0", "r0") + shift_step("x", "s1", 2) +
          exchange_step(1, "s1", "r1") + shift_step("r0", "b", 3) + shift_step("x", "s2", 4) +
          exchange_step(2, "s2", "r2") + join_step("b", "r1", "z") + join_step("r2", "r1", "y"));
  const auto r = [](float x, int k) { return 3 * (x * 0.5f + static_cast<float>(k)); };
  for (const int32_t mode : {HUSK_MODE_GRAPH, HUSK_MODE_LIST}) {
    Machine machine(fake, text, mode);
    ASSERT_TRUE(machine.is_ready) << machine.m->error.text;
    for (uint32_t seed = 1; seed <= 40; ++seed) {
      fake.fake_schedule(seed, seed % 3 * 40);
      machine.exchanges.ended.clear();
      ASSERT_EQ(machine.run(), HUSK_OK) << machine.m->error.text;
      ASSERT_EQ(machine.wait(), HUSK_OK) << machine.m->error.text;
      EXPECT_EQ(machine.exchanges.ended, (std::vector<int64_t>{0, 1, 2}));
      EXPECT_TRUE(machine.has(machine.y(), [&](float x) { return r(x, 4) - r(x, 2); }));
      EXPECT_TRUE(
          machine.has(machine.z(), [&](float x) { return (r(x, 1) * 0.5f + 3) - r(x, 2); }));
    }
  }
}

}  // namespace
}  // namespace husk::test
