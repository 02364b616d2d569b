// A program that is loaded on the fake driver, and the driver's controls.
#pragma once

#include <fake.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <husk/husk.h>
#include <husk/port_cuda.h>

namespace husk::test {

// The controls of the fake driver, in the library that the port opens too. Throws if libcuda.so.1
// is another driver.
struct Fake {
  Fake();
  // clang-format off
#define HUSK_FAKE_CONTROLS(CONTROL) \
  CONTROL(fake_reset)               \
  CONTROL(fake_fail_at)             \
  CONTROL(fake_fail_call)           \
  CONTROL(fake_failed)              \
  CONTROL(fake_calls)               \
  CONTROL(fake_early_starts)        \
  CONTROL(fake_idle_waits)          \
  CONTROL(fake_pending)             \
  CONTROL(fake_break)               \
  CONTROL(fake_live_objects)        \
  CONTROL(fake_schedule)            \
  CONTROL(fake_queue)               \
  CONTROL(fake_queue_endless)       \
  CONTROL(fake_set_integrated)
// clang-format on
#define CONTROL(name) decltype(&::name) name = nullptr;
  HUSK_FAKE_CONTROLS(CONTROL)
#undef CONTROL
  void* library = nullptr;
};

// Compiles functions in text form to an artifact, with the kernels of kernels.c; or a whole text,
// which begins with "hir". The artifact stays until the process ends.
const std::vector<uint8_t>& artifact(const std::string& functions);

// A one-dimensional tensor in device memory as a value of a call.
struct DeviceTensor {
  DeviceTensor() = default;
  husk_value value();
  int64_t size = 0;
  DLTensor dl = {};
};

// A vector of n floats at `memory`.
DeviceTensor device_vector(void* memory, int64_t n);

// A function y = (a - x / 2) - b of four floats. The constants a and b are bytes in hexadecimal;
// `more` declares further constants.
std::string affine(const char* a, const char* b, const std::string& more = "");
constexpr char kCount[] = "0000803f000000400000404000008040";  // 1, 2, 3, 4
constexpr char kOnes[] = "0000803f0000803f0000803f0000803f";
constexpr char kTwos[] = "00000040000000400000004000000040";

// An engine with one program, its sessions, a stream and device memory. The caller checks every
// call; a call that fails, in the constructor too, fills `error`.
class LoadedProgram {
 public:
  explicit LoadedProgram(const std::string& functions,
                         const husk_session_options* options = nullptr,
                         const husk_allocator* allocator = nullptr,
                         const std::vector<husk_op>& ops = {},
                         const husk_port* port = husk_port_cuda());
  ~LoadedProgram();
  LoadedProgram(const LoadedProgram&) = delete;
  LoadedProgram& operator=(const LoadedProgram&) = delete;

  void* alloc(size_t bytes);  // device memory until the destructor; null on failure
  husk_status upload(void* to, const void* from, size_t bytes);
  husk_status download(void* to, const void* from, size_t bytes);  // waits for the stream
  husk_session* open_session(const husk_session_options* options);
  bool intact() const;  // true if the artifact's bytes did not change
  husk_session_stats stats(husk_session* session, uint32_t function = 0);

  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  husk_session* session = nullptr;
  void* stream = nullptr;
  husk_error error = {};
  std::string log;  // the engine's lines
  void* device() const { return device_; }

 private:
  std::vector<void*> memory_;
  std::vector<husk_session*> sessions_;
  void* device_ = nullptr;  // the device opened a second time, for the test's own memory
  const std::vector<uint8_t>& file_;
  void* bytes_ = nullptr;
};

// Each test begins with a reset driver and must leave no live objects.
class FakeTest : public testing::Test {
 protected:
  void SetUp() override { fake.fake_reset(); }
  void TearDown() override {
    fake.fake_reset();
    EXPECT_EQ(fake.fake_live_objects(), 0u);
  }
  // The result of affine() for x = 2, 4, 6, 8, run after a resize. Sets `run_calls`, the number of
  // driver calls that the run made.
  std::vector<float> run_affine(LoadedProgram& m, husk_session* session);

  Fake fake;
  uint64_t run_calls = 0;
};

}  // namespace husk::test
