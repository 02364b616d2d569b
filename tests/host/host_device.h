// An open host device whose memory is counted, and which may be told to fail.
#ifndef HUSK_TESTS_HOST_DEVICE_H
#define HUSK_TESTS_HOST_DEVICE_H

#include <gtest/gtest.h>
#include <husk/port_host.h>

#include <cstdlib>
#include <vector>

#include "device.h"

namespace husk::host_test {

class CountedMemory {
 public:
  husk_allocator allocator() { return {this, allocate, release}; }
  int live = 0;
  int fail_at = -1;   // the allocation that fails, counted from 0

 private:
  static void* allocate(void* user, size_t size, size_t align) {
    auto* self = static_cast<CountedMemory*>(user);
    EXPECT_LE(align, 64u);
    if (self->fail_at >= 0 && self->fail_at-- == 0) return nullptr;
    void* pointer = std::aligned_alloc(64, (size + 63) / 64 * 64);
    if (pointer) self->live++;
    return pointer;
  }
  static void release(void* user, void* pointer) {
    static_cast<CountedMemory*>(user)->live--;
    std::free(pointer);
  }
};

class HostDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    allocator = memory.allocator();
    ASSERT_EQ(port->open(port->user, 0, &allocator, nullptr, &device, &error), HUSK_OK) << error.text;
  }
  void TearDown() override {
    port->close(device);
    EXPECT_EQ(memory.live, 0);
  }

  // The instruction sets that this CPU can be asked to use.
  std::vector<host::Isa> isas() const {
    std::vector<host::Isa> all;
    for (int i = 1; i <= static_cast<int>(host::cpu_isa()); i++) all.push_back(static_cast<host::Isa>(i));
    return all;
  }
  void use(host::Isa isa) { static_cast<host::Device*>(device)->isa = isa; }

  husk_status call(const char* name, const std::vector<husk_op_arg>& args) {
    uint32_t count = 0;
    const husk_op* ops = husk_host_ops(&count);
    for (uint32_t i = 0; i < count; i++) {
      if (std::string(ops[i].name) == name) {
        const husk_op_context context{ops[i].user, device, nullptr, nullptr};
        return ops[i].call(&context, args.data(), static_cast<uint32_t>(args.size()), &error);
      }
    }
    ADD_FAILURE() << "no op " << name;
    return HUSK_NOT_FOUND;
  }

  const husk_port* port = husk_port_host();
  CountedMemory memory;
  husk_allocator allocator{};
  husk_error error{};
  void* device = nullptr;
};

}  // namespace husk::host_test

#endif
