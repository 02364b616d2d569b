// Programs that leave products to cuBLASLt, on the fake one: when plans are chosen, what a run costs, and every failure.
#include "../values.h"
#include "machine.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace husk::test {
namespace {

// y = (2 x + 0.25) w^T + b, by rows of four, then y w^T, minus x. What lies in the arena is overwritten by each product's
// workspace where the planner errs.
const char* const kProjections = R"(
constant w f32 [4, 4] bytes "0000803f000000400000404000008040000000000000803f00000000000080bf0000003f0000003f0000003f0000003f0000803f0000000000000000000000c0"
constant b f32 [4] bytes "0000803f000000400000404000008040"
function project {
  input x tensor f32 [4..4000]
  output y tensor f32 rank 1
  variant gpu {
    let n = size(x, 0)
    let rows = floordiv(n, 4)
    check_eq(mul(rows, 4), n) "rows of four"
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer h bytes mul(n, 4) align 64
    buffer g bytes mul(n, 4) align 64
    buffer f bytes mul(n, 4) align 64
    buffer space bytes 1024 align 256
    buffer other_space bytes 1024 align 256
    launch scale grid (cdiv(n, 128), 1, 1) (read x, write h, 2.0, n)
    extern "husk::matmul" (read tensor h f32 [rows, 4] [4, 1], read tensor w f32 [4, 4] [1, 4], read tensor b f32 [4] [1], 1.0, 1.0,
      false, write tensor g f32 [rows, 4] [4, 1], write tensor space u8 [1024] [1]) at "up"
    extern "husk::matmul" (read tensor g f32 [rows, 4] [4, 1], read tensor w f32 [4, 4] [1, 4], none, 1.0, 0.0,
      false, write tensor f f32 [rows, 4] [4, 1], write tensor other_space u8 [1024] [1]) at "down"
    launch join grid (cdiv(n, 128), 1, 1) (read f, read x, write y, n)
    return (tensor y f32 [n] [1])
  }
}
)";
constexpr float kW[4][4] = {{1, 2, 3, 4}, {0, 1, 0, -1}, {0.5f, 0.5f, 0.5f, 0.5f}, {1, 0, 0, -2}};
constexpr float kB[4] = {1, 2, 3, 4};

std::vector<float> by_rows(const std::vector<float>& x, const float* bias) {
  std::vector<float> y(x.size());
  for (size_t row = 0; row < x.size(); row += 4)
    for (size_t i = 0; i < 4; ++i) {
      y[row + i] = bias ? bias[i] : 0;
      for (size_t k = 0; k < 4; ++k) y[row + i] += x[row + k] * kW[i][k];
    }
  return y;
}

std::vector<float> projected(const std::vector<float>& x) {
  std::vector<float> y = x;
  for (float& value : y) value = value * 2 + 0.25f;
  y = by_rows(by_rows(y, kB), nullptr);
  for (size_t i = 0; i < x.size(); ++i) y[i] -= x[i];
  return y;
}

std::vector<float> numbers(size_t n, int seed = 0) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>((i * 7 + static_cast<size_t>(seed)) % 17) / 4 - 2;
  return x;
}

// Host memory, counted.
std::atomic<uint64_t> allocations{0};
const husk_allocator kCounting = {nullptr,
                                  [](void*, size_t size, size_t align) {
                                    ++allocations;
                                    return std::aligned_alloc(align, (size + align - 1) / align * align);
                                  },
                                  [](void*, void* pointer) { std::free(pointer); }};

class LibraryTest : public FakeTest {
 protected:
  husk_status resize(Machine& m, int64_t n) {
    DeviceTensor x = Machine::vector(nullptr, n);
    husk_value input = x.value();
    return husk_session_resize(m.session, 0, &input, 1, &m.error);
  }
  // The status of the run; where it is HUSK_OK the result was right.
  husk_status run(Machine& m, int64_t n) {
    const std::vector<float> x = numbers(static_cast<size_t>(n), static_cast<int>(n));
    const size_t bytes = x.size() * 4;
    if (!in) {
      in = m.alloc(16000);
      out = m.alloc(16000);
    }
    EXPECT_EQ(m.upload(in, x.data(), bytes), HUSK_OK);
    DeviceTensor from = Machine::vector(in, n), to = Machine::vector(out, n);
    husk_value input = from.value(), output = to.value();
    const uint64_t allocated = allocations, chosen = heuristics(), waited = fake.fake_calls("cuStreamSynchronize");
    const husk_status status = husk_session_run(m.session, 0, m.stream, &input, 1, &output, 1, &m.error);
    run_allocations = allocations - allocated;
    run_choices = heuristics() - chosen;
    run_waits = fake.fake_calls("cuStreamSynchronize") - waited;
    std::vector<float> y(x.size());
    EXPECT_EQ(m.download(y.data(), out, bytes), HUSK_OK);
    if (status == HUSK_OK) {
      EXPECT_EQ(y, projected(x));
    }
    return status;
  }
  uint64_t heuristics() { return fake.fake_calls("cublasLtMatmulAlgoGetHeuristic"); }
  bool says(const Machine& m, std::initializer_list<const char*> words) {
    for (const char* word : words)
      if (!std::strstr(m.error.text, word)) return false;
    return true;
  }

  void *in = nullptr, *out = nullptr;
  uint64_t run_allocations = 0, run_choices = 0, run_waits = 0;
};

TEST_F(LibraryTest, PlansAreChosenAtResizeAndKept) {
  for (const int32_t mode : {HUSK_MODE_LIST, HUSK_MODE_AUTO}) {
    fake.fake_reset();
    in = out = nullptr;
    husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
    options.mode = mode;
    Machine m(kProjections, &options, &kCounting);
    ASSERT_NE(m.session, nullptr) << m.error.text;
    EXPECT_EQ(fake.fake_calls("cublasLtCreate"), 1u);
    for (const int64_t n : {200, 48}) {
      const uint64_t before = heuristics();
      ASSERT_EQ(resize(m, n), HUSK_OK) << m.error.text;
      EXPECT_EQ(heuristics() - before, 2u);   // one with a bias, one without
    }
    for (int round = 0; round < 20; ++round) {
      ASSERT_EQ(run(m, round % 2 ? 200 : 48), HUSK_OK) << m.error.text;
      EXPECT_EQ(run_choices, 0u);
      EXPECT_EQ(run_allocations, 0u);
      EXPECT_EQ(run_waits, 0u);
    }
    EXPECT_EQ(fake.fake_calls("cublasLtMatmul"), 40u);
    EXPECT_EQ(m.stats(m.session).runs_as_list, 20u);
  }
}

TEST_F(LibraryTest, AShapeThatWasNotPreparedIsChosenInItsFirstRun) {
  Machine m(kProjections, nullptr, &kCounting);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(run(m, 404), HUSK_OK) << m.error.text;
    EXPECT_EQ(run_choices, round ? 0u : 2u);
    EXPECT_EQ(run_allocations, 0u);
    EXPECT_EQ(run_waits, 0u);
  }
}

TEST_F(LibraryTest, ALibraryThatDoesNotStartIsToldWhereTheProgramIsOpened) {
  fake.fake_fail_call("cublasLtCreate", 1, 1);
  Machine m(kProjections);
  EXPECT_EQ(m.program, nullptr);
  EXPECT_TRUE(says(m, {"cublasLtCreate", "CUBLAS_STATUS_NOT_INITIALIZED"})) << m.error.text;
}

TEST_F(LibraryTest, AProductWithoutAKernelIsToldAtResize) {
  Machine m(kProjections);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  fake.fake_fail_call("cublasLtMatmulAlgoGetHeuristic", 2, -1);
  EXPECT_EQ(resize(m, 400), HUSK_UNSUPPORTED);
  EXPECT_EQ(m.error.step, 2);
  EXPECT_TRUE(says(m, {"husk::matmul", "down", "f32 [100, 4] [4, 4]", "libraries=True"})) << m.error.text;
  EXPECT_EQ(resize(m, 400), HUSK_OK) << m.error.text;
  EXPECT_EQ(run(m, 400), HUSK_OK) << m.error.text;
}

TEST_F(LibraryTest, AProductThatFailsIsToldAndTheNextRunWorks) {
  Machine m(kProjections);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  ASSERT_EQ(resize(m, 400), HUSK_OK) << m.error.text;
  fake.fake_fail_call("cublasLtMatmul", 2, 13);
  EXPECT_EQ(run(m, 400), HUSK_DEVICE);
  EXPECT_EQ(m.error.step, 2);
  EXPECT_EQ(m.error.driver_code, 13);
  EXPECT_TRUE(says(m, {"husk::matmul", "down", "cublasLtMatmul", "CUBLAS_STATUS_EXECUTION_FAILED"})) << m.error.text;
  EXPECT_EQ(run(m, 400), HUSK_OK) << m.error.text;
}

TEST_F(LibraryTest, AnOpOfTheApplicationGoesBeforeThePorts) {
  Machine m(kProjections);
  ASSERT_NE(m.engine, nullptr);
  int called = 0;
  const auto own = [](const husk_op_context* context, const husk_op_arg*, uint32_t, husk_error*) {
    ++*static_cast<int*>(context->user);
    return husk_status{HUSK_OK};
  };
  const husk_op op = {"husk::matmul", own, &called, nullptr};
  ASSERT_EQ(husk_engine_add_op(m.engine, &op, &m.error), HUSK_OK);
  const std::vector<uint8_t>& file = artifact(kProjections);
  void* bytes = std::aligned_alloc(4096, (file.size() + 4095) / 4096 * 4096);
  std::memcpy(bytes, file.data(), file.size());
  husk_program* program = nullptr;
  husk_session* session = nullptr;
  ASSERT_EQ(husk_program_load(m.engine, bytes, file.size(), nullptr, nullptr, &program, &m.error), HUSK_OK) << m.error.text;
  ASSERT_EQ(husk_session_create(program, nullptr, &session, &m.error), HUSK_OK) << m.error.text;
  DeviceTensor from = Machine::vector(m.alloc(64), 16), to = Machine::vector(m.alloc(64), 16);
  husk_value input = from.value(), output = to.value();
  EXPECT_EQ(husk_session_resize(session, 0, &input, 1, &m.error), HUSK_OK) << m.error.text;   // it has nothing to prepare
  EXPECT_EQ(husk_session_run(session, 0, m.stream, &input, 1, &output, 1, &m.error), HUSK_OK) << m.error.text;
  EXPECT_EQ(called, 2);
  husk_session_release(session);
  husk_program_release(program);
  std::free(bytes);
}

TEST_F(LibraryTest, SessionsOfSeveralThreadsShareThePlans) {
  Machine m(kProjections);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  struct Own {
    husk_session* session;
    void *in, *out;
    husk_error error;
    bool done;
  };
  std::vector<Own> all;
  const std::vector<float> x = numbers(200);
  for (int i = 0; i < 4; ++i) {
    all.push_back({m.open_session(nullptr), m.alloc(800), m.alloc(800), {}, false});
    ASSERT_EQ(m.upload(all.back().in, x.data(), 800), HUSK_OK);
  }
  ASSERT_EQ(resize(m, 200), HUSK_OK) << m.error.text;
  std::vector<std::thread> threads;
  for (Own& own : all)
    threads.emplace_back([&own] {
      DeviceTensor from = Machine::vector(own.in, 200), to = Machine::vector(own.out, 200);
      husk_value input = from.value(), output = to.value();
      for (int round = 0; round < 30; ++round)
        if (husk_session_run(own.session, 0, nullptr, &input, 1, &output, 1, &own.error) != HUSK_OK) return;
      own.done = husk_session_wait(own.session, &own.error) == HUSK_OK;
    });
  for (std::thread& thread : threads) thread.join();
  for (Own& own : all) {
    EXPECT_TRUE(own.done) << own.error.text;
    std::vector<float> y(200);
    ASSERT_EQ(m.download(y.data(), own.out, 800), HUSK_OK);
    EXPECT_EQ(y, projected(x));
  }
  EXPECT_EQ(heuristics(), 2u);
}

// Every call of the driver and of the library fails once.
TEST_F(LibraryTest, EveryCallFailsOnce) {
  uint64_t calls = 0, failures = 0;
  for (uint64_t n = 0; n <= calls; ++n) {
    SCOPED_TRACE(n);
    fake.fake_reset();
    in = out = nullptr;
    fake.fake_fail_at(n, 2);
    {
      Machine m(kProjections);
      if (!m.session) {
        ++failures;
        EXPECT_GT(std::strlen(m.error.text), 10u);
      } else {
        husk_status status = resize(m, 200);
        if (status == HUSK_OK) {   // run() needs the memory that it asks for first
          const bool before = fake.fake_failed();
          if (before || n == 0) status = run(m, 200);
          else {
            void *a = m.alloc(800), *b = m.alloc(800);
            DeviceTensor from = Machine::vector(a, 200), to = Machine::vector(b, 200);
            husk_value input = from.value(), output = to.value();
            if (a && b) status = husk_session_run(m.session, 0, m.stream, &input, 1, &output, 1, &m.error);
          }
        }
        fake.fake_fail_at(0, 0);
        if (status != HUSK_OK) {
          ++failures;
          EXPECT_GT(std::strlen(m.error.text), 10u);
        }
        EXPECT_EQ(resize(m, 200), HUSK_OK) << m.error.text;
        EXPECT_EQ(run(m, 200), HUSK_OK) << m.error.text;
      }
      if (n == 0) calls = fake.fake_calls(nullptr);
    }
    fake.fake_reset();
    ASSERT_EQ(fake.fake_live_objects(), 0u);
  }
  EXPECT_GT(calls, 100u);
  EXPECT_GT(failures, calls / 4);
}

}  // namespace
}  // namespace husk::test
