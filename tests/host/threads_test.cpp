// The thread pool, and kernels that use it.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <husk/port_host.h>

#include "host_device.h"

namespace husk::host_test {
namespace {

class Pool : public ::testing::Test {
 protected:
  void create_pool(uint32_t count) {
    ASSERT_EQ(husk_host_threads_create(count, nullptr, &threads, &error), HUSK_OK) << error.text;
  }
  void TearDown() override { husk_host_threads_release(&threads); }

  husk_threads threads{};
  husk_error error{};
};

struct Meeting {
  std::atomic<uint32_t> arrived{0};
  uint32_t expected = 0;
  std::atomic<int> visits[16] = {};
};

// Returns after all bodies of the region have called it, which proves that they run at the same
// time.
void meet(void* argument, uint32_t index) {
  auto& meeting = *static_cast<Meeting*>(argument);
  ++meeting.visits[index];
  ++meeting.arrived;
  while (meeting.arrived.load() < meeting.expected) std::this_thread::yield();
}

TEST_F(Pool, BodiesRunAtTheSameTime) {
  for (uint32_t count : {1u, 2u, 3u, 8u}) {
    create_pool(count);
    EXPECT_EQ(threads.count, count);
    for (int round = 0; round < 50; ++round) {
      for (uint32_t n = 1; n <= count; ++n) {
        Meeting meeting;
        meeting.expected = n;
        threads.parallel(threads.user, n, meet, &meeting);
        for (uint32_t i = 0; i < 16; ++i) ASSERT_EQ(meeting.visits[i].load(), i < n ? 1 : 0);
      }
    }
    husk_host_threads_release(&threads);
  }
}

TEST_F(Pool, TheFirstBodyRunsOnTheCallingThread) {
  create_pool(3);
  struct Shared {
    Meeting meeting;
    std::thread::id ids[3];
  } shared;
  shared.meeting.expected = 3;
  threads.parallel(
      threads.user, 3,
      [](void* argument, uint32_t i) {
        static_cast<Shared*>(argument)->ids[i] = std::this_thread::get_id();
        meet(&static_cast<Shared*>(argument)->meeting, i);
      },
      &shared);
  EXPECT_EQ(shared.ids[0], std::this_thread::get_id());
  EXPECT_NE(shared.ids[1], shared.ids[0]);
  EXPECT_NE(shared.ids[2], shared.ids[0]);
  EXPECT_NE(shared.ids[2], shared.ids[1]);
}

// A caller that has finished body 0 does not wait for a worker that still sleeps: it takes the
// other body itself.
TEST_F(Pool, TheCallerTakesBodiesThatNobodyHasBegun) {
  create_pool(2);
  int rounds = 0;
  for (std::thread::id ran; ran != std::this_thread::get_id(); ++rounds) {
    ASSERT_LT(rounds, 1000);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    threads.parallel(
        threads.user, 2,
        [](void* out, uint32_t i) {
          if (i == 1) *static_cast<std::thread::id*>(out) = std::this_thread::get_id();
        },
        &ran);
  }
}

TEST_F(Pool, NoBodies) {
  create_pool(2);
  threads.parallel(threads.user, 0, [](void*, uint32_t) { ADD_FAILURE(); }, nullptr);
}

// Callers queue: bodies of different regions never run at the same time, and each region has all
// threads that it asks for.
TEST_F(Pool, SeveralCallersAtOnce) {
  create_pool(3);
  std::atomic<int> inside{0}, max_inside{0};
  struct Shared {
    std::atomic<int>*inside, *max_inside;
    Meeting meeting;
  };
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        Shared shared{&inside, &max_inside, {}};
        shared.meeting.expected = 3;
        threads.parallel(
            threads.user, 3,
            [](void* argument, uint32_t index) {
              auto& state = *static_cast<Shared*>(argument);
              const int now = ++*state.inside;
              for (int seen = state.max_inside->load();
                   seen < now && !state.max_inside->compare_exchange_weak(seen, now);) {
              }
              meet(&state.meeting, index);
              --*state.inside;
            },
            &shared);
        EXPECT_EQ(shared.meeting.arrived.load(), 3u);
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(max_inside.load(), 3);
}

// The caller sees what bodies write, and bodies see what the caller writes, in plain memory.
TEST_F(Pool, RegionsAreOrdered) {
  create_pool(4);
  std::vector<int> numbers(4, 0);
  for (int round = 0; round < 1000; ++round) {
    threads.parallel(
        threads.user, 4, [](void* data, uint32_t i) { ++*(static_cast<int*>(data) + i); },
        numbers.data());
    for (int& number : numbers) ASSERT_EQ(number++, 2 * round + 1);
  }
}

TEST_F(Pool, WorkersSleepAndWake) {
  create_pool(2);
  for (int round = 0; round < 20; ++round) {
    Meeting meeting;
    meeting.expected = 2;
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 3));
    threads.parallel(threads.user, 2, meet, &meeting);
    EXPECT_EQ(meeting.arrived.load(), 2u);
  }
}

TEST_F(Pool, WorkersHaveSignalsBlocked) {
  create_pool(2);
  struct Shared {
    Meeting meeting;
    int blocked[2] = {-1, -1};
  } shared;
  shared.meeting.expected = 2;
  threads.parallel(
      threads.user, 2,
      [](void* argument, uint32_t i) {
        sigset_t set;
        pthread_sigmask(SIG_BLOCK, nullptr, &set);
        static_cast<Shared*>(argument)->blocked[i] = sigismember(&set, SIGINT);
        meet(&static_cast<Shared*>(argument)->meeting, i);
      },
      &shared);
  EXPECT_EQ(shared.blocked[0], 0);
  EXPECT_EQ(shared.blocked[1], 1);
}

TEST_F(Pool, AsManyAsCpus) {
  create_pool(0);
  EXPECT_GE(threads.count, 1u);
}

TEST_F(Pool, MemoryIsTheAllocators) {
  CountedMemory memory;
  const husk_allocator allocator = memory.allocator();
  ASSERT_EQ(husk_host_threads_create(2, &allocator, &threads, &error), HUSK_OK);
  EXPECT_EQ(memory.live, 1);
  husk_host_threads_release(&threads);
  EXPECT_EQ(memory.live, 0);
  EXPECT_EQ(threads.parallel, nullptr);
  memory.fail_at = 0;
  EXPECT_EQ(husk_host_threads_create(2, &allocator, &threads, &error), HUSK_OUT_OF_MEMORY);
  EXPECT_EQ(threads.user, nullptr);
}

TEST_F(Pool, Refusals) {
  const husk_allocator half{nullptr, nullptr, nullptr};
  EXPECT_EQ(husk_host_threads_create(2, &half, &threads, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_host_threads_create(2, nullptr, nullptr, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_host_threads_create(HUSK_HOST_THREADS_MAX + 1, nullptr, &threads, &error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("1025"), std::string::npos) << error.text;
  EXPECT_EQ(husk_host_threads_create(HUSK_HOST_THREADS_MAX + 1, nullptr, &threads, nullptr),
            HUSK_INVALID_ARGUMENT);
  husk_host_threads_release(nullptr);
  husk_host_threads_release(&threads);
}

// A device with threads, and the image of image_parallel.cpp.
class ParallelKernels : public ::testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override {
    if (GetParam() != 0) {
      ASSERT_EQ(husk_host_threads_create(GetParam(), nullptr, &threads, &error), HUSK_OK)
          << error.text;
    }
    ASSERT_EQ(port->open(nullptr, 0, &plain, GetParam() == 0 ? nullptr : &threads, &device, &error),
              HUSK_OK);
    std::ifstream in(HUSK_TEST_IMAGE_PARALLEL, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
    const husk_port_image image{sizeof(husk_port_image), HUSK_IMAGE_ELF, bytes.data(), bytes.size(),
                                "the parallel image",    nullptr};
    ASSERT_EQ(port->module_load(device, &image, &module, &error), HUSK_OK) << error.text;
  }
  void TearDown() override {
    port->module_unload(device, module);
    port->close(device);
    husk_host_threads_release(&threads);
  }

  void* kernel(const char* symbol) {
    void* handle = nullptr;
    const husk_port_kernel desc{sizeof(husk_port_kernel), 0, symbol, nullptr, 0, 1, 1, 0};
    EXPECT_EQ(port->kernel_get(device, module, &desc, &handle, &error), HUSK_OK) << error.text;
    return handle;
  }
  husk_status launch(void* kernel_handle, std::vector<void*> params, husk_error& failed) {
    const husk_launch desc{sizeof(husk_launch), {1, 1, 1}, {1, 1, 1}, 0, 1, 0, params.data()};
    return port->launch(device, nullptr, kernel_handle, &desc, &failed);
  }
  uint32_t count() const { return GetParam() == 0 ? 1 : GetParam(); }

  const husk_port* port = husk_port_host();
  const husk_allocator plain{nullptr, [](void*, size_t size, size_t) { return std::malloc(size); },
                             [](void*, void* pointer) { std::free(pointer); }};
  husk_threads threads{};
  husk_error error{};
  void *device = nullptr, *module = nullptr;
  std::vector<char> bytes;
};

INSTANTIATE_TEST_SUITE_P(Threads, ParallelKernels, ::testing::Values(0u, 1u, 2u, 3u, 8u));

TEST_P(ParallelKernels, UseAllThreads) {
  void* sum = kernel("parallel_sum");
  std::vector<float> x(1000, 0.25f);
  for (int32_t wanted : {0, 1, 2, 100}) {
    float out = 0, *from = x.data(), *to = &out;
    int64_t n = 1000, squares = 0, *numbers = &squares;
    for (int round = 0; round < 200; ++round) {
      ASSERT_EQ(launch(sum, {&from, &n, &to, &numbers, &wanted}, error), HUSK_OK) << error.text;
      EXPECT_EQ(out, 250.0f);
      const int64_t last = (wanted == 0 || wanted > static_cast<int32_t>(count()) ? count()
                                                                                  : wanted) -
                           1;
      ASSERT_EQ(squares, last * (last + 1) * (2 * last + 1) / 6);
      squares = 0;
    }
  }
}

// Added up in another order, these numbers give another sum.
TEST_P(ParallelKernels, AddUpInTheSameOrder) {
  void* sum = kernel("parallel_sum");
  std::vector<float> x(12345);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 1.0f / static_cast<float>(i * 7 % 1001 + 1);
  float first = 0;
  for (int round = 0; round < 100; ++round) {
    float out = 0, *from = x.data(), *to = &out;
    int64_t n = static_cast<int64_t>(x.size()), squares = 0, *numbers = &squares;
    int32_t wanted = 0;
    ASSERT_EQ(launch(sum, {&from, &n, &to, &numbers, &wanted}, error), HUSK_OK) << error.text;
    if (round == 0) first = out;
    ASSERT_EQ(out, first);
  }
}

TEST_P(ParallelKernels, AFailedCheckEndsTheKernel) {
  void* sum = kernel("parallel_sum");
  std::vector<float> x(1000, 1.0f);
  for (int64_t wrong : {0, 500, 999}) {
    x[static_cast<size_t>(wrong)] = -1;
    float out = 7, *from = x.data(), *to = &out;
    int64_t n = 1000, squares = 0, *numbers = &squares;
    int32_t wanted = 0;
    EXPECT_EQ(launch(sum, {&from, &n, &to, &numbers, &wanted}, error), HUSK_KERNEL);
    EXPECT_NE(std::string(error.text).find("an element is negative"), std::string::npos)
        << error.text;
    EXPECT_EQ(out, 7.0f);
    x[static_cast<size_t>(wrong)] = 1;
    // The pool still works after a failure.
    EXPECT_EQ(launch(sum, {&from, &n, &to, &numbers, &wanted}, error), HUSK_OK);
    EXPECT_EQ(out, 1000.0f);
  }
}

TEST_P(ParallelKernels, ChecksFailBeforeAndAfterBarriers) {
  void* fail = kernel("parallel_fail");
  for (int round = 0; round < 300; ++round) {
    std::vector<int32_t> fails(count(), 0);
    const int32_t* from = fails.data();
    EXPECT_EQ(launch(fail, {&from}, error), HUSK_OK);
    const int32_t number = round % 2 + 1;
    fails[static_cast<size_t>(round) % count()] = number;
    EXPECT_EQ(launch(fail, {&from}, error), HUSK_KERNEL);
    const std::string text = error.text;
    EXPECT_NE(text.find(number == 1 ? "unnamed" : "no memory"), std::string::npos) << text;
    fails.assign(count(), 1);
    // Bodies with number 1 fail before the barrier, so body 0 never gets past it, and the kernel
    // reports number 1.
    fails[0] = count() > 1 ? 2 : 1;
    EXPECT_EQ(launch(fail, {&from}, error), HUSK_KERNEL);
    EXPECT_NE(std::string(error.text).find("unnamed"), std::string::npos) << error.text;
  }
}

TEST_P(ParallelKernels, NestedRegionsAreSerial) {
  void* nested = kernel("parallel_nested");
  int32_t inner = 0, *out = &inner;
  ASSERT_EQ(launch(nested, {&out}, error), HUSK_OK) << error.text;
  EXPECT_EQ(inner, static_cast<int32_t>(count()));
}

TEST_P(ParallelKernels, DivisionByZeroIsAnError) {
  void* divide = kernel("divide");
  int32_t by = 7, result = 0, *out = &result;
  EXPECT_EQ(launch(divide, {&out, &by}, error), HUSK_OK);
  EXPECT_EQ(result, 14);
  by = 0;
  EXPECT_EQ(launch(divide, {&out, &by}, error), HUSK_KERNEL);
  EXPECT_NE(std::string(error.text).find("a division by 0"), std::string::npos) << error.text;
}

TEST_P(ParallelKernels, FromSeveralCallers) {
  void *sum = kernel("parallel_sum"), *fail = kernel("parallel_fail");
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, caller] {
      std::vector<float> x(3000, 0.5f);
      std::vector<int32_t> fails(count(), 0);
      fails.back() = 2;
      for (int round = 0; round < 100; ++round) {
        husk_error own{};
        float out = 0, *from = x.data(), *to = &out;
        int64_t n = 3000, squares = 0, *numbers = &squares;
        int32_t wanted = caller;
        EXPECT_EQ(launch(sum, {&from, &n, &to, &numbers, &wanted}, own), HUSK_OK) << own.text;
        EXPECT_EQ(out, 1500.0f);
        const int32_t* failing = fails.data();
        EXPECT_EQ(launch(fail, {&failing}, own), HUSK_KERNEL);
      }
    });
  }
  for (auto& caller : callers) caller.join();
}

TEST(DeviceThreads, MustHaveParallel) {
  CountedMemory memory;
  const husk_allocator allocator = memory.allocator();
  husk_error error{};
  void* device = &error;
  const husk_threads incomplete{nullptr, 4, nullptr};
  EXPECT_EQ(husk_port_host()->open(nullptr, 0, &allocator, &incomplete, &device, &error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(device, nullptr);
  EXPECT_NE(std::string(error.text).find("threads"), std::string::npos) << error.text;
}

}  // namespace
}  // namespace husk::host_test
