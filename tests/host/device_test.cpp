// The device, memory and streams of the host port.
#include <climits>
#include <cstring>
#include <string>

#include "host_device.h"

namespace husk::host_test {
namespace {

class Device : public HostDevice {};

TEST(Port, DescribesItself) {
  const husk_port* port = husk_port_host();
  EXPECT_EQ(port->struct_size, sizeof(husk_port));
  EXPECT_EQ(port->abi, static_cast<uint32_t>(HUSK_PORT_ABI));
  EXPECT_STREQ(port->name, "host");
  EXPECT_EQ(port->graphs, nullptr);
}

TEST(Port, RefusesOtherDevices) {
  CountedMemory memory;
  const husk_allocator allocator = memory.allocator();
  for (int32_t index : {-1, 1, INT_MAX}) {
    husk_error error{};
    void* device = &error;
    EXPECT_EQ(husk_port_host()->open(nullptr, index, &allocator, nullptr, &device, &error),
              HUSK_INVALID_ARGUMENT);
    EXPECT_EQ(device, nullptr);
    EXPECT_EQ(error.code, HUSK_INVALID_ARGUMENT);
    EXPECT_EQ(error.step, -1);
    EXPECT_NE(std::string(error.text).find(std::to_string(index)), std::string::npos) << error.text;
  }
  EXPECT_EQ(memory.live, 0);
}

TEST(Port, OpenNeedsAnAllocator) {
  husk_error error{};
  void* device;
  EXPECT_EQ(husk_port_host()->open(nullptr, 0, nullptr, nullptr, &device, &error),
            HUSK_INVALID_ARGUMENT);
  const husk_allocator half{nullptr, nullptr, nullptr};
  EXPECT_EQ(husk_port_host()->open(nullptr, 0, &half, nullptr, &device, &error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(device, nullptr);
}

TEST(Port, OpenWithoutMemory) {
  CountedMemory memory;
  memory.fail_at = 0;
  const husk_allocator allocator = memory.allocator();
  husk_error error{};
  void* device;
  EXPECT_EQ(husk_port_host()->open(nullptr, 0, &allocator, nullptr, &device, &error),
            HUSK_OUT_OF_MEMORY);
  EXPECT_EQ(memory.live, 0);
}

TEST_F(Device, Properties) {
  husk_port_properties properties = HUSK_PORT_PROPERTIES_INIT;
  port->properties(device, &properties);
  EXPECT_GT(std::strlen(properties.name), 0u);
  EXPECT_EQ(properties.dl_device_type, 1);
  EXPECT_EQ(properties.device_index, 0);
  EXPECT_EQ(properties.host_memory, 1);
  EXPECT_GT(properties.memory_bytes, uint64_t{1} << 20);
  EXPECT_GT(port->arch_rank(device, properties.arch, HUSK_IMAGE_ELF), 0);
}

TEST_F(Device, ArchRankFollowsTheCpu) {
  EXPECT_EQ(port->arch_rank(device, "sm_90a", HUSK_IMAGE_ELF), 0);
  EXPECT_EQ(port->arch_rank(device, "", HUSK_IMAGE_ELF), 0);
  EXPECT_EQ(port->arch_rank(device, nullptr, HUSK_IMAGE_ELF), 0);
  // Some sets have features that no target asks for, as AVX2 with AVX-VNNI.
  const struct {
    const char* name;
    host::Features features;
  } targets[] = {
#define HUSK_CPU_TARGET(arch, Set) {#arch, host::cpu_set::k##Set},
#include <cpus.def>
  };
  for (const CpuSet& set : sets()) {
    SCOPED_TRACE(set.name);
    use(set);
    int32_t last = 0;
    for (const auto& target : targets) {
      const int32_t rank = port->arch_rank(device, target.name, HUSK_IMAGE_ELF);
      EXPECT_EQ(rank > 0, set.features.has(target.features)) << target.name;
      EXPECT_TRUE(rank == 0 || rank > last) << target.name;
      last = rank;
      EXPECT_EQ(port->arch_rank(device, target.name, HUSK_IMAGE_CUBIN), 0);
      EXPECT_EQ(port->arch_rank(device, target.name, HUSK_IMAGE_PTX), 0);
    }
  }
}

TEST_F(Device, AllocationsAreAlignedAndDisjoint) {
  std::vector<std::pair<unsigned char*, uint64_t>> blocks;
  for (uint64_t size : {0, 1, 63, 64, 255, 256, 257, 100000}) {
    void* pointer;
    ASSERT_EQ(port->alloc(device, size, &pointer, &error), HUSK_OK) << error.text;
    ASSERT_NE(pointer, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % 256, 0u);
    blocks.emplace_back(static_cast<unsigned char*>(pointer), size);
    std::memset(pointer, static_cast<int>(blocks.size()), size);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (uint64_t b = 0; b < blocks[i].second; ++b) ASSERT_EQ(blocks[i].first[b], i + 1);
    port->free(device, blocks[i].first);
  }
  port->free(device, nullptr);
}

TEST_F(Device, AllocationFails) {
  void* pointer = &error;
  for (uint64_t size : {UINT64_MAX, UINT64_MAX - 100}) {
    EXPECT_EQ(port->alloc(device, size, &pointer, &error), HUSK_OUT_OF_MEMORY);
    EXPECT_EQ(pointer, nullptr);
  }
  memory.fail_at = 0;
  EXPECT_EQ(port->alloc(device, 4096, &pointer, &error), HUSK_OUT_OF_MEMORY);
  EXPECT_NE(std::string(error.text).find("4096"), std::string::npos) << error.text;
}

TEST_F(Device, Copies) {
  unsigned char from[100], to[102];
  for (int i = 0; i < 100; ++i) from[i] = static_cast<unsigned char>(i);
  for (auto copy : {port->upload, port->download, port->copy}) {
    std::memset(to, 0xee, sizeof to);
    ASSERT_EQ(copy(device, nullptr, to + 1, from, 100, &error), HUSK_OK);
    EXPECT_EQ(std::memcmp(to + 1, from, 100), 0);
    EXPECT_EQ(to[0], 0xee);
    EXPECT_EQ(to[101], 0xee);
    EXPECT_EQ(copy(device, nullptr, nullptr, nullptr, 0, &error), HUSK_OK);
    EXPECT_EQ(copy(device, nullptr, to, nullptr, 1, &error), HUSK_INVALID_ARGUMENT);
    EXPECT_EQ(copy(device, nullptr, nullptr, from, 1, &error), HUSK_INVALID_ARGUMENT);
  }
}

TEST_F(Device, Fills) {
  const uint64_t pattern = 0x1122334455667788u;
  for (uint32_t width : {1, 2, 4, 8}) {
    for (uint64_t count : {0, 1, 3, 50}) {
      for (size_t lead : {0, 1}) {
        std::vector<unsigned char> bytes(lead + width * count + 8, 0xee);
        ASSERT_EQ(port->fill(device, nullptr, bytes.data() + lead, pattern, width, count, &error),
                  HUSK_OK);
        for (size_t i = 0; i < bytes.size(); ++i) {
          const bool inside = i >= lead && i < lead + width * count;
          const uint64_t byte = inside ? pattern >> 8 * ((i - lead) % width) & 0xff : 0xee;
          ASSERT_EQ(bytes[i], byte) << width << " " << count << " " << i;
        }
      }
    }
  }
  EXPECT_EQ(port->fill(device, nullptr, nullptr, 0, 4, 0, &error), HUSK_OK);
  EXPECT_EQ(port->fill(device, nullptr, nullptr, 0, 4, 1, &error), HUSK_INVALID_ARGUMENT);
  for (uint32_t width : {0, 3, 16})
    EXPECT_EQ(port->fill(device, nullptr, &error, 0, width, 1, &error), HUSK_INVALID_ARGUMENT);
}

#ifndef NDEBUG
TEST(DeviceDeathTest, CloseFindsLeaks) {
  CountedMemory memory;
  const husk_allocator allocator = memory.allocator();
  husk_error error{};
  void *device, *pointer;
  ASSERT_EQ(husk_port_host()->open(nullptr, 0, &allocator, nullptr, &device, &error), HUSK_OK);
  ASSERT_EQ(husk_port_host()->alloc(device, 1, &pointer, &error), HUSK_OK);
  EXPECT_DEATH(husk_port_host()->close(device), "was not released");
  husk_port_host()->free(device, pointer);
  husk_port_host()->close(device);
}
#endif

TEST_F(Device, Streams) {
  void* stream = nullptr;
  ASSERT_EQ(port->stream_create(device, &stream, &error), HUSK_OK);
  EXPECT_NE(stream, nullptr);
  EXPECT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
  EXPECT_EQ(port->stream_wait(device, nullptr, &error), HUSK_OK);
  port->stream_destroy(device, stream);
}

}  // namespace
}  // namespace husk::host_test
