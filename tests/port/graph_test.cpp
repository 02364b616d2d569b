#include <numeric>

#include "port_case.h"

namespace husk::port_test {

// A graph, its exec, and functions that add nodes. The port copies parameters, so none are kept
// here.
class Graph : public Port {
 protected:
  void SetUp() override {
    Port::SetUp();
    if (!IsSkipped()) create();
  }
  void TearDown() override {
    drop();
    Port::TearDown();
  }
  void create() {
    drop();
    ASSERT_EQ(port->graphs->graph_create(device, &graph, &error), HUSK_OK) << error.text;
    nodes = 0;
  }
  void drop() {
    if (exec) port->graphs->exec_destroy(device, exec);
    if (graph) port->graphs->graph_destroy(device, graph);
    exec = graph = nullptr;
  }

  using Edges = std::vector<husk_graph_edge>;
  // The functions below add a node and return its number.
  uint32_t binary(const char* name, int32_t* out, int32_t* in, int32_t value, int32_t n,
                  const Edges& edges = {}) {
    void* params[] = {&out, &in, &value, &n};
    const husk_launch launch = launch_for(n, params);
    return count_node(port->graphs->graph_add_kernel(device, graph, kernel(name, kBinary), &launch,
                                                     edges.data(),
                                                     static_cast<uint32_t>(edges.size()), &error));
  }
  uint32_t add(int32_t* out, int32_t* in, int32_t value, int32_t n, const Edges& edges = {}) {
    return binary("add_scalar", out, in, value, n, edges);
  }
  uint32_t copy(void* to, const void* from, uint64_t size, const Edges& edges = {}) {
    return count_node(port->graphs->graph_add_copy(device, graph, to, from, size, edges.data(),
                                                   static_cast<uint32_t>(edges.size()), &error));
  }
  uint32_t fill(void* to, uint64_t pattern, uint32_t width, uint64_t count,
                const Edges& edges = {}) {
    return count_node(port->graphs->graph_add_fill(device, graph, to, pattern, width, count,
                                                   edges.data(),
                                                   static_cast<uint32_t>(edges.size()), &error));
  }
  husk_status set(uint32_t node, const char* name, int32_t* out, int32_t* in, int32_t value,
                  int32_t n) {
    void* params[] = {&out, &in, &value, &n};
    const husk_launch launch = launch_for(n, params);
    return port->graphs->exec_set_kernel(device, exec, node, kernel(name, kBinary), &launch,
                                         &error);
  }
  void instantiate() {
    ASSERT_EQ(port->graphs->graph_instantiate(device, graph, &exec, &error), HUSK_OK) << error.text;
  }
  void run() {
    ASSERT_EQ(port->graphs->exec_launch(device, exec, stream, &error), HUSK_OK) << error.text;
  }

  // On the fake driver `body` runs in 30 orders that streams and edges allow, otherwise once.
  template <class Body>
  void in_many_orders(const Body& body) {
    const uint64_t orders = fake() ? 30 : 1;
    for (uint64_t seed = 1; seed <= orders && !HasFailure(); ++seed) {
      SCOPED_TRACE(seed);
      if (fake()) fake().schedule(seed, static_cast<uint32_t>(seed % 3 * 20));
      body();
    }
  }

  bool can_wait() {  // kernels can wait for others from sm_90 on
    return port->arch_rank(device, "sm_90", HUSK_IMAGE_PTX) > 0;
  }

  void* graph = nullptr;
  void* exec = nullptr;
  uint32_t nodes = 0;

 private:
  uint32_t count_node(husk_status status) {
    EXPECT_EQ(status, HUSK_OK) << error.text;
    return nodes++;
  }
};
EVERY_PORT_WITH_GRAPHS(Graph);

TEST_P(Graph, RunsWithoutNodes) {
  instantiate();
  run();
  EXPECT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
}

TEST_P(Graph, FollowsItsEdges) {
  in_many_orders([this] {
    create();
    int32_t *a = device_array(std::vector<int32_t>(200, 1)),
            *b = device_array(std::vector<int32_t>(200, 0)),
            *c = device_array(std::vector<int32_t>(200, 0)),
            *d = device_array(std::vector<int32_t>(200, 0));
    const uint32_t first = add(b, a, 10, 200);                                   // 11
    const uint32_t left = binary("scale_careless", c, b, 2, 200, {{first, 0}});  // 22
    const uint32_t right = add(d, b, 3, 200, {{first, 0}});                      // 14
    const uint32_t over = copy(b, c, 400, {{left, 0}, {right, 0}});              // half of b: 22
    const uint32_t filled = fill(a, 7, 4, 50, {{first, 0}});    // a quarter of a: 7
    add(d, d, 100, 200, {{right, 0}, {over, 0}, {filled, 0}});  // 114
    instantiate();
    run();
    EXPECT_EQ(read(d, 200), std::vector<int32_t>(200, 114));
    EXPECT_EQ(read(c, 200), std::vector<int32_t>(200, 22));
    EXPECT_EQ(read(b + 98, 4), (std::vector<int32_t>{22, 22, 11, 11}));
    EXPECT_EQ(read(a + 48, 4), (std::vector<int32_t>{7, 7, 1, 1}));
    drop();
    free_memory();
  });
}

TEST_P(Graph, RunsInTheOrderOfItsStream) {
  in_many_orders([this] {
    create();
    int32_t *a = device_array(std::vector<int32_t>(64, 0)),
            *b = device_array(std::vector<int32_t>(64, 0));
    const uint32_t first = add(b, a, 1, 64);
    copy(a, b, 256, {{first, 0}});
    instantiate();
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(port->fill(device, stream, a, 40, 4, 64, &error), HUSK_OK);
      run();
      run();
    }
    EXPECT_EQ(read(a, 64), std::vector<int32_t>(64, 42));
    drop();
    free_memory();
  });
}

TEST_P(Graph, FillsEveryWidth) {
  for (const uint64_t pattern : {uint64_t{0x0102030405060708}, uint64_t{0x4444444444444444}}) {
    for (const uint32_t width : {1u, 2u, 4u, 8u}) {
      create();
      std::vector<unsigned char> wanted(10 * width, 0x77);
      unsigned char* piece = device_array(wanted);
      const uint32_t filled = fill(piece + width, pattern, width, 8);
      unsigned char* other = device_array(wanted);
      copy(other, piece, wanted.size(), {{filled, 0}});
      instantiate();
      run();
      for (size_t i = width; i < 9 * width; ++i)
        wanted[i] = static_cast<unsigned char>(pattern >> i % width * 8);
      EXPECT_EQ(read(other, wanted.size()), wanted) << width;
      const uint64_t next = ~pattern;
      ASSERT_EQ(
          port->graphs->exec_set_fill(device, exec, filled, piece + width, next, width, 8, &error),
          HUSK_OK)
          << error.text;
      run();
      for (size_t i = width; i < 9 * width; ++i)
        wanted[i] = static_cast<unsigned char>(next >> i % width * 8);
      EXPECT_EQ(read(other, wanted.size()), wanted) << width;
      drop();
      free_memory();
    }
  }
}

TEST_P(Graph, KeepsNumbersAndEdgesOfEmptyNodes) {
  int32_t *a = device_array(std::vector<int32_t>(8, 1)),
          *b = device_array(std::vector<int32_t>(8, 0));
  const uint32_t first = add(b, a, 1, 8);
  const uint32_t nothing = copy(a, b, 0, {{first, 0}});
  const uint32_t nothing_either = fill(a, 9, 4, 0, {{nothing, 0}});
  EXPECT_EQ(add(a, b, 5, 8, {{nothing_either, 0}}), 3u);
  instantiate();
  EXPECT_EQ(port->graphs->exec_set_copy(device, exec, nothing, b, a, 0, &error), HUSK_OK);
  EXPECT_EQ(port->graphs->exec_set_fill(device, exec, nothing_either, b, 1, 4, 0, &error), HUSK_OK);
  EXPECT_EQ(port->graphs->exec_set_copy(device, exec, nothing, b, a, 4, &error), HUSK_UNSUPPORTED);
  run();
  EXPECT_EQ(read(a, 8), std::vector<int32_t>(8, 7));
}

TEST_P(Graph, TakesManyNodesAndManyEdges) {
  in_many_orders([this] {
    create();
    const int32_t n = 150;  // more than the first capacity of any table
    int32_t* cells = device_array(std::vector<int32_t>(n + 1, 0));
    Edges all;
    for (int32_t i = 0; i < n; ++i) all.push_back({add(cells + i, cells + i, i, 1), 0});
    add(cells + n, cells + n - 1, 1000, 1, all);
    instantiate();
    run();
    std::vector<int32_t> wanted(n + 1);
    std::iota(wanted.begin(), wanted.end(), 0);
    wanted[n] = 1000 + n - 1;
    EXPECT_EQ(read(cells, n + 1), wanted);
    drop();
    free_memory();
  });
}

TEST_P(Graph, OutlivesTheGraphThatItCameFrom) {
  int32_t *a = device_array(std::vector<int32_t>(8, 1)),
          *b = device_array(std::vector<int32_t>(8, 0));
  const uint32_t first = add(b, a, 1, 8);
  instantiate();
  port->graphs->graph_destroy(device, graph);
  graph = nullptr;
  run();
  EXPECT_EQ(read(b, 8), std::vector<int32_t>(8, 2));
  ASSERT_EQ(set(first, "add_scalar", b, a, 5, 8), HUSK_OK) << error.text;
  run();
  EXPECT_EQ(read(b, 8), std::vector<int32_t>(8, 6));
}

TEST_P(Graph, HasSeveralIndependentExecs) {
  int32_t *a = device_array(std::vector<int32_t>(8, 1)),
          *b = device_array(std::vector<int32_t>(8, 0));
  const uint32_t first = add(b, a, 1, 8);
  instantiate();
  void* one = exec;
  instantiate();
  ASSERT_EQ(set(first, "add_scalar", b, a, 10, 8), HUSK_OK);
  run();
  EXPECT_EQ(read(b, 1)[0], 11);
  ASSERT_EQ(port->graphs->exec_launch(device, one, stream, &error), HUSK_OK);
  EXPECT_EQ(read(b, 1)[0], 2);
  port->graphs->exec_destroy(device, one);
  run();
  EXPECT_EQ(read(b, 1)[0], 11);
}

TEST_P(Graph, PatchesItsNodes) {
  in_many_orders([this] {
    create();
    int32_t *a = device_array(std::vector<int32_t>(300, 1)),
            *b = device_array(std::vector<int32_t>(300, 0)),
            *c = device_array(std::vector<int32_t>(300, 0));
    const uint32_t kernel_node = add(b, a, 1, 300);
    const uint32_t copy_node = copy(c, b, 1200, {{kernel_node, 0}});
    const uint32_t fill_node = fill(c, 9, 4, 4, {{copy_node, 0}});
    instantiate();
    run();
    EXPECT_EQ(read(c + 2, 4), (std::vector<int32_t>{9, 9, 2, 2}));
    // A launch in flight keeps its values when the exec is patched.
    run();
    ASSERT_EQ(set(kernel_node, "scale_careless", b, a, 50, 300), HUSK_OK) << error.text;
    ASSERT_EQ(port->graphs->exec_set_copy(device, exec, copy_node, c + 100, b, 800, &error),
              HUSK_OK)
        << error.text;
    ASSERT_EQ(port->graphs->exec_set_fill(device, exec, fill_node, c + 4, 8, 4, 4, &error), HUSK_OK)
        << error.text;
    EXPECT_EQ(read(c + 98, 4), std::vector<int32_t>(4, 2));
    run();
    EXPECT_EQ(read(c + 98, 4), (std::vector<int32_t>{2, 2, 50, 50}));
    EXPECT_EQ(read(c + 2, 8), (std::vector<int32_t>{9, 9, 8, 8, 8, 8, 2, 2}));
    // The kernel with another grid.
    ASSERT_EQ(set(kernel_node, "add_scalar", b, a, 7, 10), HUSK_OK) << error.text;
    run();
    EXPECT_EQ(read(b + 8, 4), (std::vector<int32_t>{8, 8, 50, 50}));
    drop();
    free_memory();
  });
}

TEST_P(Graph, IsUnchangedByARefusedPatch) {
  int32_t *a = device_array(std::vector<int32_t>(8, 1)),
          *b = device_array(std::vector<int32_t>(8, 0));
  const uint32_t kernel_node = add(b, a, 1, 8);
  const uint32_t fill_node = fill(a, 3, 4, 8, {{kernel_node, 0}});
  instantiate();
  EXPECT_EQ(port->graphs->exec_set_copy(device, exec, kernel_node, a, b, 8, &error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("node 0 copy"));
  EXPECT_EQ(set(fill_node, "add_scalar", b, a, 1, 8), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(set(99, "add_scalar", b, a, 1, 8), HUSK_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("99 2"));
  EXPECT_EQ(
      port->graphs->exec_set_fill(device, exec, fill_node, a, uint64_t{1} << 32, 8, 4, &error),
      HUSK_UNSUPPORTED);  // one node cannot become two
  EXPECT_EQ(port->graphs->exec_set_fill(device, exec, fill_node, a, 1, 3, 4, &error),
            HUSK_INVALID_ARGUMENT);
  int32_t value = 2, n = 8;
  void* params[] = {&b, &a, &value, &n};
  husk_launch launch = launch_for(8, params);
  launch.flags = HUSK_LAUNCH_COOPERATIVE;
  EXPECT_EQ(port->graphs->exec_set_kernel(device, exec, kernel_node, add_scalar(), &launch, &error),
            HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("node 0 add_scalar flags"));
  launch = launch_for(8, params);
  launch.grid[1] = 100000;
  EXPECT_EQ(port->graphs->exec_set_kernel(device, exec, kernel_node, add_scalar(), &launch, &error),
            HUSK_DEVICE);
  EXPECT_TRUE(error_says(
      "node 0 add_scalar 100000 cuGraphExecKernelNodeSetParams CUDA_ERROR_INVALID_VALUE"));
  run();
  EXPECT_EQ(read(b, 8), std::vector<int32_t>(8, 2));
  EXPECT_EQ(read(a, 8), std::vector<int32_t>(8, 3));
}

TEST_P(Graph, IsUnchangedIfHalfOfAWideFillIsRefused) {
  NEEDS_FAKE;
  uint64_t* a = device_array(std::vector<uint64_t>(4, 0));
  const uint64_t before = 0x0000000100000002;
  const uint32_t node = fill(a, before, 8, 4);
  instantiate();
  for (const uint64_t failing : {1, 2}) {
    fake().fail_call("cuGraphExecMemsetNodeSetParams", failing, 1);
    EXPECT_EQ(port->graphs->exec_set_fill(device, exec, node, a, 0x0000000300000004, 8, 4, &error),
              HUSK_DEVICE);
    EXPECT_TRUE(error_says("node 0 fill cuGraphExecMemsetNodeSetParams"));
    run();
    EXPECT_EQ(read(a, 4), std::vector<uint64_t>(4, before));
  }
}

TEST_P(Graph, RefusesEdgesFromMissingNodes) {
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  int32_t value = 2, n = 8;
  void* params[] = {&a, &a, &value, &n};
  const husk_launch launch = launch_for(8, params);
  const husk_graph_edge edge = {0, 0};
  EXPECT_EQ(port->graphs->graph_add_kernel(device, graph, add_scalar(), &launch, &edge, 1, &error),
            HUSK_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("node 0"));
  add(a, a, 1, 8);  // the failed call did not add a node
  instantiate();
  run();
  EXPECT_EQ(read(a, 8), std::vector<int32_t>(8, 2));
}

TEST_P(Graph, StartsWaitingKernelsEarly) {
  if (!can_wait()) GTEST_SKIP() << "no kernels that wait on this device";
  in_many_orders([this] {
    create();
    const int32_t n = 500, links = 20;
    int32_t* weights = device_array<int32_t>({1, 2, 3});
    int32_t* a = device_array(std::vector<int32_t>(n, 1));
    int32_t* b = device_array(std::vector<int32_t>(n, 0));
    Edges before;
    int32_t wanted = 1;
    for (int32_t i = 0; i < links; ++i) {  // a chain: each link reads the previous link's output
      int32_t *in = i % 2 ? b : a, *out = i % 2 ? a : b;
      if (i % 3) {
        before = {{binary("scale_wait", out, in, 3, n, before), 1}};
        wanted *= 3;
      } else {
        int32_t count = 3, size = n;
        void* params[] = {&out, &in, &weights, &count, &size};
        const husk_launch launch = launch_for(n, params);
        void* add_weights = kernel("add_weights",
                                   {HUSK_POINTER, HUSK_POINTER, HUSK_POINTER, HUSK_I32, HUSK_I32});
        ASSERT_EQ(port->graphs->graph_add_kernel(device, graph, add_weights, &launch, before.data(),
                                                 static_cast<uint32_t>(before.size()), &error),
                  HUSK_OK);
        before = {{nodes++, 1}};
        wanted += 6;
      }
      wanted %= 1000003;
      if (wanted > 100000) {
        before = {{fill(out, 1, 4, n, {{before[0].from, 0}}), 0}};
        wanted = 1;
      }
    }
    instantiate();
    run();
    EXPECT_EQ(read(links % 2 ? b : a, n), std::vector<int32_t>(n, wanted));
    if (fake()) {
      EXPECT_GT(fake().early_starts(), 0u);
    }
    drop();
    free_memory();
  });
}

TEST_P(Graph, ShowsKernelsThatDoNotWait) {
  NEEDS_FAKE;
  int32_t *a = device_array(std::vector<int32_t>(8, 1)),
          *b = device_array(std::vector<int32_t>(8, 100)),
          *c = device_array(std::vector<int32_t>(8, 0));
  const uint32_t first = add(b, a, 1, 8);
  binary("scale_careless", c, b, 2, 8, {{first, 1}});
  instantiate();
  run();
  EXPECT_EQ(read(c, 8), std::vector<int32_t>(8, 200));  // computed from the old values of b
}

TEST_P(Graph, TurnsProgrammaticEdgesOfCopiesAndFillsIntoFullOnes) {
  in_many_orders([this] {
    create();
    int32_t *a = device_array(std::vector<int32_t>(8, 1)),
            *b = device_array(std::vector<int32_t>(8, 0)),
            *c = device_array(std::vector<int32_t>(8, 0));
    const uint32_t first = fill(a, 5, 4, 8);
    const uint32_t second = add(b, a, 1, 8, {{first, 1}});
    copy(c, b, 32, {{second, 1}});
    instantiate();
    run();
    EXPECT_EQ(read(c, 8), std::vector<int32_t>(8, 6));
    drop();
    free_memory();
  });
}

TEST_P(Graph, UsesFullEdgesIfTheDriverHasNoOthers) {
  NEEDS_FAKE;
  drop();
  close();
  fake().set_driver_version(12020);
  ASSERT_EQ(open(), HUSK_OK) << error.text;
  ASSERT_EQ(port->stream_create(device, &stream, &error), HUSK_OK);
  create();
  int32_t *a = device_array(std::vector<int32_t>(8, 1)),
          *b = device_array(std::vector<int32_t>(8, 100)),
          *c = device_array(std::vector<int32_t>(8, 0));
  const uint32_t first = add(b, a, 1, 8);
  binary("scale_careless", c, b, 2, 8, {{first, 1}});
  instantiate();
  run();
  EXPECT_EQ(read(c, 8), std::vector<int32_t>(8, 4));
  EXPECT_EQ(fake().calls("cuGraphAddNode"), 0u);
}

TEST_P(Graph, TakesClustersAndCooperativeGrids) {
  if (!can_wait()) GTEST_SKIP() << "no clusters on this device";
  int32_t* a = device_array(std::vector<int32_t>(512, 1));
  int32_t value = 1, n = 512;
  void* params[] = {&a, &a, &value, &n};
  husk_launch launch = launch_for(n, params);
  launch.cluster = 2;
  launch.flags = HUSK_LAUNCH_COOPERATIVE;
  ASSERT_EQ(port->graphs->graph_add_kernel(device, graph, kernel("add_scalar", kBinary, 128, 0, 2),
                                           &launch, nullptr, 0, &error),
            HUSK_OK)
      << error.text;
  instantiate();
  run();
  EXPECT_EQ(read(a, 512), std::vector<int32_t>(512, 2));
  value = 10;
  ASSERT_EQ(port->graphs->exec_set_kernel(device, exec, 0, add_scalar(), &launch, &error), HUSK_OK)
      << error.text;
  run();
  EXPECT_EQ(read(a, 512), std::vector<int32_t>(512, 12));
}

TEST_P(Graph, MayBeDestroyedInFlight) {
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  add(a, a, 1, 8);
  instantiate();
  run();
  port->graphs->exec_destroy(device, exec);  // waits, so that the memory may be freed
  exec = nullptr;
  if (fake()) {
    EXPECT_EQ(fake().pending(), 0u);
  }
  free_memory();
}

TEST_P(Graph, LaunchesAndPatchesWithoutAllocation) {
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  const uint32_t first = add(a, a, 1, 8);
  const uint32_t second = fill(a, 1, 4, 4, {{first, 0}});
  const uint32_t third = copy(a, a + 4, 8, {{second, 0}});
  instantiate();
  void* add_kernel = add_scalar();
  int32_t value = 2, n = 8;
  void* params[] = {&a, &a, &value, &n};
  const husk_launch launch = launch_for(8, params);
  memory.fail_at = 1;  // the next allocation would fail
  EXPECT_EQ(port->graphs->exec_set_kernel(device, exec, first, add_kernel, &launch, &error),
            HUSK_OK)
      << error.text;
  EXPECT_EQ(port->graphs->exec_set_fill(device, exec, second, a, 2, 4, 4, &error), HUSK_OK);
  EXPECT_EQ(port->graphs->exec_set_copy(device, exec, third, a, a + 6, 8, &error), HUSK_OK);
  run();
  EXPECT_EQ(memory.fail_at, 1);
  memory.fail_at = 0;
}

// The work that `body` enqueues on `stream`, captured.
template <class Body>
void* capture(const husk_port* port, void* device, void* stream, husk_error* error,
              const Body& body) {
  void* captured = nullptr;
  int32_t capturing = -1;
  EXPECT_EQ(port->stream_capturing(device, stream, &capturing, error), HUSK_OK) << error->text;
  EXPECT_EQ(capturing, 0);
  EXPECT_EQ(port->graphs->capture_begin(device, stream, error), HUSK_OK) << error->text;
  EXPECT_EQ(port->stream_capturing(device, stream, &capturing, error), HUSK_OK) << error->text;
  EXPECT_EQ(capturing, 1);
  body();
  EXPECT_EQ(port->graphs->capture_end(device, stream, &captured, error), HUSK_OK) << error->text;
  EXPECT_EQ(port->stream_capturing(device, stream, &capturing, error), HUSK_OK) << error->text;
  EXPECT_EQ(capturing, 0);
  return captured;
}

TEST_P(Graph, HasCapturedWork) {
  in_many_orders([this] {
    create();
    int32_t *a = device_array(std::vector<int32_t>(100, 1)),
            *b = device_array(std::vector<int32_t>(100, 0)),
            *c = device_array(std::vector<int32_t>(100, 0));
    int32_t value = 10, n = 100;
    void* params[] = {&b, &a, &value, &n};
    const husk_launch launch = launch_for(100, params);
    void* const kernel = add_scalar();
    void* captured = capture(port, device, stream, &error, [&] {
      EXPECT_EQ(port->launch(device, stream, kernel, &launch, &error), HUSK_OK) << error.text;
      EXPECT_EQ(port->copy(device, stream, c, b, 400, &error), HUSK_OK) << error.text;
      EXPECT_EQ(port->fill(device, stream, b, 7, 4, 50, &error), HUSK_OK) << error.text;
      EXPECT_EQ(port->fill(device, stream, a, 0x0102030400000005, 8, 1, &error), HUSK_OK);
    });
    EXPECT_EQ(read(c, 1), std::vector<int32_t>{0});  // nothing has run
    // The captured work, twice, between two nodes.
    const uint32_t first = fill(a, 2, 4, 100);
    uint32_t before = first;
    for (int i = 0; i < 2; ++i) {
      const husk_graph_edge edge = {before, 0};
      ASSERT_EQ(port->graphs->graph_add_captured(device, graph, captured, &edge, 1, &error),
                HUSK_OK)
          << error.text;
      before = nodes++;
    }
    add(c, c, 100, 100, {{before, 0}});
    port->graphs->captured_destroy(device, captured);
    port->graphs->captured_destroy(device, nullptr);
    instantiate();
    for (int i = 0; i < 2; ++i) run();
    std::vector<int32_t> expected(100, 112);
    expected[0] = 115;  // the second time, the first element was 5 and the second 0x01020304
    expected[1] = 0x01020304 + 110;
    EXPECT_EQ(read(c, 100), expected);
    EXPECT_EQ(read(b + 49, 2), (std::vector<int32_t>{7, 12}));
    drop();
    free_memory();
  });
}

TEST_P(Graph, HasCapturedWorkThatIsNone) {
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  void* captured = capture(port, device, stream, &error, [] {});
  const uint32_t first = add(a, a, 1, 8);
  const husk_graph_edge edge = {first, 0}, missing = {7, 0};
  ASSERT_EQ(port->graphs->graph_add_captured(device, graph, captured, &edge, 1, &error), HUSK_OK)
      << error.text;
  ++nodes;
  EXPECT_EQ(port->graphs->graph_add_captured(device, graph, captured, &missing, 1, &error),
            HUSK_INVALID_ARGUMENT);
  add(a, a, 1, 8, {{1, 0}});
  port->graphs->captured_destroy(device, captured);
  instantiate();
  run();
  EXPECT_EQ(read(a, 8), std::vector<int32_t>(8, 3));
}

TEST_P(Graph, AWaitMakesACaptureInvalid) {
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  void* captured = a;
  ASSERT_EQ(port->graphs->capture_begin(device, stream, &error), HUSK_OK) << error.text;
  EXPECT_NE(port->stream_wait(device, stream, &error), HUSK_OK);
  EXPECT_NE(port->graphs->capture_end(device, stream, &captured, &error), HUSK_OK);
  EXPECT_NE(std::string(error.text), "");
  EXPECT_EQ(captured, nullptr);
  EXPECT_EQ(port->fill(device, stream, a, 5, 4, 8, &error), HUSK_OK) << error.text;
  EXPECT_EQ(read(a, 8), std::vector<int32_t>(8, 5));
}

TEST_P(Graph, OnlyACapturingStreamEndsItsCapture) {
  void* captured = nullptr;
  EXPECT_NE(port->graphs->capture_end(device, stream, &captured, &error), HUSK_OK);
  EXPECT_EQ(captured, nullptr);
  int32_t capturing = -1;
  EXPECT_EQ(port->stream_capturing(device, nullptr, &capturing, &error), HUSK_OK);
  EXPECT_EQ(capturing, 0);
}

}  // namespace husk::port_test
