// Programs that call "husk::matmul", on the fake cuBLASLt: when plans are chosen, which calls a run
// makes, and all failures.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "../values.h"
#include "loaded_program.h"
#include "programs.h"

namespace husk::test {
namespace {

std::vector<float> numbers(size_t n, int seed = 0) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i)
    x[i] = static_cast<float>((i * 7 + static_cast<size_t>(seed)) % 17) / 4 - 2;
  return x;
}

// An allocator of host memory that counts allocations.
std::atomic<uint64_t> host_allocations{0};
const husk_allocator kCounting = {nullptr,
                                  [](void*, size_t size, size_t align) {
                                    ++host_allocations;
                                    return std::aligned_alloc(align,
                                                              (size + align - 1) / align * align);
                                  },
                                  [](void*, void* pointer) { std::free(pointer); }};

class CublasTest : public FakeTest {
 protected:
  husk_status resize(LoadedProgram& m, int64_t n) {
    DeviceTensor x = device_vector(nullptr, n);
    husk_value input = x.value();
    return husk_session_resize(m.session, 0, &input, 1, &m.error);
  }
  // Runs the program and returns the status; after HUSK_OK it compares the result.
  husk_status run(LoadedProgram& m, int64_t n) {
    const std::vector<float> x = numbers(static_cast<size_t>(n), static_cast<int>(n));
    const size_t bytes = x.size() * 4;
    if (!in) {
      in = m.alloc(16000);
      out = m.alloc(16000);
    }
    EXPECT_EQ(m.upload(in, x.data(), bytes), HUSK_OK);
    DeviceTensor from = device_vector(in, n), to = device_vector(out, n);
    husk_value input = from.value(), output = to.value();
    const uint64_t allocated = host_allocations, chosen = heuristics(),
                   waited = fake.fake_calls("cuStreamSynchronize");
    const husk_status status = husk_session_run(m.session, 0, m.stream, &input, 1, &output, 1,
                                                &m.error);
    run_allocations = host_allocations - allocated;
    run_choices = heuristics() - chosen;
    run_waits = fake.fake_calls("cuStreamSynchronize") - waited;
    std::vector<float> y(x.size());
    EXPECT_EQ(m.download(y.data(), out, bytes), HUSK_OK);
    if (status == HUSK_OK) {
      EXPECT_EQ(y, projections_of(x));
    }
    return status;
  }
  uint64_t heuristics() { return fake.fake_calls("cublasLtMatmulAlgoGetHeuristic"); }
  bool says(const LoadedProgram& m, std::initializer_list<const char*> words) {
    for (const char* word : words)
      if (!std::strstr(m.error.text, word)) return false;
    return true;
  }

  void *in = nullptr, *out = nullptr;
  uint64_t run_allocations = 0, run_choices = 0, run_waits = 0;
};

TEST_F(CublasTest, PlansAreChosenAtResizeAndKept) {
  for (const int32_t mode : {HUSK_MODE_LIST, HUSK_MODE_AUTO}) {
    fake.fake_reset();
    in = out = nullptr;
    husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
    options.mode = mode;
    LoadedProgram m(kProjections, &options, &kCounting);
    ASSERT_NE(m.session, nullptr) << m.error.text;
    EXPECT_EQ(fake.fake_calls("cublasLtCreate"), 1u);
    for (const int64_t n : {200, 48}) {
      const uint64_t before = heuristics();
      ASSERT_EQ(resize(m, n), HUSK_OK) << m.error.text;
      EXPECT_EQ(heuristics() - before, 2u);  // one with a bias, one without
    }
    for (int round = 0; round < 20; ++round) {
      ASSERT_EQ(run(m, round % 2 ? 200 : 48), HUSK_OK) << m.error.text;
      EXPECT_EQ(run_choices, 0u);
      EXPECT_EQ(run_allocations, 0u);
      EXPECT_EQ(run_waits, 0u);
    }
    // A graph has the products of the last resize, which captured them, as the one before it did.
    const bool list = mode == HUSK_MODE_LIST;
    EXPECT_EQ(fake.fake_calls("cublasLtMatmul"), list ? 40u : 20u + 2 * 2);
    EXPECT_EQ(m.stats(m.session).runs_as_list, list ? 20u : 10u);
    EXPECT_EQ(m.stats(m.session).runs_as_graph, list ? 0u : 10u);
  }
}

TEST_F(CublasTest, AShapeThatWasNotPreparedIsChosenInItsFirstRun) {
  LoadedProgram m(kProjections, nullptr, &kCounting);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(run(m, 404), HUSK_OK) << m.error.text;
    EXPECT_EQ(run_choices, round ? 0u : 2u);
    EXPECT_EQ(run_allocations, 0u);
    EXPECT_EQ(run_waits, 0u);
  }
}

TEST_F(CublasTest, AFailedStartOfTheLibraryFailsTheLoad) {
  fake.fake_fail_call("cublasLtCreate", 1, 1);
  LoadedProgram m(kProjections);
  EXPECT_EQ(m.program, nullptr);
  EXPECT_TRUE(says(m, {"cublasLtCreate", "CUBLAS_STATUS_NOT_INITIALIZED"})) << m.error.text;
}

TEST_F(CublasTest, AProductWithoutAKernelFailsTheResize) {
  LoadedProgram m(kProjections);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  fake.fake_fail_call("cublasLtMatmulAlgoGetHeuristic", 2, -1);
  EXPECT_EQ(resize(m, 400), HUSK_UNSUPPORTED);
  EXPECT_EQ(m.error.step, 2);
  EXPECT_TRUE(says(m, {"husk::matmul", "down", "f32 [100, 4] [4, 4]", "gemm='triton'"}))
      << m.error.text;
  EXPECT_EQ(resize(m, 400), HUSK_OK) << m.error.text;
  EXPECT_EQ(run(m, 400), HUSK_OK) << m.error.text;
}

TEST_F(CublasTest, AFailedProductFailsTheRunAndTheNextRunWorks) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.mode = HUSK_MODE_LIST;
  LoadedProgram m(kProjections, &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  ASSERT_EQ(resize(m, 400), HUSK_OK) << m.error.text;
  fake.fake_fail_call("cublasLtMatmul", 2, 13);
  EXPECT_EQ(run(m, 400), HUSK_DEVICE);
  EXPECT_EQ(m.error.step, 2);
  EXPECT_EQ(m.error.driver_code, 13);
  EXPECT_TRUE(says(m, {"husk::matmul", "down", "cublasLtMatmul", "CUBLAS_STATUS_EXECUTION_FAILED"}))
      << m.error.text;
  EXPECT_EQ(run(m, 400), HUSK_OK) << m.error.text;
}

TEST_F(CublasTest, AnOpOfTheApplicationReplacesThePorts) {
  LoadedProgram m(kProjections);
  ASSERT_NE(m.engine, nullptr);
  int called = 0;
  const auto own = [](const husk_op_context* context, const husk_op_arg*, uint32_t, husk_error*) {
    ++*static_cast<int*>(context->user);
    return husk_status{HUSK_OK};
  };
  const husk_op op = {sizeof(husk_op),
                      0,
                      "husk::matmul",
                      own,
                      &called,
                      nullptr,
                      "a b bias alpha beta fast out:w workspace:w",
                      nullptr,
                      HUSK_OP_ON_DEVICE,
                      0,
                      0,
                      0};
  ASSERT_EQ(husk_engine_add_op(m.engine, &op, &m.error), HUSK_OK);
  const std::vector<uint8_t>& file = artifact(kProjections);
  void* bytes = std::aligned_alloc(4096, (file.size() + 4095) / 4096 * 4096);
  std::memcpy(bytes, file.data(), file.size());
  husk_program* program = nullptr;
  husk_session* session = nullptr;
  ASSERT_EQ(husk_program_load(m.engine, bytes, file.size(), nullptr, nullptr, &program, &m.error),
            HUSK_OK)
      << m.error.text;
  ASSERT_EQ(husk_session_create(program, nullptr, &session, &m.error), HUSK_OK) << m.error.text;
  DeviceTensor from = device_vector(m.alloc(64), 16), to = device_vector(m.alloc(64), 16);
  husk_value input = from.value(), output = to.value();
  // The application's op has no `prepare`.
  EXPECT_EQ(husk_session_resize(session, 0, &input, 1, &m.error), HUSK_OK) << m.error.text;
  EXPECT_EQ(husk_session_run(session, 0, m.stream, &input, 1, &output, 1, &m.error), HUSK_OK)
      << m.error.text;
  EXPECT_EQ(called, 2);
  husk_session_release(session);
  husk_program_release(program);
  std::free(bytes);
}

TEST_F(CublasTest, SessionsOfSeveralThreadsShareThePlans) {
  LoadedProgram m(kProjections);
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
      DeviceTensor from = device_vector(own.in, 200), to = device_vector(own.out, 200);
      husk_value input = from.value(), output = to.value();
      for (int round = 0; round < 30; ++round)
        if (husk_session_run(own.session, 0, nullptr, &input, 1, &output, 1, &own.error) != HUSK_OK)
          return;
      own.done = husk_session_wait(own.session, &own.error) == HUSK_OK;
    });
  for (std::thread& thread : threads) thread.join();
  for (Own& own : all) {
    EXPECT_TRUE(own.done) << own.error.text;
    std::vector<float> y(200);
    ASSERT_EQ(m.download(y.data(), own.out, 800), HUSK_OK);
    EXPECT_EQ(y, projections_of(x));
  }
  EXPECT_EQ(heuristics(), 2u);
}

// Each call of the driver and of the library fails once.
TEST_F(CublasTest, EveryCallFailsOnce) {
  uint64_t calls = 0, failures = 0;
  for (uint64_t n = 0; n <= calls; ++n) {
    SCOPED_TRACE(n);
    fake.fake_reset();
    in = out = nullptr;
    fake.fake_fail_at(n, 2);
    {
      LoadedProgram m(kProjections);
      if (!m.session) {
        ++failures;
        EXPECT_GT(std::strlen(m.error.text), 10u);
      } else {
        husk_status status = resize(m, 200);
        if (status == HUSK_OK) {  // run() expects its allocations to succeed
          const bool before = fake.fake_failed();
          if (before || n == 0)
            status = run(m, 200);
          else {
            void *a = m.alloc(800), *b = m.alloc(800);
            DeviceTensor from = device_vector(a, 200), to = device_vector(b, 200);
            husk_value input = from.value(), output = to.value();
            if (a && b)
              status = husk_session_run(m.session, 0, m.stream, &input, 1, &output, 1, &m.error);
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
