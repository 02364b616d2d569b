// husk_port.map and unmap: host memory that an integrated device reads in place.
#include <sys/mman.h>

#include <numeric>

#include "port_case.h"

namespace husk::port_test {

class CudaMap : public Cuda {};
class OverFakeMap : public OverFake {
 protected:
  void SetUp() override {
    OverFake::SetUp();
    if (IsSkipped()) return;
    pages_ = static_cast<int32_t*>(
        mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::iota(pages_, pages_ + 2048, 0);
    mprotect(pages_, 8192, PROT_READ);
  }
  void TearDown() override {
    OverFake::TearDown();
    if (pages_) munmap(pages_, 8192);
  }
  void open_integrated(bool registers_read_only = true) {
    close();
    fake().set_integrated(1, registers_read_only);
    ASSERT_EQ(open(), HUSK_OK) << error.text;
    ASSERT_EQ(port->stream_create(device, &stream, &error), HUSK_OK) << error.text;
  }
  int32_t* pages_ = nullptr;
  void* address_ = &address_;
};

TEST_F(CudaMap, IsForDevicesWithoutMemoryOfTheirOwn) {
  std::vector<char> bytes(100);
  void* address = &address;
  const husk_status status = port->map(device, bytes.data(), bytes.size(), &address, &error);
  if (status == HUSK_OK) {
    port->unmap(device, bytes.data(), bytes.size());
    GTEST_SKIP() << "this device is integrated";
  }
  EXPECT_EQ(status, HUSK_UNSUPPORTED);
  EXPECT_EQ(address, nullptr);
  EXPECT_TRUE(error_says("memory of its own load"));
}

TEST_F(OverFakeMap, GivesKernelsTheBytesInPlace) {
  open_integrated();
  const uint64_t live = fake().live_objects();
  for (const size_t first : {size_t{0}, size_t{100}, size_t{1500}}) {  // within a page too
    const size_t count = 2048 - first > 600 ? 600 : 2048 - first;
    ASSERT_EQ(port->map(device, pages_ + first, count * 4, &address_, &error), HUSK_OK)
        << error.text;
    int32_t* out = device_array(std::vector<int32_t>(count, -1));
    int32_t value = 5, n = static_cast<int32_t>(count);
    void* params[] = {&out, &address_, &value, &n};
    const husk_launch launch = launch_for(n, params);
    ASSERT_EQ(port->launch(device, stream, add_scalar(), &launch, &error), HUSK_OK) << error.text;
    std::vector<int32_t> wanted(count);
    std::iota(wanted.begin(), wanted.end(), static_cast<int32_t>(first) + 5);
    EXPECT_EQ(read(out, count), wanted);
    port->unmap(device, pages_ + first, count * 4);
    free_memory();
  }
  EXPECT_EQ(fake().live_objects(), live + 1);  // the module of add_scalar
}

TEST_F(OverFakeMap, MemoryThatTheDriverRefusesIsUnsupported) {
  open_integrated(false);  // the device registers no read-only pages
  EXPECT_EQ(port->map(device, pages_, 8192, &address_, &error), HUSK_UNSUPPORTED);
  EXPECT_EQ(address_, nullptr);
  EXPECT_TRUE(error_says("8192 bytes cuMemHostRegister CUDA_ERROR_INVALID_VALUE (1)"));
  std::vector<char> writable(5000);
  ASSERT_EQ(port->map(device, writable.data(), 5000, &address_, &error), HUSK_OK) << error.text;
  EXPECT_EQ(address_, writable.data());
  port->unmap(device, writable.data(), 5000);
}

}  // namespace husk::port_test
