// The fake driver's own checks: it aborts at uses that a real driver leaves undefined.
#include <driver.h>

#include "port_case.h"

namespace husk::port_test {

// Death tests fork and do not start the program again, which a program under qemu cannot do. That
// is safe because no other thread runs.
class FakeDriver : public OverFake {
 protected:
  void SetUp() override {
    OverFake::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(cuda::load_driver(&driver, &error), HUSK_OK);
  }
  void TearDown() override {
    OverFake::TearDown();
    if (driver.library) cuda::unload_driver(&driver);
  }
  void launch(int32_t* out, int32_t* in, int32_t n) {
    int32_t value = 1;
    void* params[] = {&out, &in, &value, &n};
    const husk_launch launched = launch_for(n, params);
    EXPECT_EQ(port->launch(device, stream, add_scalar(), &launched, &error), HUSK_OK);
  }
  cuda::Driver driver{};
};

TEST_F(FakeDriver, DetectsADoubleFree) {
  void* piece = nullptr;
  ASSERT_EQ(port->alloc(device, 64, &piece, &error), HUSK_OK);
  port->free(device, piece);
  EXPECT_DEATH(port->free(device, piece), "fake libcuda: cuMemFree: .* freed before");
  EXPECT_DEATH(port->free(device, &piece), "fake libcuda: cuMemFree: .* not the start");
}

TEST_F(FakeDriver, DetectsAFreeOfMemoryThatQueuedWorkUses) {
  int32_t *a = device_array(std::vector<int32_t>(8, 1)),
          *b = device_array(std::vector<int32_t>(8, 1));
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
  launch(b, a, 8);
  EXPECT_DEATH(port->free(device, b),
               "fake libcuda: cuMemFree: queued work uses .*: kernel add_scalar");
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
  ASSERT_EQ(port->copy(device, stream, b, a, 32, &error), HUSK_OK);
  EXPECT_DEATH(port->free(device, a),
               "fake libcuda: cuMemFree: queued work uses .*: cuMemcpyAsync");
}

TEST_F(FakeDriver, DetectsAccessesPastTheEndOfMemory) {
  char *a = device_array(std::vector<char>(100, 1)), *b = device_array(std::vector<char>(100, 1));
  EXPECT_DEATH(port->copy(device, stream, a, b, 101, &error),
               "cuMemcpyAsync: a copy's target of 101");
  EXPECT_DEATH(port->copy(device, stream, a + 1, b, 100, &error),
               "begins at byte 1 of live memory");
  EXPECT_DEATH(port->fill(device, stream, a, 0, 4, 26, &error),
               "fake libcuda: cuMemsetD32Async: a fill of 104 bytes");
  EXPECT_DEATH(port->upload(device, stream, &a, b, 8, &error), "an upload .* not device memory");
  EXPECT_DEATH(port->copy(device, stream, a + 8, a, 16, &error), "overlap");
}

// Pinned memory belongs to a queued copy until it is done.
TEST_F(FakeDriver, DetectsAccessesToHostMemoryThatQueuedCopiesUse) {
  char* a = device_array(std::vector<char>(64, 1));
  void* pinned = nullptr;
  ASSERT_EQ(port->alloc_host(device, 64, &pinned, &error), HUSK_OK);
  volatile char* bytes = static_cast<char*>(pinned);
  ASSERT_EQ(port->copy(device, stream, pinned, a, 64, &error), HUSK_OK);
  EXPECT_DEATH((void)bytes[0], "the host touched .*: a queued copy uses this pinned memory");
  EXPECT_DEATH(port->free_host(device, pinned), "cuMemFreeHost: queued work uses .* cuMemcpyAsync");
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
  EXPECT_EQ(bytes[63], 1);
  ASSERT_EQ(port->copy(device, stream, a, pinned, 64, &error), HUSK_OK);
  EXPECT_EQ(bytes[63], 1) << "reading what a copy reads is allowed";
  EXPECT_DEATH(bytes[0] = 2, "a queued copy uses this pinned memory");
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
  bytes[0] = 2;
  EXPECT_DEATH(port->copy(device, stream, static_cast<char*>(pinned) + 1, a, 64, &error),
               "a copy's target of 64 bytes begins at byte 1 of 64 bytes of pinned memory");
  char pageable[8] = "1234567";
  ASSERT_EQ(port->copy(device, stream, a, pageable, 8, &error), HUSK_OK);
  memset(pageable, 0, 8);
  ASSERT_EQ(port->copy(device, stream, pageable, a, 8, &error), HUSK_OK);
  EXPECT_STREQ(pageable, "1234567");
  port->free_host(device, pinned);
}

// A wait for an event ends the copies before it, and none behind it.
TEST_F(FakeDriver, DetectsAccessesToHostMemoryThatNobodyWaitedFor) {
  char* a = device_array(std::vector<char>(64, 1));
  void *pinned[2] = {}, *event = nullptr;
  for (void*& one : pinned) ASSERT_EQ(port->alloc_host(device, 64, &one, &error), HUSK_OK);
  ASSERT_EQ(port->event_create(device, &event, &error), HUSK_OK);
  const uint64_t idle = fake().idle_waits();
  ASSERT_EQ(port->copy(device, stream, pinned[0], a, 64, &error), HUSK_OK);
  ASSERT_EQ(port->event_record(device, event, stream, &error), HUSK_OK);
  ASSERT_EQ(port->copy(device, stream, pinned[1], a, 64, &error), HUSK_OK);
  EXPECT_DEATH((void)*static_cast<volatile char*>(pinned[0]), "a queued copy uses this");
  ASSERT_EQ(port->event_wait(device, event, &error), HUSK_OK);
  EXPECT_EQ(*static_cast<char*>(pinned[0]), 1);
  EXPECT_DEATH((void)*static_cast<volatile char*>(pinned[1]), "a queued copy uses this");
  EXPECT_EQ(fake().idle_waits(), idle);
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
  EXPECT_EQ(fake().idle_waits(), idle + 1);
  EXPECT_EQ(*static_cast<char*>(pinned[1]), 1);
  for (void* one : pinned) port->free_host(device, one);
  port->event_destroy(device, event);
}

TEST_F(FakeDriver, DetectsWritesOfKernelsPastTheEnd) {
  int32_t *in = device_array(std::vector<int32_t>(4096, 1)),
          *out = device_array(std::vector<int32_t>(64, 1));
  EXPECT_DEATH(
      {
        launch(out, in, 64 + 1);
        port->stream_wait(device, stream, &error);
      },
      "byte 256 of live memory .* of 256 bytes");
  // A write to the bytes between the end and the next aligned address is reported when the memory
  // is freed.
  int32_t* odd = device_array(std::vector<int32_t>(60, 1));
  EXPECT_DEATH(
      {
        launch(odd, in, 61);
        port->stream_wait(device, stream, &error);
        port->free(device, odd);
      },
      "240 bytes: something was written 240 bytes from its start");
}

TEST_F(FakeDriver, DetectsStalePointersInParameters) {
  void* piece = nullptr;
  ASSERT_EQ(port->alloc(device, 64, &piece, &error), HUSK_OK);
  port->free(device, piece);
  int32_t* stale = static_cast<int32_t*>(piece);
  EXPECT_DEATH(launch(stale, stale, 8),
               "cuLaunchKernel: parameter 0 of kernel add_scalar points to byte 0 of freed");
}

TEST_F(FakeDriver, DetectsAnUnloadOfALibraryThatQueuedWorkUses) {
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  const Image image = kernels_image();
  void* module = nullptr;
  const husk_port_image view = image.view();
  ASSERT_EQ(port->module_load(device, &view, &module, &error), HUSK_OK);
  const husk_port_kernel desc = {
      sizeof(husk_port_kernel), 4, "add_scalar", kBinary.data(), 0, 1, 128, 0};
  void* add = nullptr;
  ASSERT_EQ(port->kernel_get(device, module, &desc, &add, &error), HUSK_OK);
  int32_t value = 1, n = 8;
  void* params[] = {&a, &a, &value, &n};
  const husk_launch launched = launch_for(8, params);
  ASSERT_EQ(port->launch(device, stream, add, &launched, &error), HUSK_OK);
  EXPECT_DEATH(port->module_unload(device, module),
               "cuLibraryUnload: queued work uses it: kernel add_scalar");
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
  port->module_unload(device, module);
}

TEST_F(FakeDriver, DetectsAChangedImage) {
  Image image = kernels_image();
  void* module = nullptr;
  const husk_port_image view = image.view();
  ASSERT_EQ(port->module_load(device, &view, &module, &error), HUSK_OK);
  image.bytes[100] ^= 1;
  EXPECT_DEATH(port->module_unload(device, module), "the image's bytes have changed");
  image.bytes[100] ^= 1;
  port->module_unload(device, module);
}

TEST_F(FakeDriver, DetectsDeadAndForeignHandles) {
  void* other = nullptr;
  ASSERT_EQ(port->stream_create(device, &other, &error), HUSK_OK);
  port->stream_destroy(device, other);
  EXPECT_DEATH(port->stream_wait(device, other, &error), "cuStreamSynchronize: stream .* is dead");
  EXPECT_DEATH(port->stream_wait(device, &other, &error), "is not a handle");
  const auto no_exec = static_cast<cuda::CUgraphExec>(stream);
  EXPECT_DEATH(driver.cuGraphExecDestroy(no_exec), "is a stream, not a executable graph");
}

TEST_F(FakeDriver, DetectsObjectsLeftInTheLastContext) {
  EXPECT_DEATH(port->close(device),
               "cuDevicePrimaryCtxRelease: the last one, and there still is a live stream");
}

TEST_F(FakeDriver, WantsAContext) {
  cuda::CUdeviceptr piece;
  EXPECT_DEATH(driver.cuMemAlloc(&piece, 64), "cuMemAlloc: no context is current");
  cuda::CUcontext popped;
  EXPECT_DEATH(driver.cuCtxPopCurrent(&popped), "cuCtxPopCurrent: no context is current");
}

TEST_F(FakeDriver, DetectsEdgesBetweenGraphsAndFromDeadNodes) {
  cuda::CUgraph one, other;
  cuda::CUgraphNode first, second;
  ASSERT_EQ(driver.cuGraphCreate(&one, 0), 0);
  ASSERT_EQ(driver.cuGraphCreate(&other, 0), 0);
  ASSERT_EQ(driver.cuGraphAddEmptyNode(&first, one, nullptr, 0), 0);
  EXPECT_DEATH(driver.cuGraphAddEmptyNode(&second, other, &first, 1),
               "edge 0 comes from a node of another graph");
  driver.cuGraphDestroy(one);
  EXPECT_DEATH(driver.cuGraphAddEmptyNode(&second, other, &first, 1), "graph node .* is dead");
  driver.cuGraphDestroy(other);
}

TEST_F(FakeDriver, RunsNoWorkBeforeAWait) {
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
  ASSERT_EQ(port->fill(device, stream, a, 5, 4, 8, &error), HUSK_OK);
  EXPECT_EQ(fake().pending(), 1u);
  EXPECT_EQ(*a, 1);  // the host can read the fake device's memory
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
  EXPECT_EQ(*a, 5);
  fake().schedule(1, 100);
  ASSERT_EQ(port->fill(device, stream, a, 6, 4, 8, &error), HUSK_OK);
  EXPECT_EQ(*a, 6);
}

TEST_F(FakeDriver, DoesNotOrderStreamsAmongEachOther) {
  void* other = nullptr;
  ASSERT_EQ(port->stream_create(device, &other, &error), HUSK_OK);
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
  bool seen[2] = {false, false};
  for (uint64_t seed = 1; seed < 40; ++seed) {
    fake().schedule(seed, 0);
    ASSERT_EQ(port->fill(device, stream, a, 5, 4, 8, &error), HUSK_OK);
    ASSERT_EQ(port->fill(device, other, a, 6, 4, 8, &error), HUSK_OK);
    ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
    ASSERT_EQ(port->stream_wait(device, other, &error), HUSK_OK);
    seen[*a == 6] = true;
  }
  EXPECT_TRUE(seen[0] && seen[1]);  // so a program that needs one of the orders fails in some run
  port->stream_destroy(device, other);
}

TEST_F(FakeDriver, RunsNodesWithoutEdgesInAnyOrder) {
  const husk_port_graphs& graphs = *port->graphs;
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  void *graph = nullptr, *exec = nullptr;
  ASSERT_EQ(graphs.graph_create(device, &graph, &error), HUSK_OK);
  for (const uint64_t value : {5, 6})
    ASSERT_EQ(graphs.graph_add_fill(device, graph, a, value, 4, 8, nullptr, 0, &error), HUSK_OK);
  ASSERT_EQ(graphs.graph_instantiate(device, graph, &exec, &error), HUSK_OK);
  bool seen[2] = {false, false};
  for (uint64_t seed = 1; seed < 40; ++seed) {
    fake().schedule(seed, 0);
    ASSERT_EQ(graphs.exec_launch(device, exec, stream, &error), HUSK_OK);
    ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
    seen[*a == 6] = true;
  }
  EXPECT_TRUE(seen[0] && seen[1]);
  graphs.exec_destroy(device, exec);
  graphs.graph_destroy(device, graph);
}

TEST_F(FakeDriver, AllocatesNoMoreMemoryThanTheDeviceHas) {
  fake().set_memory(1 << 20);
  void* piece = nullptr;
  EXPECT_EQ(port->alloc(device, (1 << 20) + 1, &piece, &error), HUSK_OUT_OF_MEMORY);
  EXPECT_TRUE(
      error_says("cuMemAlloc CUDA_ERROR_OUT_OF_MEMORY 1048577 free are 1048576 of 1048576"));
}

TEST_F(FakeDriver, DetectsAFreeOfPinnedMemoryThatQueuedWorkReads) {
  void *pinned = nullptr, *entered = nullptr;
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  ASSERT_EQ(port->enter(device, &entered, &error), HUSK_OK);
  ASSERT_EQ(driver.cuMemAllocHost(&pinned, 100), 0);
  ASSERT_EQ(driver.cuMemcpyHtoDAsync(reinterpret_cast<uintptr_t>(a), pinned, 32,
                                     static_cast<cuda::CUstream>(stream)),
            0);
  EXPECT_DEATH(driver.cuMemFreeHost(pinned),
               "cuMemFreeHost: queued work uses .*: cuMemcpyHtoDAsync");
  EXPECT_DEATH(driver.cuMemFreeHost(static_cast<char*>(pinned) + 1),
               "is not the start of pinned memory");
  EXPECT_DEATH(driver.cuMemHostUnregister(pinned), "is not the start of registered memory");
  ASSERT_EQ(port->stream_wait(entered, stream, &error), HUSK_OK);
  static_cast<char*>(pinned)[100] = 1;
  EXPECT_DEATH(driver.cuMemFreeHost(pinned),
               "100 bytes: something was written 100 bytes from its start");
  static_cast<char*>(pinned)[100] = 0x5A;
  EXPECT_EQ(driver.cuMemFreeHost(pinned), 0);
  port->leave(entered);
}

}  // namespace husk::port_test
