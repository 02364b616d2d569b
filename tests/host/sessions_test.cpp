// Sessions of one program in several threads. Their kernels share one thread pool.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <husk/husk.h>
#include <husk/port_host.h>

#include "../values.h"
#include "compile.h"

namespace husk::host_test {
namespace {

using test::integer;

// `total` is the sum over all runs of a session. `wanted` is the number of threads; 0 means all of
// them.
constexpr const char* kText = R"(
state total f32 [1] fill 0.0
image kernels cpu elf "IMAGE"
kernel sum kernels "parallel_sum" (ptr, i64, ptr, ptr, i32)
kernel fail kernels "parallel_fail" (ptr)
function sum {
  input x tensor f32 [0..100000]
  input wanted int 0..8
  output y tensor f32 rank 1
  output squares tensor i64 rank 1
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes 4
    buffer squares of output bytes 8
    launch sum grid (1, 1, 1) (read x, n, write y, write squares, wanted)
    copy (write total, read y)
    return (tensor y f32 [1] [1], tensor squares i64 [1] [1])
  }
}
function fail {
  input which tensor i32 [8]
  output y tensor i32 rank 1
  variant cpu {
    buffer which of input bytes 32
    buffer y of output bytes 32
    launch fail grid (1, 1, 1) (read which)
    copy (write y, read which)
    return (tensor y i32 [8] [1])
  }
}
)";

std::vector<uint8_t> artifact() {
  const std::filesystem::path image = HUSK_TEST_IMAGE_PARALLEL;
  std::string whole = "hir 1\nproducer \"test\"\ntarget cpu host \"" HUSK_TEST_ARCH "\"\n" +
                      std::string(kText);
  whole.replace(whole.find("IMAGE"), 5, image.filename().string());
  auto compiled = compiler::compile_text(whole, image.parent_path());
  if (auto* error = std::get_if<compiler::Error>(&compiled)) {
    ADD_FAILURE() << compiler::describe(*error, "sessions.hir");
    return {};
  }
  return std::get<0>(compiled);
}

struct Tensor {
  DLTensor dl = {};
  int64_t size;

  Tensor(husk_dtype dtype, int64_t n, void* data) : size(n) {
    dl.data = data;
    dl.device = {kDLCPU, 0};
    dl.ndim = 1;
    dl.dtype = husk_dtype_to_dlpack(dtype);
    dl.shape = &size;
  }
  husk_value value() {
    husk_value v = {HUSK_VALUE_TENSOR, 0, {}};
    v.as.tensor = &dl;
    return v;
  }
};

class Sessions : public ::testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override {
    ASSERT_EQ(husk_host_threads_create(GetParam(), nullptr, &threads, &error), HUSK_OK)
        << error.text;
    husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
    options.port = husk_port_host();
    options.allow_host_images = 1;
    options.require_op_contracts = 1;
    options.threads = &threads;
    ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
    const std::vector<uint8_t> compiled = artifact();
    bytes = static_cast<uint8_t*>(std::aligned_alloc(4096, (compiled.size() + 4095) / 4096 * 4096));
    std::memcpy(bytes, compiled.data(), compiled.size());
    ASSERT_EQ(husk_program_load(engine, bytes, compiled.size(), nullptr, nullptr, &program, &error),
              HUSK_OK)
        << error.text;
  }
  void TearDown() override {
    husk_program_release(program);
    husk_engine_release(engine);
    husk_host_threads_release(&threads);
    std::free(bytes);
  }

  // Creates, runs and releases one session in one thread.
  void run_session(int number) {
    husk_error thread_error{};
    husk_session* session = nullptr;
    ASSERT_EQ(husk_session_create(program, nullptr, &session, &thread_error), HUSK_OK)
        << thread_error.text;
    std::vector<float> x(static_cast<size_t>(1000 * (number + 1)), 0.5f);
    for (int round = 0; round < 50; ++round) {
      alignas(64) float y = 0;
      alignas(64) int64_t squares = 0;
      Tensor in(HUSK_F32, static_cast<int64_t>(x.size()), x.data()), out(HUSK_F32, 1, &y),
          counted(HUSK_I64, 1, &squares);
      husk_value inputs[] = {in.value(), integer(round % 3)},
                 outputs[] = {out.value(), counted.value()};
      ASSERT_EQ(husk_session_run(session, 0, nullptr, inputs, 2, outputs, 2, &thread_error),
                HUSK_OK)
          << thread_error.text;
      ASSERT_EQ(husk_session_wait(session, &thread_error), HUSK_OK) << thread_error.text;
      ASSERT_EQ(y, 500.0f * static_cast<float>(number + 1));
      alignas(64) int32_t fails[8] = {}, copied[8] = {};
      fails[static_cast<uint32_t>(round) % GetParam()] = number % 2 + 1;
      Tensor which(HUSK_I32, 8, fails), same(HUSK_I32, 8, copied);
      husk_value failing[] = {which.value()}, results[] = {same.value()};
      ASSERT_EQ(husk_session_run(session, 1, nullptr, failing, 1, results, 1, &thread_error),
                HUSK_KERNEL);
      const std::string text = thread_error.text;
      ASSERT_NE(text.find(number % 2 == 0 ? "unnamed" : "no memory"), std::string::npos) << text;
    }
    float total = 0;
    EXPECT_EQ(husk_session_state_get(session, 0, &total, &thread_error), HUSK_OK)
        << thread_error.text;
    EXPECT_EQ(total, 500.0f * static_cast<float>(number + 1));
    husk_session_release(session);
  }

  husk_threads threads{};
  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  husk_error error{};
  uint8_t* bytes = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Threads, Sessions, ::testing::Values(1u, 2u, 5u));

TEST_P(Sessions, ShareOnePool) {
  std::vector<std::thread> callers;
  for (int number = 0; number < 4; ++number)
    callers.emplace_back([this, number] { run_session(number); });
  for (auto& caller : callers) caller.join();
}

// Programs are loaded and released while sessions of another program run.
TEST_P(Sessions, RunWhileProgramsLoad) {
  const std::vector<uint8_t> compiled = artifact();
  std::thread caller([this] { run_session(1); });
  for (int round = 0; round < 10; ++round) {
    husk_error thread_error{};
    husk_program* other = nullptr;
    auto* copy = static_cast<uint8_t*>(
        std::aligned_alloc(4096, (compiled.size() + 4095) / 4096 * 4096));
    std::memcpy(copy, compiled.data(), compiled.size());
    EXPECT_EQ(
        husk_program_load(engine, copy, compiled.size(), nullptr, nullptr, &other, &thread_error),
        HUSK_OK)
        << thread_error.text;
    husk_program_release(other);
    std::free(copy);
  }
  caller.join();
}

}  // namespace
}  // namespace husk::host_test
