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

}  // namespace husk::test
