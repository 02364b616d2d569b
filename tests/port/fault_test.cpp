// Each driver call and each host allocation of a port function fails once: the function returns an
// error, leaks nothing, and works the next time.
#include <functional>

#include "port_case.h"

namespace husk::port_test {

class OverFakeFaults : public OverFake {
 protected:
  static constexpr int32_t kFault = 999;  // CUDA_ERROR_UNKNOWN

  // Runs `act` with a fault in its first driver call, then in its second, until a run meets no
  // fault; then the same with host allocations. `act` does one thing, calls disarm, and undoes the
  // thing if it succeeded: faults in functions that release are not tested.
  void sweep(const char* what, const std::function<husk_status()>& act) {
    SCOPED_TRACE(what);
    const uint64_t live = fake().live_objects();
    const int host_live = memory.live;
    const auto check = [&] {
      EXPECT_EQ(fake().live_objects(), live);
      EXPECT_EQ(memory.live, host_live);
    };
    uint64_t refused = 0;
    for (uint64_t n = 1; n < 1000; ++n) {
      SCOPED_TRACE(n);
      error = {};
      fake().fail_at(n, kFault);
      const husk_status status = act();
      disarm();
      check();
      if (status != HUSK_OK) {
        ++refused;
        EXPECT_EQ(error.code, status);
        EXPECT_TRUE(error_says("cu"));  // the name of a driver call
        if (error.driver_code) {
          EXPECT_EQ(error.driver_code, kFault);
          EXPECT_TRUE(error_says("CUDA_ERROR_UNKNOWN"));
        }
      }
      if (!reached_) break;
      reached_ = false;
    }
    EXPECT_GT(refused, 0u);
    for (int n = 1; n < 100; ++n) {
      memory.fail_at = n;
      const husk_status status = act();
      const bool reached = memory.fail_at == 0;
      memory.fail_at = 0;
      check();
      EXPECT_EQ(status, reached ? HUSK_OUT_OF_MEMORY : HUSK_OK) << error.text;
      if (!reached) break;
    }
    EXPECT_EQ(act(), HUSK_OK) << error.text;
  }
  void disarm() {
    reached_ |= fake().failed() != 0;
    fake().fail_at(0, 0);
  }
  // A sweep over functions that enqueue work, which is undone by a wait for the stream.
  void sweep_queueing(const char* what, const std::function<husk_status()>& act) {
    sweep(what, [&] {
      const husk_status status = act();
      disarm();
      husk_error other;
      EXPECT_EQ(port->stream_wait(device, stream, &other), HUSK_OK) << other.text;
      return status;
    });
  }
  husk_launch launch_of(void** params, uint32_t cluster = 1, uint32_t flags = 0) {
    husk_launch launch = launch_for(1024, params);
    launch.cluster = cluster;
    launch.flags = flags;
    return launch;
  }

 private:
  bool reached_ = false;  // true once the failing call was made
};

TEST_F(OverFakeFaults, InOpen) {
  sweep("open", [this] {
    void* other = nullptr;
    const husk_status status = port->open(port->user, 0, &allocator, nullptr, &other, &error);
    EXPECT_EQ(other != nullptr, status == HUSK_OK);
    disarm();
    if (other) port->close(other);
    return status;
  });
}

TEST_F(OverFakeFaults, InMemoryAndStreams) {
  int32_t *a = device_array(std::vector<int32_t>(1024, 1)),
          *b = device_array(std::vector<int32_t>(1024, 1));
  sweep("alloc", [&] {
    void* piece = nullptr;
    const husk_status status = port->alloc(device, 100, &piece, &error);
    EXPECT_EQ(piece != nullptr, status == HUSK_OK);
    disarm();
    port->free(device, piece);
    return status;
  });
  sweep("stream_create", [&] {
    void* other = nullptr;
    const husk_status status = port->stream_create(device, &other, &error);
    EXPECT_EQ(other != nullptr, status == HUSK_OK);
    disarm();
    port->stream_destroy(device, other);
    return status;
  });
  std::vector<int32_t> host_side(1024, 2);
  sweep_queueing("upload",
                 [&] { return port->upload(device, stream, a, host_side.data(), 4096, &error); });
  sweep_queueing("download",
                 [&] { return port->download(device, stream, host_side.data(), a, 4096, &error); });
  sweep_queueing("copy", [&] { return port->copy(device, stream, b, a, 4096, &error); });
  for (const uint32_t width : {1u, 2u, 4u, 8u}) {
    sweep_queueing("fill", [&] {
      return port->fill(device, stream, a, 0x123456789ABCDEF0, width, 100, &error);
    });
  }
  sweep("stream_wait", [&] { return port->stream_wait(device, stream, &error); });
  sweep("enter", [&] {
    void* entered = nullptr;
    const husk_status status = port->enter(device, &entered, &error);
    EXPECT_EQ(entered != nullptr, status == HUSK_OK);
    disarm();
    if (entered) port->leave(entered);
    return status;
  });
}

TEST_F(OverFakeFaults, InUploadBatches) {
  std::vector<char> bytes(150000, 2);
  for (const int32_t threads : {0 /* directly */, 1, 2}) {
    husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
    options.staging_bytes = 2048;
    options.load_threads = threads;
    if (threads) open_with(options);
    char* target = static_cast<char*>(device_memory(bytes.size()));
    const husk_upload loads[] = {{target, bytes.data(), 100000},
                                 {target + 100000, bytes.data() + 100000, 50000}};
    sweep_queueing("load", [&] { return port->upload_batch(device, loads, 2, 0, &error); });
    sweep_queueing("a large upload", [&] {
      return port->upload(device, stream, target, bytes.data(), 150000, &error);
    });
    EXPECT_EQ(read(target, bytes.size()), bytes);
    free_memory();
  }
}

TEST_F(OverFakeFaults, InMapping) {
  close();
  fake().set_integrated(1, 1);
  ASSERT_EQ(open(), HUSK_OK);
  ASSERT_EQ(port->stream_create(device, &stream, &error), HUSK_OK);
  std::vector<char> bytes(10000);
  sweep("map", [&] {
    void* address = nullptr;
    const husk_status status = port->map(device, bytes.data(), bytes.size(), &address, &error);
    EXPECT_EQ(address != nullptr, status == HUSK_OK);
    disarm();
    if (address) port->unmap(device, bytes.data(), bytes.size());
    return status;
  });
}

TEST_F(OverFakeFaults, InEvents) {
  sweep("events", [&] {
    void* events[2] = {};
    husk_status status = HUSK_OK;
    for (void*& event : events)
      if (status == HUSK_OK) {
        status = port->event_create(device, &event, &error);
        EXPECT_EQ(event != nullptr, status == HUSK_OK);
      }
    for (void* event : events)
      if (status == HUSK_OK) status = port->event_record(device, event, stream, &error);
    for (void* event : events)
      if (status == HUSK_OK) status = port->event_wait(device, event, &error);
    uint64_t time = 0;
    if (status == HUSK_OK)
      status = port->event_elapsed(device, events[0], events[1], &time, &error);
    disarm();
    for (void* event : events) port->event_destroy(device, event);
    return status;
  });
}

TEST_F(OverFakeFaults, InHostFlags) {
  sweep("alloc_host_flag", [&] {
    volatile uint32_t* shared = nullptr;
    const husk_status status = port->alloc_host_flag(device, &shared, &error);
    EXPECT_EQ(shared != nullptr, status == HUSK_OK);
    disarm();
    port->free_host_flag(device, shared);
    return status;
  });
}

TEST_F(OverFakeFaults, InModulesAndLaunches) {
  const Image image = kernels_image();
  sweep("module_load", [&] {
    const husk_port_image view = image.view();
    void* module = nullptr;
    const husk_status status = port->module_load(device, &view, &module, &error);
    EXPECT_EQ(module != nullptr, status == HUSK_OK);
    disarm();
    port->module_unload(device, module);
    return status;
  });
  // A new module each time, so that kernel_get sets the kernel's attributes each time.
  sweep("kernel_get", [&] {
    const husk_port_image view = image.view();
    void *module = nullptr, *kernel = nullptr;
    const husk_status loaded = port->module_load(device, &view, &module, &error);
    if (loaded != HUSK_OK) return loaded;
    const std::vector<uint8_t> params = {HUSK_POINTER, HUSK_I32, HUSK_I32};
    const husk_port_kernel desc = {
        sizeof(husk_port_kernel), 3, "shared_last", params.data(), 100000, 16, 128, 0};
    const husk_status status = port->kernel_get(device, module, &desc, &kernel, &error);
    EXPECT_EQ(kernel != nullptr, status == HUSK_OK);
    disarm();
    port->module_unload(device, module);
    return status;
  });
  int32_t* a = device_array(std::vector<int32_t>(1024, 1));
  int32_t value = 1, n = 1024;
  void* params[] = {&a, &a, &value, &n};
  void* add = add_scalar();
  for (const husk_launch& launch :
       {launch_of(params), launch_of(params, 2, HUSK_LAUNCH_COOPERATIVE),
        launch_of(params, 1, HUSK_LAUNCH_PROGRAMMATIC)}) {
    sweep_queueing("launch", [&] { return port->launch(device, stream, add, &launch, &error); });
  }
}

TEST_F(OverFakeFaults, InPrefetching) {
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  options.prefetch = 1;
  open_with(options);
  const Image image = kernels_image();
  const husk_port_image view = image.view();
  sweep("kernel_get", [&] {
    void *module = nullptr, *kernel = nullptr;
    const husk_status loaded = port->module_load(device, &view, &module, &error);
    if (loaded != HUSK_OK) return loaded;
    const husk_port_kernel desc = {sizeof(husk_port_kernel),
                                   static_cast<uint32_t>(kBinary.size()),
                                   "add_scalar",
                                   kBinary.data(),
                                   0,
                                   2,
                                   128,
                                   0};
    const husk_status status = port->kernel_get(device, module, &desc, &kernel, &error);
    EXPECT_EQ(kernel != nullptr, status == HUSK_OK);
    disarm();
    port->module_unload(device, module);
    return status;
  });
}

TEST_F(OverFakeFaults, WithCheckEach) {
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  options.check_each = 1;
  open_with(options);
  int32_t *a = device_array(std::vector<int32_t>(1024, 1)),
          *b = device_array(std::vector<int32_t>(1024, 1));
  int32_t value = 1, n = 1024;
  void* params[] = {&a, &a, &value, &n};
  void* add = add_scalar();
  const husk_launch launch = launch_of(params);
  sweep_queueing("launch", [&] { return port->launch(device, stream, add, &launch, &error); });
  sweep_queueing("copy", [&] { return port->copy(device, stream, b, a, 4096, &error); });
  sweep_queueing("fill", [&] { return port->fill(device, stream, a, 1, 4, 1024, &error); });
}

TEST_F(OverFakeFaults, InCaptures) {
  int32_t* a = device_array(std::vector<int32_t>(1024, 1));
  const husk_port_graphs& graphs = *port->graphs;
  sweep("capture", [&] {
    void *captured = nullptr, *graph = nullptr;
    husk_status status = graphs.capture_begin(device, stream, &error);
    if (status != HUSK_OK) return status;
    status = port->fill(device, stream, a, 1, 4, 1024, &error);
    husk_error second = {};
    const husk_status end = graphs.capture_end(device, stream, &captured,
                                               status == HUSK_OK ? &error : &second);
    EXPECT_EQ(captured != nullptr, end == HUSK_OK);
    if (status == HUSK_OK) status = end;
    if (status == HUSK_OK) status = graphs.graph_create(device, &graph, &error);
    if (status == HUSK_OK)
      status = graphs.graph_add_captured(device, graph, captured, nullptr, 0, &error);
    disarm();
    graphs.captured_destroy(device, captured);
    graphs.graph_destroy(device, graph);
    return status;
  });
  sweep("stream_capturing", [&] {
    int32_t capturing = 0;
    return port->stream_capturing(device, stream, &capturing, &error);
  });
}

TEST_F(OverFakeFaults, InBuildingGraphs) {
  int32_t *a = device_array(std::vector<int32_t>(1024, 1)),
          *b = device_array(std::vector<int32_t>(1024, 1));
  int32_t value = 1, n = 1024;
  void* params[] = {&b, &a, &value, &n};
  void *add = add_scalar(), *wait = kernel("scale_wait", kBinary);
  const husk_launch plain = launch_of(params), rich = launch_of(params, 2, HUSK_LAUNCH_COOPERATIVE);
  const husk_port_graphs& graphs = *port->graphs;
  const std::vector<husk_graph_edge> full(1, {0, 0}), early(1, {0, 1});
  const auto build = [&](const std::function<husk_status(void*)>& last) {
    void* graph = nullptr;
    husk_status status = graphs.graph_create(device, &graph, &error);
    EXPECT_EQ(graph != nullptr, status == HUSK_OK);
    if (status == HUSK_OK)
      status = graphs.graph_add_kernel(device, graph, add, &plain, nullptr, 0, &error);
    if (status == HUSK_OK) status = last(graph);
    disarm();
    graphs.graph_destroy(device, graph);
    return status;
  };
  const auto sweep_node = [&](const char* what, const std::function<husk_status(void*)>& last) {
    sweep(what, [&] { return build(last); });
  };
  sweep_node("a kernel", [&](void* graph) {
    return graphs.graph_add_kernel(device, graph, add, &rich, full.data(), 1, &error);
  });
  sweep_node("a kernel that waits", [&](void* graph) {
    return graphs.graph_add_kernel(device, graph, wait, &plain, early.data(), 1, &error);
  });
  sweep_node("a copy", [&](void* graph) {
    return graphs.graph_add_copy(device, graph, a, b, 64, full.data(), 1, &error);
  });
  sweep_node("a copy of nothing", [&](void* graph) {
    return graphs.graph_add_copy(device, graph, a, b, 0, full.data(), 1, &error);
  });
  for (const uint64_t pattern : {uint64_t{7}, uint64_t{0}}) {
    sweep_node("a fill", [&](void* graph) {
      return graphs.graph_add_fill(device, graph, a, pattern, 8, 64, full.data(), 1, &error);
    });
  }
  sweep_node("many edges", [&](void* graph) {
    std::vector<husk_graph_edge> edges;
    for (uint32_t i = 1; i <= 40; ++i) {
      const husk_status status = graphs.graph_add_copy(device, graph, a, b, 64, full.data(), 1,
                                                       &error);
      if (status != HUSK_OK) return status;
      edges.push_back({i, 0});
    }
    return graphs.graph_add_kernel(device, graph, add, &plain, edges.data(), 40, &error);
  });
  sweep_node("instantiate", [&](void* graph) {
    void* exec = nullptr;
    const husk_status status = graphs.graph_instantiate(device, graph, &exec, &error);
    EXPECT_EQ(exec != nullptr, status == HUSK_OK);
    disarm();
    graphs.exec_destroy(device, exec);
    return status;
  });
}

// A node that could not be added does not exist: the next node takes its number, and the graph
// runs.
TEST_F(OverFakeFaults, InBuildingGraphsLeaveNoPartialNodes) {
  int32_t* a = device_array(std::vector<int32_t>(1024, 1));
  int32_t value = 1, n = 1024;
  void* params[] = {&a, &a, &value, &n};
  void* add = add_scalar();
  const husk_launch rich = launch_of(params, 2, HUSK_LAUNCH_COOPERATIVE);
  const husk_port_graphs& graphs = *port->graphs;
  void *graph = nullptr, *exec = nullptr;
  ASSERT_EQ(graphs.graph_create(device, &graph, &error), HUSK_OK);
  for (const uint64_t failing : {1, 2}) {
    fake().fail_call("cuGraphKernelNodeSetAttribute", failing, kFault);
    EXPECT_EQ(graphs.graph_add_kernel(device, graph, add, &rich, nullptr, 0, &error), HUSK_DEVICE);
    fake().fail_call("cuGraphAddMemsetNode", failing, kFault);
    EXPECT_EQ(graphs.graph_add_fill(device, graph, a, 5, 8, 512, nullptr, 0, &error), HUSK_DEVICE);
  }
  EXPECT_EQ(graphs.graph_add_kernel(device, graph, add, &rich, nullptr, 0, &error), HUSK_OK);
  ASSERT_EQ(graphs.graph_instantiate(device, graph, &exec, &error), HUSK_OK);
  ASSERT_EQ(graphs.exec_launch(device, exec, stream, &error), HUSK_OK);
  EXPECT_EQ(read(a, 1024), std::vector<int32_t>(1024, 2));
  graphs.exec_destroy(device, exec);
  graphs.graph_destroy(device, graph);
}

TEST_F(OverFakeFaults, InPatchingAndLaunchingGraphs) {
  int32_t *a = device_array(std::vector<int32_t>(1024, 1)),
          *b = device_array(std::vector<int32_t>(1024, 1));
  int32_t value = 1, n = 1024;
  void* params[] = {&b, &a, &value, &n};
  void* add = add_scalar();
  const husk_launch launch = launch_of(params);
  const husk_port_graphs& graphs = *port->graphs;
  void *graph = nullptr, *exec = nullptr;
  const husk_graph_edge edges[] = {{0, 0}, {1, 0}};
  ASSERT_EQ(graphs.graph_create(device, &graph, &error), HUSK_OK);
  ASSERT_EQ(graphs.graph_add_kernel(device, graph, add, &launch, nullptr, 0, &error), HUSK_OK);
  ASSERT_EQ(graphs.graph_add_copy(device, graph, a, b, 64, &edges[0], 1, &error), HUSK_OK);
  ASSERT_EQ(graphs.graph_add_fill(device, graph, b, 7, 8, 64, &edges[1], 1, &error), HUSK_OK);
  ASSERT_EQ(graphs.graph_instantiate(device, graph, &exec, &error), HUSK_OK);
  sweep("exec_set_kernel",
        [&] { return graphs.exec_set_kernel(device, exec, 0, add, &launch, &error); });
  sweep("exec_set_copy", [&] { return graphs.exec_set_copy(device, exec, 1, a, b, 64, &error); });
  sweep("exec_set_fill",
        [&] { return graphs.exec_set_fill(device, exec, 2, b, 9, 8, 64, &error); });
  sweep_queueing("exec_launch", [&] { return graphs.exec_launch(device, exec, stream, &error); });
  graphs.exec_destroy(device, exec);
  graphs.graph_destroy(device, graph);
}

}  // namespace husk::port_test
