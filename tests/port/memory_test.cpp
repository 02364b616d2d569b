#include <cstring>
#include <numeric>
#include <thread>

#include "port_case.h"

namespace husk::port_test {

EVERY_PORT(Port);

TEST_P(Port, HasProperties) {
  husk_port_properties properties = HUSK_PORT_PROPERTIES_INIT;
  port->properties(device, &properties);
  EXPECT_STRNE(properties.name, "");
  EXPECT_STRNE(properties.arch, "");
  EXPECT_EQ(properties.device_index, 0);
  EXPECT_GT(properties.memory_bytes, uint64_t{1} << 20);
  EXPECT_EQ(properties.dl_device_type, GetParam()->dl_device_type);
  EXPECT_EQ(port->abi, uint32_t{HUSK_PORT_ABI});
  EXPECT_EQ(port->struct_size, sizeof(husk_port));
  const int32_t format = host ? HUSK_IMAGE_ELF : HUSK_IMAGE_CUBIN;
  EXPECT_GT(port->arch_rank(device, properties.arch, format), 0);
  EXPECT_EQ(port->arch_rank(device, "no such thing", format), 0);
  EXPECT_EQ(port->arch_rank(device, properties.arch, 77), 0);
  EXPECT_GT(port->arch_rank_on(properties.arch, properties.arch, format), 0);
  EXPECT_EQ(port->arch_rank_on("no such thing", properties.arch, format), 0);
  EXPECT_EQ(port->arch_rank_on(nullptr, properties.arch, format), 0);
  EXPECT_EQ(port->arch_rank_on(properties.arch, nullptr, format), 0);
}

TEST_P(Port, AllocatesAlignedMemory) {
  for (const uint64_t size : {0, 1, 255, 256, 257, 1 << 20}) {
    void* piece = nullptr;
    ASSERT_EQ(port->alloc(device, size, &piece, &error), HUSK_OK) << error.text;
    ASSERT_NE(piece, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece) % 256, 0u);
    port->free(device, piece);
  }
  port->free(device, nullptr);
}

TEST_P(Port, RefusesMoreMemoryThanThereIs) {
  void* piece = &piece;
  EXPECT_EQ(port->alloc(device, uint64_t{1} << 60, &piece, &error), HUSK_OUT_OF_MEMORY);
  EXPECT_EQ(error.code, HUSK_OUT_OF_MEMORY);
  EXPECT_TRUE(error_says("1152921504606846976 bytes"));
}

TEST_P(Port, AllocatesHostFlags) {
  volatile uint32_t* shared = nullptr;
  ASSERT_EQ(port->alloc_host_flag(device, &shared, &error), HUSK_OK) << error.text;
  ASSERT_NE(shared, nullptr);
  EXPECT_EQ(*shared, 0u);
  *shared = 7;  // tests/graph has kernels that write a flag
  port->free_host_flag(device, shared);
  port->free_host_flag(device, nullptr);
}

TEST_P(Port, CopiesHostMemoryInTheOrderOfAStream) {
  if (!port->alloc_host) GTEST_SKIP() << "the port has no host memory beside its device";
  int32_t* a = device_array(std::vector<int32_t>(1000, 0));
  void *first = nullptr, *second = nullptr;
  for (void** out : {&first, &second}) {
    ASSERT_EQ(port->alloc_host(device, 4000, out, &error), HUSK_OK) << error.text;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*out) % 256, 0u);
  }
  std::iota(static_cast<int32_t*>(first), static_cast<int32_t*>(first) + 1000, 7);
  ASSERT_EQ(port->copy(device, stream, a, first, 4000, &error), HUSK_OK) << error.text;
  ASSERT_EQ(port->copy(device, stream, second, a, 4000, &error), HUSK_OK) << error.text;
  ASSERT_EQ(port->fill(device, stream, a, 9, 4, 500, &error), HUSK_OK);
  ASSERT_EQ(port->copy(device, stream, first, second, 2000, &error), HUSK_OK) << error.text;
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
  EXPECT_EQ(memcmp(first, second, 4000), 0);
  EXPECT_EQ(static_cast<int32_t*>(second)[999], 1006);
  EXPECT_EQ(read(a, 1000)[499], 9);
  port->free_host(device, first);
  port->free_host(device, second);
  port->free_host(device, nullptr);
}

TEST_P(Port, MeasuresTheTimeBetweenEvents) {
  if (!port->event_create) {
    EXPECT_EQ(port->event_destroy, nullptr);
    EXPECT_EQ(port->event_record, nullptr);
    EXPECT_EQ(port->event_elapsed, nullptr);
    EXPECT_EQ(port->event_wait, nullptr);
    GTEST_SKIP() << "the port has no events";
  }
  constexpr uint64_t kSize = 64 << 20;
  void *piece = device_memory(kSize), *events[3] = {};
  for (void*& event : events)
    ASSERT_EQ(port->event_create(device, &event, &error), HUSK_OK) << error.text;
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(port->event_record(device, events[0], stream, &error), HUSK_OK) << error.text;
    ASSERT_EQ(port->event_record(device, events[1], stream, &error), HUSK_OK);
    for (int i = 0; i < 10; ++i)
      ASSERT_EQ(port->fill(device, stream, piece, 7, 4, kSize / 4, &error), HUSK_OK);
    ASSERT_EQ(port->event_record(device, events[2], stream, &error), HUSK_OK);
    ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
    uint64_t nothing = 1, fills = 0, all = 0;
    ASSERT_EQ(port->event_elapsed(device, events[0], events[1], &nothing, &error), HUSK_OK)
        << error.text;
    ASSERT_EQ(port->event_elapsed(device, events[1], events[2], &fills, &error), HUSK_OK);
    ASSERT_EQ(port->event_elapsed(device, events[0], events[2], &all, &error), HUSK_OK);
    EXPECT_LT(nothing, fills);
    EXPECT_GE(all + 1000, fills);  // a time is a float of milliseconds
    if (fake()) {
      EXPECT_EQ(nothing, 0u);
      EXPECT_EQ(fills, 10000u);
    }
  }
  void* never = nullptr;
  uint64_t time = 1;
  ASSERT_EQ(port->event_create(device, &never, &error), HUSK_OK);
  EXPECT_EQ(port->event_elapsed(device, events[0], never, &time, &error), HUSK_DEVICE);
  EXPECT_TRUE(error_says("time between two events"));
  EXPECT_EQ(time, 0u);
  port->event_destroy(device, never);
  for (void* event : events) port->event_destroy(device, event);
  port->event_destroy(device, nullptr);
}

TEST_P(Port, WaitsForTheWorkBeforeAnEvent) {
  if (!port->event_wait) GTEST_SKIP() << "the port waits for streams only";
  constexpr size_t kCount = 1000, kSize = kCount * sizeof(int32_t);
  int32_t* a = device_array(std::vector<int32_t>(kCount, 0));
  void *pinned[2] = {}, *events[2] = {};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(port->alloc_host(device, kSize, &pinned[i], &error), HUSK_OK) << error.text;
    ASSERT_EQ(port->event_create(device, &events[i], &error), HUSK_OK) << error.text;
  }
  // Two pieces of work are in the stream whenever the host waits for the first one.
  const auto enqueue = [&](int32_t round) {
    ASSERT_EQ(port->fill(device, stream, a, static_cast<uint64_t>(round), 4, kCount, &error),
              HUSK_OK);
    ASSERT_EQ(port->copy(device, stream, pinned[round % 2], a, kSize, &error), HUSK_OK);
    ASSERT_EQ(port->event_record(device, events[round % 2], stream, &error), HUSK_OK);
  };
  enqueue(0);
  const uint64_t idle = fake() ? fake().idle_waits() : 0;
  for (int32_t round = 0; round < 6; ++round) {
    enqueue(round + 1);
    ASSERT_EQ(port->event_wait(device, events[round % 2], &error), HUSK_OK) << error.text;
    const auto* numbers = static_cast<int32_t*>(pinned[round % 2]);
    EXPECT_EQ(std::vector<int32_t>(numbers, numbers + kCount), std::vector<int32_t>(kCount, round));
    if (fake()) {
      EXPECT_GT(fake().pending(), 0u);
    }
  }
  EXPECT_EQ(fake() ? fake().idle_waits() : 0, idle);
  ASSERT_EQ(port->event_wait(device, events[0], &error), HUSK_OK);
  EXPECT_EQ(fake() ? fake().idle_waits() : 1, idle + 1);
  EXPECT_EQ(static_cast<int32_t*>(pinned[0])[kCount - 1], 6);
  // Again, with nothing to wait for.
  ASSERT_EQ(port->event_wait(device, events[0], &error), HUSK_OK);
  for (int i = 0; i < 2; ++i) {
    port->event_destroy(device, events[i]);
    port->free_host(device, pinned[i]);
  }
}

TEST_P(Port, MovesBytesUpDownAndAcross) {
  std::vector<int32_t> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 7);
  int32_t* a = device_array(numbers);
  int32_t* b = static_cast<int32_t*>(device_memory(4000));
  ASSERT_EQ(port->copy(device, stream, b, a, 4000, &error), HUSK_OK) << error.text;
  EXPECT_EQ(read(b, 1000), numbers);
  // Parts of the memory, also from its middle.
  ASSERT_EQ(port->copy(device, stream, b + 10, a, 12, &error), HUSK_OK) << error.text;
  ASSERT_EQ(port->copy(device, stream, b, a + 990, 40, &error), HUSK_OK) << error.text;
  EXPECT_EQ(read(b + 8, 6), (std::vector<int32_t>{1005, 1006, 7, 8, 9, 20}));
}

TEST_P(Port, HasReadTheSourceWhenAnUploadReturns) {
  std::vector<int32_t> source(500, 1);
  int32_t* target = static_cast<int32_t*>(device_memory(2000));
  ASSERT_EQ(port->upload(device, stream, target, source.data(), 2000, &error), HUSK_OK)
      << error.text;
  std::fill(source.begin(), source.end(), 2);
  EXPECT_EQ(read(target, 500), std::vector<int32_t>(500, 1));
}

TEST_P(Port, MovesNothing) {
  int32_t* a = device_array<int32_t>({1, 2});
  EXPECT_EQ(port->upload(device, stream, a, nullptr, 0, &error), HUSK_OK);
  EXPECT_EQ(port->download(device, stream, nullptr, a, 0, &error), HUSK_OK);
  EXPECT_EQ(port->copy(device, stream, a, a + 1, 0, &error), HUSK_OK);
  EXPECT_EQ(port->fill(device, stream, a, 9, 4, 0, &error), HUSK_OK);
  EXPECT_EQ(read(a, 2), (std::vector<int32_t>{1, 2}));
}

TEST_P(Port, FillsEveryWidth) {
  for (const uint64_t pattern : {uint64_t{0x0102030405060708}, uint64_t{0x1111111122222222},
                                 uint64_t{0x3333333333333333}, uint64_t{0}}) {
    for (const uint32_t width : {1u, 2u, 4u, 8u}) {
      for (const size_t count : {size_t{1}, size_t{3}, size_t{1001}}) {
        char* memory_of_fill = device_array(std::vector<char>((count + 2) * width, 0x77));
        ASSERT_EQ(port->fill(device, stream, memory_of_fill + width, pattern, width, count, &error),
                  HUSK_OK)
            << error.text;
        std::vector<char> wanted((count + 2) * width, 0x77);
        for (size_t i = 1; i <= count; ++i) memcpy(&wanted[i * width], &pattern, width);
        EXPECT_EQ(read(memory_of_fill, wanted.size()), wanted) << width << " x " << count;
        free_memory();
      }
    }
  }
}

TEST_P(Port, RefusesFillsOfOtherWidths) {
  void* piece = device_memory(64);
  EXPECT_EQ(port->fill(device, stream, piece, 0, 3, 4, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("3"));
}

TEST_P(Port, KeepsTheOrderOfAStream) {
  int32_t* a = device_array(std::vector<int32_t>(64, 0));
  int32_t* b = device_array(std::vector<int32_t>(64, 0));
  for (uint64_t i = 1; i <= 30; ++i) {
    ASSERT_EQ(port->fill(device, stream, a, i, 4, 64, &error), HUSK_OK);
    ASSERT_EQ(port->copy(device, stream, b, a, 256, &error), HUSK_OK);
  }
  EXPECT_EQ(read(b, 64), std::vector<int32_t>(64, 30));
}

TEST_P(Port, WorksOnTheDefaultStream) {
  void* own = stream;
  stream = nullptr;
  int32_t* a = device_array(std::vector<int32_t>(8, 5));
  ASSERT_EQ(port->fill(device, nullptr, a, 6, 4, 4, &error), HUSK_OK);
  ASSERT_EQ(port->stream_wait(device, nullptr, &error), HUSK_OK);
  EXPECT_EQ(read(a, 8), (std::vector<int32_t>{6, 6, 6, 6, 5, 5, 5, 5}));
  stream = own;
}

TEST_P(Port, ServesSeveralDevicesAndThreads) {
  const auto work = [this](int32_t seed, std::string* wrong) {
    husk_error mine{};
    void *opened = nullptr, *queue = nullptr, *piece = nullptr;
    CountedMemory own_memory;
    const husk_allocator own = own_memory.allocator();
    const auto check = [&](husk_status status) {
      if (status != HUSK_OK && wrong->empty()) *wrong = mine.text;
      return status == HUSK_OK;
    };
    if (!check(port->open(port->user, 0, &own, nullptr, &opened, &mine))) return;
    check(port->stream_create(opened, &queue, &mine));
    check(port->alloc(opened, 4096, &piece, &mine));
    for (int32_t i = 0; i < 50; ++i) {
      int32_t value = 0;
      const int32_t wanted = seed * 1000 + i;
      check(port->fill(opened, queue, piece, static_cast<uint32_t>(wanted), 4, 1024, &mine));
      check(port->download(opened, queue, &value, static_cast<int32_t*>(piece) + 1000, 4, &mine));
      if (value != wanted && wrong->empty()) *wrong = "another value than was filled in";
    }
    port->free(opened, piece);
    port->stream_destroy(opened, queue);
    port->close(opened);
    if (own_memory.live != 0) *wrong = "host memory leaked";
  };
  std::vector<std::string> wrong(4);
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < 4; ++i) threads.emplace_back(work, i, &wrong[static_cast<size_t>(i)]);
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

TEST_P(Port, RefusesAMissingDevice) {
  void* other = &other;
  EXPECT_NE(port->open(port->user, 63, &allocator, nullptr, &other, &error), HUSK_OK);
  EXPECT_TRUE(error_says("63"));
}

}  // namespace husk::port_test
