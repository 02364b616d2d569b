// A fixture with an open host device. Its allocator counts allocations and can be made to fail.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <husk/ops.h>
#include <husk/port_host.h>

#include "cpu_sets.h"
#include "device.h"
#include "op_scratch.h"

namespace husk::host_test {

class CountedMemory {
 public:
  husk_allocator allocator() { return {this, allocate, release}; }
  int live = 0;
  int fail_at = -1;  // number of the allocation that fails, counted from 0; -1 for none

 private:
  static void* allocate(void* user, size_t size, size_t align) {
    auto* self = static_cast<CountedMemory*>(user);
    EXPECT_LE(align, 64u);
    if (self->fail_at >= 0 && self->fail_at-- == 0) return nullptr;
    void* pointer = std::aligned_alloc(64, (size + 63) / 64 * 64);
    if (pointer) ++self->live;
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
    ASSERT_EQ(port->open(port->user, 0, &allocator, nullptr, &device, &error), HUSK_OK)
        << error.text;
  }
  void TearDown() override {
    port->close(device);
    EXPECT_EQ(memory.live, 0);
  }

  // The sets of features that this CPU has.
  std::vector<CpuSet> sets() const { return sets_of(host::cpu_features()); }
  void use(const CpuSet& set) { static_cast<host::Device*>(device)->features = set.features; }

  // The row of the op with this name. The op must exist.
  static const husk_op& op(const std::string& name) {
    uint32_t count = 0;
    const husk_op* ops = husk_host_ops(&count);
    for (uint32_t i = 0; i < count; ++i)
      if (ops[i].name == name) return ops[i];
    ADD_FAILURE() << "there is no op " << name;
    std::abort();
  }
  husk_op_context context_of(const husk_op& row, const husk_threads* threads = nullptr) {
    return context_for(row, device, op_scratch, threads);
  }
  husk_status call(const char* name, const std::vector<husk_op_arg>& args) {
    const husk_op& row = op(name);
    const husk_op_context context = context_of(row);
    return row.call(&context, args.data(), static_cast<uint32_t>(args.size()), &error);
  }

  const husk_port* port = husk_port_host();
  CountedMemory memory;
  husk_allocator allocator{};
  husk_error error{};
  void* device = nullptr;
  OpScratch op_scratch;
};

}  // namespace husk::host_test
