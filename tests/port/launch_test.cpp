#include <cstring>
#include <numeric>

#include "port_case.h"

namespace husk::port_test {

using PortLaunch = Port;
using OverFakeLaunch = OverFake;
class CudaLaunch : public Cuda {};

TEST_P(PortLaunch, Computes) {
  std::vector<int32_t> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 0);
  int32_t *in = device_array(numbers), *out = device_array(std::vector<int32_t>(1000, -1));
  int32_t value = 5, n = 1000;
  void* params[] = {&out, &in, &value, &n};
  const husk_launch launch = launch_for(n, params);
  ASSERT_EQ(port->launch(device, stream, add_scalar(), &launch, &error), HUSK_OK) << error.text;
  for (int32_t& number : numbers) number += 5;
  EXPECT_EQ(read(out, 1000), numbers);
}

TEST_P(PortLaunch, ReadsItsParametersDuringTheCall) {
  int32_t* a = device_array(std::vector<int32_t>(4, 0));
  int32_t n = 4;
  for (int32_t i = 1; i <= 20; ++i) {
    int32_t value = i;
    int32_t* pointer = a;
    std::vector<void*> params = {&pointer, &pointer, &value, &n};
    const husk_launch launch = launch_for(n, params.data());
    ASSERT_EQ(port->launch(device, stream, add_scalar(), &launch, &error), HUSK_OK) << error.text;
    value = 1000000;
    pointer = nullptr;
    std::fill(params.begin(), params.end(), nullptr);
  }
  EXPECT_EQ(read(a, 4), std::vector<int32_t>(4, 210));
}

TEST_P(PortLaunch, PassesEveryWidth) {
  uint64_t* out = device_array(std::vector<uint64_t>(6, ~uint64_t{0}));
  uint8_t a = 0xA1;
  uint16_t b = 0xB1B2;
  uint32_t c = 0xC1C2C3C4;
  uint64_t d = 0xD1D2D3D4D5D6D7D8;
  float e = 1.5f;
  double f = -2.25;
  void* params[] = {&out, &a, &b, &c, &d, &e, &f};
  const husk_launch launch = launch_for(1, params);
  void* widths = kernel("widths",
                        {HUSK_POINTER, HUSK_U8, HUSK_F16, HUSK_U32, HUSK_I64, HUSK_F32, HUSK_F64});
  ASSERT_EQ(port->launch(device, stream, widths, &launch, &error), HUSK_OK) << error.text;
  EXPECT_EQ(read(out, 6), (std::vector<uint64_t>{a, b, c, d, 0x3FC00000, 0xC002000000000000}));
}

TEST_P(PortLaunch, KeepsTheOrderOfAStream) {
  int32_t *a = device_array(std::vector<int32_t>(300, 1)),
          *b = device_array(std::vector<int32_t>(300, 0));
  int32_t value = 1, factor = 3, n = 300;
  void* add_params[] = {&b, &a, &value, &n};
  void* scale_params[] = {&a, &b, &factor, &n};
  const husk_launch add = launch_for(n, add_params), scale = launch_for(n, scale_params);
  void* scale_kernel = kernel("scale_careless", kBinary);
  int32_t wanted = 1;
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(port->launch(device, stream, add_scalar(), &add, &error), HUSK_OK);
    ASSERT_EQ(port->launch(device, stream, scale_kernel, &scale, &error), HUSK_OK);
    wanted = (wanted + 1) * 3;
  }
  EXPECT_EQ(read(a, 300), std::vector<int32_t>(300, wanted));
}

TEST_P(PortLaunch, ShowsTheKernelItsGrid) {
  uint32_t* out = device_array(std::vector<uint32_t>(6, 99));
  void* params[] = {&out};
  husk_launch launch = {sizeof(husk_launch), {5, 4, 3}, {8, 4, 2}, 0, 1, 0, params};
  if (host) launch = launch_for(1, params);
  ASSERT_EQ(port->launch(device, stream, kernel("shape", {HUSK_POINTER}), &launch, &error), HUSK_OK)
      << error.text;
  EXPECT_EQ(read(out, 6),
            host ? std::vector<uint32_t>(6, 1) : (std::vector<uint32_t>{5, 4, 3, 8, 4, 2}));
}

TEST_P(PortLaunch, TakesAListOfLaunches) {
  if (!port->launch_list) GTEST_SKIP() << "the port takes one launch at a time";
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  int32_t value = 1, factor = 3, n = 8;
  void* add_params[] = {&a, &a, &value, &n};
  void* scale_params[] = {&a, &a, &factor, &n};
  void* scale_kernel = kernel("scale_careless", kBinary);
  const husk_launch add = launch_for(n, add_params), scale = launch_for(n, scale_params);
  husk_launch empty = add, wrong = add, older = add;
  empty.grid[1] = 0;
  wrong.block[2] = 1u << 20;
  older.struct_size = offsetof(husk_launch, params);
  const husk_listed_launch list[] = {{add_scalar(), &add},    // 2
                                     {scale_kernel, &scale},  // 6
                                     {add_scalar(), &empty},  // 6
                                     {add_scalar(), &add},    // 7
                                     {add_scalar(), &wrong},  // fails
                                     {add_scalar(), &add}};   // is left out
  uint32_t failed = 99;
  ASSERT_EQ(port->launch_list(device, stream, list, 4, &failed, &error), HUSK_OK) << error.text;
  EXPECT_EQ(failed, 99u);
  EXPECT_EQ(read(a, 8), std::vector<int32_t>(8, 7));
  EXPECT_NE(port->launch_list(device, stream, list + 3, 3, &failed, &error), HUSK_OK);
  EXPECT_EQ(failed, 1u);
  EXPECT_TRUE(error_says("add_scalar block")) << error.text;
  EXPECT_EQ(read(a, 8), std::vector<int32_t>(8, 8));
  const husk_listed_launch small = {add_scalar(), &older};
  EXPECT_EQ(port->launch_list(device, stream, &small, 1, &failed, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(failed, 0u);
  EXPECT_TRUE(error_says("husk_launch.struct_size")) << error.text;
}

EVERY_PORT(PortLaunch);

TEST_F(CudaLaunch, TakesMoreSharedMemoryThan48Kilobytes) {
  const uint32_t shared = 64 * 1024;
  int32_t* out = device_array<int32_t>({0});
  int32_t bytes = shared, value = 4711;
  void* params[] = {&out, &bytes, &value};
  const husk_launch launch = {sizeof(husk_launch), {1, 1, 1}, {32, 1, 1}, shared, 1, 0, params};
  void* large = kernel("shared_last", {HUSK_POINTER, HUSK_I32, HUSK_I32}, 32, shared);
  kernel("shared_last", {HUSK_POINTER, HUSK_I32, HUSK_I32}, 32, 1024);  // does not lower the limit
  ASSERT_EQ(port->launch(device, stream, large, &launch, &error), HUSK_OK) << error.text;
  EXPECT_EQ(read(out, 1)[0], 4711);
}

TEST_F(CudaLaunch, TakesClustersAndCooperativeGrids) {
  husk_port_properties properties = HUSK_PORT_PROPERTIES_INIT;
  port->properties(device, &properties);
  if (port->arch_rank(device, "sm_90", HUSK_IMAGE_PTX) == 0)
    GTEST_SKIP() << "no clusters on " << properties.arch;
  const uint32_t launches[][2] = {
      {2, 0}, {1, HUSK_LAUNCH_COOPERATIVE}, {2, HUSK_LAUNCH_COOPERATIVE}, {16, 0}};
  for (const auto& [cluster, flags] : launches) {
    int32_t* a = device_array(std::vector<int32_t>(4096, 1));
    int32_t value = 1, n = 4096;
    void* params[] = {&a, &a, &value, &n};
    husk_launch launch = launch_for(n, params);
    launch.cluster = cluster;
    launch.flags = flags;
    void* add = kernel("add_scalar", kBinary, 128, 0, cluster);
    ASSERT_EQ(port->launch(device, stream, add, &launch, &error), HUSK_OK) << error.text;
    EXPECT_EQ(read(a, 4096), std::vector<int32_t>(4096, 2));
  }
}

// A chain of ten launches of out[i] = in[i] * 3. Each kernel may start before the one before it has
// ended.
class CudaProgrammatic : public Cuda {
 protected:
  bool can_wait() {
    husk_port_properties properties = HUSK_PORT_PROPERTIES_INIT;
    port->properties(device, &properties);
    return port->arch_rank(device, "sm_90", HUSK_IMAGE_PTX) != 0;
  }
  std::vector<int32_t> chain(void* scale, int32_t* a, int32_t* b) {
    int32_t factor = 3, n = 300;
    for (int i = 0; i < 10; ++i) {
      int32_t *in = i % 2 ? b : a, *out = i % 2 ? a : b;
      void* params[] = {&out, &in, &factor, &n};
      husk_launch launch = launch_for(n, params);
      launch.flags = HUSK_LAUNCH_PROGRAMMATIC;
      EXPECT_EQ(port->launch(device, stream, scale, &launch, &error), HUSK_OK) << error.text;
    }
    return read(a, 300);
  }
};
class OverFakeProgrammatic : public CudaProgrammatic {
  void SetUp() override {
    NEEDS_FAKE;
    CudaProgrammatic::SetUp();
  }
};

TEST_F(CudaProgrammatic, LaunchesKeepTheResultsOfTheStreamsOrder) {
  if (!can_wait()) GTEST_SKIP() << "needs sm_90";
  void* scale = kernel("scale_wait", kBinary);
  for (int round = 0; round < 20; ++round) {
    if (fake())
      fake().schedule(static_cast<uint64_t>(round), static_cast<uint32_t>(round % 3) * 40);
    int32_t *a = device_array(std::vector<int32_t>(300, 1)),
            *b = device_array(std::vector<int32_t>(300, 0));
    EXPECT_EQ(chain(scale, a, b), std::vector<int32_t>(300, 59049));
    free_memory();
  }
}

// A programmatic launch keeps its order with copies and fills before and after it.
TEST_F(CudaProgrammatic, LaunchesKeepTheirOrderWithCopiesAndFills) {
  if (!can_wait()) GTEST_SKIP() << "needs sm_90";
  void* scale = kernel("scale_wait", kBinary);
  int32_t *a = device_array(std::vector<int32_t>(300, 1)),
          *b = device_array(std::vector<int32_t>(300, 0));
  int32_t *c = device_array(std::vector<int32_t>(300, 0)), factor = 3, n = 300;
  void* params[] = {&b, &a, &factor, &n};
  husk_launch launch = launch_for(n, params);
  launch.flags = HUSK_LAUNCH_PROGRAMMATIC;
  for (uint64_t i = 1; i <= 20; ++i) {
    if (fake()) fake().schedule(i, 0);
    ASSERT_EQ(port->fill(device, stream, a, i, 4, 300, &error), HUSK_OK);
    ASSERT_EQ(port->launch(device, stream, scale, &launch, &error), HUSK_OK) << error.text;
    ASSERT_EQ(port->copy(device, stream, c, b, 1200, &error), HUSK_OK);
    EXPECT_EQ(read(c, 300), std::vector<int32_t>(300, static_cast<int32_t>(i) * 3));
  }
}

TEST_F(OverFakeProgrammatic, LaunchesBeginEarlyAndShowAMissingWait) {
  int32_t *a = device_array(std::vector<int32_t>(300, 1)),
          *b = device_array(std::vector<int32_t>(300, 0));
  EXPECT_EQ(chain(kernel("scale_wait", kBinary), a, b), std::vector<int32_t>(300, 59049));
  EXPECT_GT(fake().early_starts(), 0u);
  bool wrong = false;
  for (uint64_t seed = 1; seed < 30 && !wrong; ++seed) {
    fake().schedule(seed, 0);
    free_memory();
    a = device_array(std::vector<int32_t>(300, 1));
    b = device_array(std::vector<int32_t>(300, 0));
    wrong = chain(kernel("scale_careless", kBinary), a, b) != std::vector<int32_t>(300, 59049);
  }
  EXPECT_TRUE(wrong);
}

TEST_F(OverFakeProgrammatic, LaunchesArePlainIfKernelsCannotWait) {
  close();
  fake().set_capability(8, 7);
  ASSERT_EQ(open(), HUSK_OK) << error.text;
  ASSERT_EQ(port->stream_create(device, &stream, &error), HUSK_OK) << error.text;
  int32_t *a = device_array(std::vector<int32_t>(300, 1)),
          *b = device_array(std::vector<int32_t>(300, 0));
  EXPECT_EQ(chain(kernel("scale_careless", kBinary), a, b), std::vector<int32_t>(300, 59049));
  EXPECT_EQ(fake().calls("cuLaunchKernel"), 10u);
}

TEST_F(OverFakeProgrammatic, HasNoEffectOnGraphNodes) {
  int32_t *a = device_array(std::vector<int32_t>(300, 1)), factor = 3, n = 300;
  void* params[] = {&a, &a, &factor, &n};
  const husk_launch plain = launch_for(n, params);
  husk_launch early = plain;
  early.flags = HUSK_LAUNCH_PROGRAMMATIC;
  void *scale = kernel("scale_wait", kBinary), *graph = nullptr, *exec = nullptr;
  const husk_port_graphs& graphs = *port->graphs;
  ASSERT_EQ(graphs.graph_create(device, &graph, &error), HUSK_OK);
  ASSERT_EQ(graphs.graph_add_kernel(device, graph, scale, &early, nullptr, 0, &error), HUSK_OK)
      << error.text;
  ASSERT_EQ(graphs.graph_instantiate(device, graph, &exec, &error), HUSK_OK);
  EXPECT_EQ(graphs.exec_set_kernel(device, exec, 0, scale, &plain, &error), HUSK_OK) << error.text;
  EXPECT_EQ(graphs.exec_set_kernel(device, exec, 0, scale, &early, &error), HUSK_OK) << error.text;
  ASSERT_EQ(graphs.exec_launch(device, exec, stream, &error), HUSK_OK);
  EXPECT_EQ(read(a, 300), std::vector<int32_t>(300, 3));
  graphs.exec_destroy(device, exec);
  graphs.graph_destroy(device, graph);
}

TEST_F(CudaLaunch, NamesTheKernelAndTheGridOfARefusedLaunch) {
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  int32_t value = 1, n = 8;
  void* params[] = {&a, &a, &value, &n};
  husk_launch launch = launch_for(n, params);
  launch.grid[1] = 70000;  // at most 65535
  EXPECT_EQ(port->launch(device, stream, add_scalar(), &launch, &error), HUSK_DEVICE);
  EXPECT_TRUE(error_says("add_scalar 70000 cuLaunchKernel: CUDA_ERROR_INVALID_VALUE"));
  EXPECT_EQ(error.driver_code, 1);
  launch = launch_for(n, params);
  launch.cluster = 3;  // does not divide the grid
  launch.grid[0] = 4;
  EXPECT_NE(port->launch(device, stream, kernel("add_scalar", kBinary, 128, 0, 2), &launch, &error),
            HUSK_OK);
  EXPECT_TRUE(error_says("add_scalar cuLaunchKernelEx CUDA_ERROR"));
  EXPECT_EQ(read(a, 8), std::vector<int32_t>(8, 1));
}

TEST_F(OverFakeLaunch, UsesTheShortCallIfPossible) {
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  int32_t value = 1, n = 8;
  void* params[] = {&a, &a, &value, &n};
  const husk_launch launch = launch_for(n, params);
  ASSERT_EQ(port->launch(device, stream, add_scalar(), &launch, &error), HUSK_OK);
  EXPECT_EQ(fake().calls("cuLaunchKernel"), 1u);
  EXPECT_EQ(fake().calls("cuLaunchKernelEx"), 0u);
}

TEST_F(OverFakeLaunch, AllocatesNothing) {
  int32_t *a = device_array(std::vector<int32_t>(8, 1)),
          *b = device_array(std::vector<int32_t>(8, 1));
  int32_t value = 1, n = 8;
  void* params[] = {&a, &a, &value, &n};
  const husk_launch launch = launch_for(n, params);
  void* add = add_scalar();
  memory.fail_at = 1;  // the next allocation would fail
  EXPECT_EQ(port->launch(device, stream, add, &launch, &error), HUSK_OK);
  EXPECT_EQ(port->copy(device, stream, b, a, 32, &error), HUSK_OK);
  EXPECT_EQ(port->fill(device, stream, a, uint64_t{1} << 32, 8, 4, &error), HUSK_OK);
  EXPECT_EQ(memory.fail_at, 1);
}

TEST_F(OverFakeLaunch, AFaultOfTheDeviceAsksForARestart) {
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  fake().fail_call("cuStreamSynchronize", 1, 700);
  EXPECT_EQ(port->stream_wait(device, stream, &error), HUSK_DEVICE);
  EXPECT_TRUE(error_says("cuStreamSynchronize CUDA_ERROR_ILLEGAL_ADDRESS restart"));
  EXPECT_EQ(error.driver_code, 700);
  EXPECT_EQ(read(a, 1)[0], 1);
}

TEST_F(OverFakeLaunch, AnUploadWaitsUntilPinnedMemoryIsRead) {
  std::vector<int32_t> source(8, 1);
  int32_t* target = static_cast<int32_t*>(device_memory(32));
  fake().pin(source.data(), 32);
  ASSERT_EQ(port->upload(device, stream, target, source.data(), 32, &error), HUSK_OK);
  std::fill(source.begin(), source.end(), 2);
  EXPECT_EQ(read(target, 8), std::vector<int32_t>(8, 1));
}

}  // namespace husk::port_test
