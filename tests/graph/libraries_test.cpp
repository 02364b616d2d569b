// Programs that call operators of cuSOLVER and cuFFT, on the fakes of these libraries: which calls
// a run makes, sessions of several threads, and failures.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "../values.h"
#include "loaded_program.h"
#include "programs.h"

namespace husk::test {
namespace {

std::vector<float> quarters(int64_t n) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 5 % 17) / 4 - 2;
  return x;
}

// An allocator of host memory that counts allocations.
std::atomic<uint64_t> counted_allocations{0};
const husk_allocator kCountingAllocator = {nullptr,
                                           [](void*, size_t size, size_t align) {
                                             ++counted_allocations;
                                             return std::aligned_alloc(
                                                 align, (size + align - 1) / align * align);
                                           },
                                           [](void*, void* pointer) { std::free(pointer); }};

struct LibraryCase {
  const char* name;
  const char* text;
  std::vector<float> (*y)(std::vector<float> x);
  const char* create;  // the function that starts the library, or makes the first plan
  const char* plan;    // the function that a resize calls for a new shape
  const char* compute;
  const char* status;  // of a failed `compute`
  int64_t calls;       // of `compute`, for 4 elements
};
const LibraryCase kCases[] = {
    {"Eigenvalues", kEigenvalues, eigenvalues_of, "cusolverDnCreate", "cusolverDnXsyevd_bufferSize",
     "cusolverDnXsyevd", "CUSOLVER_STATUS_EXECUTION_FAILED", 4},
    {"Spectrum", kSpectrum, spectrum_of, "cufftCreate", "cufftMakePlanMany64", "cufftXtExec",
     "CUFFT_EXEC_FAILED", 2}};

class LibraryTest : public FakeTest, public testing::WithParamInterface<LibraryCase> {
 protected:
  husk_status resize(LoadedProgram& m, int64_t n) {
    DeviceTensor x = device_vector(nullptr, n);
    husk_value input = x.value();
    return husk_session_resize(m.session, 0, &input, 1, &m.error);
  }
  // Runs the program and returns the status; after HUSK_OK it compares the result.
  husk_status run(LoadedProgram& m, int64_t n) {
    const std::vector<float> x = quarters(n);
    const size_t bytes = x.size() * 4;
    void *in = m.alloc(bytes), *out = m.alloc(bytes);
    EXPECT_EQ(m.upload(in, x.data(), bytes), HUSK_OK);
    DeviceTensor from = device_vector(in, n), to = device_vector(out, n);
    husk_value input = from.value(), output = to.value();
    const uint64_t allocated = counted_allocations;
    const husk_status status = husk_session_run(m.session, 0, m.stream, &input, 1, &output, 1,
                                                &m.error);
    run_allocations = counted_allocations - allocated;
    std::vector<float> y(x.size());
    EXPECT_EQ(m.download(y.data(), out, bytes), HUSK_OK);
    if (status == HUSK_OK) {
      EXPECT_EQ(y, GetParam().y(x));
    }
    return status;
  }
  uint64_t calls(const char* name) { return fake.fake_calls(name); }

  uint64_t run_allocations = 0;
};

TEST_P(LibraryTest, RunsInEveryModeWithoutAllocations) {
  for (const int32_t mode : {HUSK_MODE_LIST, HUSK_MODE_AUTO, HUSK_MODE_GRAPH}) {
    SCOPED_TRACE(mode);
    fake.fake_reset();
    husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
    options.mode = mode;
    LoadedProgram m(GetParam().text, &options, &kCountingAllocator);
    ASSERT_NE(m.session, nullptr) << m.error.text;
    for (const int64_t n : {4, 6}) ASSERT_EQ(resize(m, n), HUSK_OK) << m.error.text;
    const uint64_t planned = calls("cufftMakePlanMany64");
    for (int round = 0; round < 4; ++round) {
      ASSERT_EQ(run(m, round % 2 ? 4 : 6), HUSK_OK) << m.error.text;
      EXPECT_EQ(run_allocations, 0u);
    }
    EXPECT_EQ(calls("cufftMakePlanMany64"), planned);
    EXPECT_EQ(calls("cuMemAllocAsync"), calls("cuMemFreeAsync"));
    EXPECT_GT(calls("cuMemAllocAsync"), 0u);
  }
}

TEST_P(LibraryTest, AShapeThatWasNotPrepared) {
  LoadedProgram m(GetParam().text, nullptr, &kCountingAllocator);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  ASSERT_EQ(run(m, 4), HUSK_OK) << m.error.text;
  EXPECT_EQ(run_allocations, 0u);
  EXPECT_EQ(calls(GetParam().compute), static_cast<uint64_t>(GetParam().calls));
}

TEST_P(LibraryTest, AFailedCallFailsTheRunAndTheNextRunWorks) {
  husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
  options.mode = HUSK_MODE_LIST;
  LoadedProgram m(GetParam().text, &options);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  ASSERT_EQ(resize(m, 4), HUSK_OK) << m.error.text;
  fake.fake_fail_call(GetParam().compute, 2, 6);
  EXPECT_EQ(run(m, 4), HUSK_DEVICE);
  EXPECT_EQ(m.error.driver_code, 6);
  EXPECT_NE(std::strstr(m.error.text, GetParam().compute), nullptr) << m.error.text;
  EXPECT_NE(std::strstr(m.error.text, GetParam().status), nullptr) << m.error.text;
  EXPECT_EQ(run(m, 4), HUSK_OK) << m.error.text;
}

TEST_P(LibraryTest, AFailedPlanFailsTheResize) {
  LoadedProgram m(GetParam().text);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  fake.fake_fail_call(GetParam().plan, 1, 2);
  EXPECT_EQ(resize(m, 4), HUSK_OUT_OF_MEMORY);
  EXPECT_NE(std::strstr(m.error.text, GetParam().plan), nullptr) << m.error.text;
  EXPECT_EQ(resize(m, 4), HUSK_OK) << m.error.text;
  EXPECT_EQ(run(m, 4), HUSK_OK) << m.error.text;
}

TEST_P(LibraryTest, SessionsOfSeveralThreads) {
  LoadedProgram m(GetParam().text);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  struct Own {
    husk_session* session;
    void *in, *out;
    husk_error error;
    bool done;
  };
  std::vector<Own> all;
  const std::vector<float> x = quarters(8);
  for (int i = 0; i < 4; ++i) {
    all.push_back({m.open_session(nullptr), m.alloc(32), m.alloc(32), {}, false});
    ASSERT_EQ(m.upload(all.back().in, x.data(), 32), HUSK_OK);
  }
  std::vector<std::thread> threads;
  for (Own& own : all)
    threads.emplace_back([&own] {
      DeviceTensor from = device_vector(own.in, 8), to = device_vector(own.out, 8);
      husk_value input = from.value(), output = to.value();
      for (int round = 0; round < 20; ++round)
        if (husk_session_run(own.session, 0, nullptr, &input, 1, &output, 1, &own.error) != HUSK_OK)
          return;
      own.done = husk_session_wait(own.session, &own.error) == HUSK_OK;
    });
  for (std::thread& thread : threads) thread.join();
  for (Own& own : all) {
    EXPECT_TRUE(own.done) << own.error.text;
    std::vector<float> y(8);
    ASSERT_EQ(m.download(y.data(), own.out, 32), HUSK_OK);
    EXPECT_EQ(y, GetParam().y(x));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, LibraryTest, testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

// More shapes than the table of plans holds: the oldest plans are replaced.
TEST_F(FakeTest, MoreTransformsThanPlans) {
  LoadedProgram m(kSpectrum);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  const auto plans = [&] { return fake.fake_calls("cufftMakePlanMany64"); };
  void *in = m.alloc(1000), *out = m.alloc(1000);
  const auto run = [&](int64_t n) {
    const std::vector<float> x = quarters(n);
    DeviceTensor from = device_vector(in, n), to = device_vector(out, n);
    husk_value input = from.value(), output = to.value();
    ASSERT_EQ(m.upload(in, x.data(), x.size() * 4), HUSK_OK);
    ASSERT_EQ(husk_session_run(m.session, 0, m.stream, &input, 1, &output, 1, &m.error), HUSK_OK)
        << m.error.text;
    if (n % 10 != 0) return;  // most runs are still queued when their plans are replaced
    std::vector<float> y(x.size());
    ASSERT_EQ(m.download(y.data(), out, y.size() * 4), HUSK_OK);
    EXPECT_EQ(y, spectrum_of(x));
  };
  for (int64_t n = 4; n <= 200; n += 2) run(n);
  EXPECT_EQ(plans(), 198u);
  run(200);
  EXPECT_EQ(plans(), 198u);
  run(4);
  EXPECT_EQ(plans(), 200u);
}

}  // namespace
}  // namespace husk::test
