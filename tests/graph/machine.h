// A program on the fake driver, and the driver's controls.
#pragma once

#include <fake.h>
#include <gtest/gtest.h>
#include <husk/husk.h>
#include <husk/port_cuda.h>

#include <cstdint>
#include <string>
#include <vector>

namespace husk::test {

// The controls of the fake driver that the port opens too. Skips the test where another driver is found.
struct Fake {
  Fake();
#define HUSK_FAKE_CONTROLS(CONTROL)                                                                               \
  CONTROL(fake_reset) CONTROL(fake_fail_at) CONTROL(fake_fail_call) CONTROL(fake_failed) CONTROL(fake_calls)       \
  CONTROL(fake_early_starts) CONTROL(fake_live_objects) CONTROL(fake_schedule) CONTROL(fake_set_integrated)
#define CONTROL(name) decltype(&::name) name = nullptr;
  HUSK_FAKE_CONTROLS(CONTROL)
#undef CONTROL
  void* library = nullptr;
};

// The artifact of functions in text form, with the kernels of kernels.c before them.
const std::vector<uint8_t>& artifact(const std::string& functions);

// Device memory as a value: a vector of floats, or a scalar of int64.
struct DeviceTensor {
  DeviceTensor() = default;
  husk_value value();
  int64_t size = 0;
  DLTensor dl = {};
};

// A function y = (a - x / 2) - b of four floats, with a and b as given, in hexadecimal; `more` are other constants.
std::string affine(const char* a, const char* b, const std::string& more = "");
constexpr char kCount[] = "0000803f000000400000404000008040";   // 1, 2, 3, 4
constexpr char kOnes[] = "0000803f0000803f0000803f0000803f";
constexpr char kTwos[] = "00000040000000400000004000000040";

// Every call is checked by the caller: what failed leaves `error`.
class Machine {
 public:
  explicit Machine(const std::string& functions, const husk_session_options* options = nullptr,
                   const husk_allocator* allocator = nullptr);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void* alloc(size_t bytes);                      // freed with the machine; null on failure
  static DeviceTensor vector(void* memory, int64_t n);
  husk_status upload(void* to, const void* from, size_t bytes);
  husk_status download(void* to, const void* from, size_t bytes);   // waits for the stream
  husk_session* open_session(const husk_session_options* options);
  bool intact() const;                                              // the artifact's bytes are what they were
  husk_session_stats stats(husk_session* session, uint32_t function = 0);

  husk_engine* engine = nullptr;
  husk_program* program = nullptr;
  husk_session* session = nullptr;
  void* stream = nullptr;
  husk_error error = {};

 private:
  std::vector<void*> memory_;
  std::vector<husk_session*> sessions_;
  void* device_ = nullptr;   // a second handle of the device, for the test's own memory
  const std::vector<uint8_t>& file_;
  void* bytes_ = nullptr;
};

// Begins with the driver as it starts, and leaves nothing in it.
class FakeTest : public testing::Test {
 protected:
  void SetUp() override { fake.fake_reset(); }
  void TearDown() override {
    fake.fake_reset();
    EXPECT_EQ(fake.fake_live_objects(), 0u);
  }
  // What affine() gives for x = 2, 4, 6, 8, after a resize; `run_calls` of the driver were made by the run.
  std::vector<float> run_affine(Machine& m, husk_session* session);

  Fake fake;
  uint64_t run_calls = 0;
};

}  // namespace husk::test
