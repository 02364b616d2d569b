// A port under test: opened before each test, closed and checked for leaks after the test. The CUDA
// port runs on the fake driver if LD_LIBRARY_PATH names its folder, otherwise on the machine's
// driver.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

#include <husk/op.h>
#include <husk/port_cuda.h>

#include "fake.h"

namespace husk::port_test {

// The controls of the fake driver; all null if another libcuda.so.1 is loaded.
struct Fake {
  decltype(&fake_reset) reset = nullptr;
  decltype(&fake_fail_at) fail_at = nullptr;
  decltype(&fake_fail_call) fail_call = nullptr;
  decltype(&fake_failed) failed = nullptr;
  decltype(&fake_calls) calls = nullptr;
  decltype(&fake_live_objects) live_objects = nullptr;
  decltype(&fake_pending) pending = nullptr;
  decltype(&fake_lazy_loads) lazy_loads = nullptr;
  decltype(&fake_early_starts) early_starts = nullptr;
  decltype(&fake_idle_waits) idle_waits = nullptr;
  decltype(&fake_schedule) schedule = nullptr;
  decltype(&fake_set_capability) set_capability = nullptr;
  decltype(&fake_set_driver_version) set_driver_version = nullptr;
  decltype(&fake_set_devices) set_devices = nullptr;
  decltype(&fake_set_memory) set_memory = nullptr;
  decltype(&fake_set_integrated) set_integrated = nullptr;
  decltype(&fake_break) break_device = nullptr;
  decltype(&fake_hide) hide = nullptr;
  decltype(&fake_pin) pin = nullptr;

  explicit operator bool() const { return reset != nullptr; }
};
const Fake& fake();

// An allocator of host memory that counts live allocations and fails on demand.
class CountedMemory {
 public:
  husk_allocator allocator() { return {this, allocate, release}; }
  int live = 0;
  int fail_at = 0;  // the allocation that fails, counted down from 1; 0: no failure

 private:
  static void* allocate(void* user, size_t size, size_t align);
  static void release(void* user, void* pointer);
};

struct PortCase {
  const char* name;
  const husk_port* (*port)();
  bool runs_host_code = false;  // whether a kernel is an ELF function that is called once
  int32_t dl_device_type = 2;   // kDLCUDA
};
const PortCase* host_case();
const PortCase* cuda_case();
const PortCase* toy_case();
std::vector<const PortCase*> every_port();
std::vector<const PortCase*> ports_with_graphs();
std::string port_name(const ::testing::TestParamInfo<const PortCase*>& tested);

// The content of a file in the program's folder; empty if it does not exist.
std::vector<char> read_from_program_folder(const char* name);

// A kernel image.
struct Image {
  int32_t format;
  std::string name;
  std::vector<char> bytes;
  husk_port_image view() const {
    return {sizeof(husk_port_image), format, bytes.data(), bytes.size(), name.c_str(), nullptr};
  }
};

class Device : public ::testing::Test {
 protected:
  explicit Device(const PortCase* tested) : port(tested->port()), host(tested->runs_host_code) {}
  void SetUp() override;
  void TearDown() override;

  husk_status open(int32_t index = 0);
  void close();
  // Closes the device and opens it with options of the CUDA port, with a stream.
  void open_with(const husk_cuda_options& options);

  // Device memory with this content; TearDown frees it.
  template <class T>
  T* device_array(const std::vector<T>& content) {
    T* piece = static_cast<T*>(device_memory(content.size() * sizeof(T)));
    EXPECT_EQ(
        port->upload(device, stream, piece, content.data(), content.size() * sizeof(T), &error),
        HUSK_OK)
        << error.text;
    return piece;
  }
  template <class T>
  std::vector<T> read(const T* piece, size_t count) {
    std::vector<T> content(count);
    EXPECT_EQ(port->download(device, stream, content.data(), piece, count * sizeof(T), &error),
              HUSK_OK)
        << error.text;
    return content;
  }
  void* device_memory(uint64_t size);
  void free_memory();  // frees the memory of device_array and device_memory now

  // The image of the suite's kernels for this port. With `waits` it is the image of the kernels
  // that wait for preceding kernels, which on a GPU is another PTX.
  Image kernels_image(bool waits = false) const;
  void* load(const Image& image);  // keeps a copy of the image until TearDown
  // A kernel of kernels_image, which is loaded by the first call.
  void* kernel(const char* symbol, const std::vector<uint8_t>& params, uint32_t threads = 128,
               uint32_t shared_bytes = 0, uint32_t cluster = 1);
  void* add_scalar() { return kernel("add_scalar", kBinary); }
  static const std::vector<uint8_t> kBinary;  // out, in, int, n

  // A launch with one thread for each of n elements.
  husk_launch launch_for(int32_t n, void** params) const;

  // True if the error text contains all the words, which are separated by spaces.
  bool error_says(const std::string& words) const;

  const husk_port* port;
  husk_port port_with_options{};
  husk_cuda_options cuda_options = HUSK_CUDA_OPTIONS_INIT;
  const bool host;
  CountedMemory memory;
  husk_allocator allocator{};
  husk_error error{};
  void* device = nullptr;
  void* stream = nullptr;

 private:
  std::vector<void*> memories_;
  std::vector<void*> modules_;
  std::deque<Image> images_;
  void* module_[2] = {nullptr, nullptr};
};

// Tests that every port passes.
class Port : public Device, public ::testing::WithParamInterface<const PortCase*> {
 protected:
  Port() : Device(GetParam()) {}
};

// Tests of the CUDA port alone.
class Cuda : public Device {
 protected:
  Cuda() : Device(cuda_case()) {}
};

// Tests that need the fake driver.
class OverFake : public Cuda {
 protected:
  void SetUp() override;
};

#define EVERY_PORT(suite) \
  INSTANTIATE_TEST_SUITE_P(every, suite, ::testing::ValuesIn(every_port()), port_name)
#define EVERY_PORT_WITH_GRAPHS(suite) \
  INSTANTIATE_TEST_SUITE_P(every, suite, ::testing::ValuesIn(ports_with_graphs()), port_name)
#define NEEDS_FAKE \
  if (!fake()) GTEST_SKIP() << "needs the fake driver"

// The environment in which a test calls an op that has neither threads nor scratch memory.
inline husk_op_context context_of(void* user, void* device, void* stream) {
  husk_op_context context = HUSK_OP_CONTEXT_INIT;
  context.user = user;
  context.device = device;
  context.stream = stream;
  return context;
}

}  // namespace husk::port_test
