// Errors of a device that was lost, and the debug options.
#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "port_case.h"

namespace husk::port_test {

class CudaDebug : public Cuda {
 protected:
  husk_status trap(int32_t code) {
    void* out = device_memory(4);
    void* params[] = {&out, &code};
    const husk_launch launch = {sizeof(husk_launch), {1, 1, 1}, {1, 1, 1}, 0, 1, 0, params};
    return port->launch(device, stream, kernel("trap_if", {HUSK_POINTER, HUSK_I32}, 1), &launch,
                        &error);
  }
  bool is_lost() const {  // true for an error that the device keeps returning
    return error.code == HUSK_DEVICE && error.driver_code >= 700 && error.driver_code < 720 &&
           error_says("restart CUDA_ERROR_");
  }
  static husk_cuda_options check_each() {
    husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
    options.check_each = 1;
    return options;
  }
  // True if the wait after a kernel that fails returns its error, and all later calls too.
  bool fails_late() {
    void *piece = nullptr, *other = nullptr;
    if (trap(0) != HUSK_OK || port->stream_wait(device, stream, &error) != HUSK_OK) return false;
    if (trap(719) != HUSK_OK || port->stream_wait(device, stream, &error) == HUSK_OK || !is_lost())
      return false;
    if (!error_says("nothing since its last wait is known to have finished check_each"))
      return false;
    if (port->alloc(device, 64, &piece, &error) == HUSK_OK || !is_lost()) return false;
    if (port->stream_create(device, &other, &error) == HUSK_OK || !is_lost()) return false;
    free_memory();  // functions that release can still be called
    port->stream_destroy(device, stream);
    return true;
  }
  bool fails_at_once() {
    open_with(check_each());
    return trap(0) == HUSK_OK && trap(719) == HUSK_DEVICE && is_lost() &&
           error_says(
               "in kernel trap_if last known to have finished kernel trap_if cuStreamSynchronize");
  }
};
class OverFakeDebug : public CudaDebug {
  void SetUp() override {
    NEEDS_FAKE;
    CudaDebug::SetUp();
  }
};

// Runs the test in its own process, because a lost device stays lost. A GPU's driver does not
// survive a fork, so with a GPU the new process starts the program again ("threadsafe"). The fake
// driver survives a fork, and qemu, which runs only with the fake driver, cannot start a program.
#define IN_ITS_OWN_PROCESS(fails)                                   \
  GTEST_FLAG_SET(death_test_style, fake() ? "fast" : "threadsafe"); \
  EXPECT_EXIT(_exit(fails ? 0 : 1), ::testing::ExitedWithCode(0), "")

TEST_F(CudaDebug, ReportsAFailedKernelAtTheNextWait) { IN_ITS_OWN_PROCESS(fails_late()); }

TEST_F(CudaDebug, NamesTheFailedKernelIfEachLaunchIsChecked) {
  IN_ITS_OWN_PROCESS(fails_at_once());
}

TEST_F(OverFakeDebug, WaitsAfterEachPieceOfWork) {
  open_with(check_each());
  int32_t *a = device_array(std::vector<int32_t>(8, 1)),
          *b = device_array(std::vector<int32_t>(8, 1));
  ASSERT_EQ(port->copy(device, stream, b, a, 32, &error), HUSK_OK);
  EXPECT_EQ(fake().pending(), 0u);
  ASSERT_EQ(port->fill(device, stream, a, 5, 4, 8, &error), HUSK_OK);
  EXPECT_EQ(fake().pending(), 0u);
  ASSERT_EQ(trap(0), HUSK_OK);
  EXPECT_EQ(fake().pending(), 0u);
  const husk_port_graphs& graphs = *port->graphs;
  void *graph = nullptr, *exec = nullptr;
  ASSERT_EQ(graphs.graph_create(device, &graph, &error), HUSK_OK);
  ASSERT_EQ(graphs.graph_add_fill(device, graph, a, 7, 4, 8, nullptr, 0, &error), HUSK_OK);
  ASSERT_EQ(graphs.graph_instantiate(device, graph, &exec, &error), HUSK_OK);
  ASSERT_EQ(graphs.exec_launch(device, exec, stream, &error), HUSK_OK);
  EXPECT_EQ(fake().pending(), 0u);
  graphs.exec_destroy(device, exec);
  graphs.graph_destroy(device, graph);
}

// A wait would make the capture invalid.
TEST_F(OverFakeDebug, DoesNotWaitForWorkThatIsCaptured) {
  open_with(check_each());
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  const uint64_t waits = fake().calls("cuStreamSynchronize");
  void* captured = nullptr;
  ASSERT_EQ(port->graphs->capture_begin(device, stream, &error), HUSK_OK) << error.text;
  EXPECT_EQ(port->fill(device, stream, a, 5, 4, 8, &error), HUSK_OK) << error.text;
  ASSERT_EQ(port->graphs->capture_end(device, stream, &captured, &error), HUSK_OK) << error.text;
  EXPECT_EQ(fake().calls("cuStreamSynchronize"), waits);
  port->graphs->captured_destroy(device, captured);
}

TEST_F(OverFakeDebug, PoisonsFreedMemory) {
  void* piece = nullptr;
  ASSERT_EQ(port->alloc(device, 1000, &piece, &error), HUSK_OK);
  port->free(device, piece);
  EXPECT_EQ(fake().calls("cuMemsetD8Async"), 0u);
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  options.poison_memory = 1;
  open_with(options);
  ASSERT_EQ(port->alloc(device, 1000, &piece, &error), HUSK_OK);
  port->free(device, piece);
  port->free(device, nullptr);
  EXPECT_EQ(fake().calls("cuMemsetD8Async"), 1u);
  EXPECT_EQ(fake().pending(), 0u);
}

TEST_F(OverFakeDebug, NamesTheCheckedWork) {
  open_with(check_each());
  int32_t *a = device_array(std::vector<int32_t>(8, 1)),
          *b = device_array(std::vector<int32_t>(8, 1));
  for (const int32_t code : {700, 226, 911}) {
    fake().fail_call("cuStreamSynchronize", 1, code);
    EXPECT_EQ(port->copy(device, stream, b, a, 32, &error), HUSK_DEVICE);
    EXPECT_TRUE(
        error_says("in a copy of 32 bytes cuStreamSynchronize restart " + std::to_string(code)));
    EXPECT_TRUE(error_says("last known to have finished: none"));
    fake().fail_call("cuStreamSynchronize", 1, code);
    EXPECT_EQ(port->fill(device, stream, a, 1, 4, 8, &error), HUSK_DEVICE);
    EXPECT_TRUE(error_says("in a fill of 8 elements restart"));
  }
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
}

// Every call on a lost device returns the error, and closing the device leaks nothing.
TEST_F(OverFakeDebug, EveryCallReportsALostDevice) {
  int32_t *a = device_array(std::vector<int32_t>(8, 1)),
          *b = device_array(std::vector<int32_t>(8, 1));
  int32_t value = 1, n = 8;
  void* params[] = {&a, &a, &value, &n};
  void *add = add_scalar(), *graph = nullptr, *exec = nullptr, *none = nullptr;
  const husk_launch launch = launch_for(8, params);
  const husk_port_graphs& graphs = *port->graphs;
  ASSERT_EQ(graphs.graph_create(device, &graph, &error), HUSK_OK);
  ASSERT_EQ(graphs.graph_add_kernel(device, graph, add, &launch, nullptr, 0, &error), HUSK_OK);
  ASSERT_EQ(graphs.graph_instantiate(device, graph, &exec, &error), HUSK_OK);
  ASSERT_EQ(port->launch(device, stream, add, &launch, &error), HUSK_OK);
  fake().break_device(700);
  const Image image = kernels_image();
  const husk_port_image view = image.view();
  const husk_upload upload = {a, &value, 4};
  const std::function<husk_status()> calls[] = {
      [&] { return port->alloc(device, 8, &none, &error); },
      [&] { return port->upload(device, stream, a, &value, 4, &error); },
      [&] { return port->upload_batch(device, &upload, 1, 0, &error); },
      [&] { return port->download(device, stream, &value, a, 4, &error); },
      [&] { return port->copy(device, stream, b, a, 32, &error); },
      [&] { return port->fill(device, stream, a, 1, 4, 8, &error); },
      [&] { return port->stream_create(device, &none, &error); },
      [&] { return port->stream_wait(device, stream, &error); },
      [&] { return port->module_load(device, &view, &none, &error); },
      [&] { return port->launch(device, stream, add, &launch, &error); },
      [&] { return graphs.graph_create(device, &none, &error); },
      [&] { return graphs.graph_instantiate(device, graph, &none, &error); },
      [&] { return graphs.exec_set_kernel(device, exec, 0, add, &launch, &error); },
      [&] { return graphs.exec_launch(device, exec, stream, &error); },
  };
  for (const auto& call : calls) {
    error = {};
    EXPECT_EQ(call(), HUSK_DEVICE);
    EXPECT_TRUE(is_lost());
    EXPECT_EQ(none, nullptr);
  }
  graphs.exec_destroy(device, exec);
  graphs.graph_destroy(device, graph);
  fake().break_device(0);
}

class CudaNvtx : public Cuda {
 protected:
  static std::string library() {
    return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "port_nvtx.so")
        .string();
  }
  static husk_cuda_options with_nvtx(const char* path) {
    husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
    options.nvtx = path;
    return options;
  }
};

TEST_F(CudaNvtx, CoverTheWorkOfTheHost) {
  const std::string path = library();
  void* nvtx = dlopen(path.c_str(), RTLD_NOW);
  ASSERT_NE(nvtx, nullptr) << dlerror();
  char* heard = static_cast<char*>(dlsym(nvtx, "nvtx_heard"));
  open_with(with_nvtx(path.c_str()));
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  int32_t value = 1, n = 8;
  void* params[] = {&a, &a, &value, &n};
  const husk_launch launch = launch_for(8, params);
  const husk_upload upload = {a, &value, 4};
  ASSERT_EQ(port->launch(device, stream, add_scalar(), &launch, &error), HUSK_OK) << error.text;
  ASSERT_EQ(port->upload_batch(device, &upload, 1, 0, &error), HUSK_OK) << error.text;
  void *graph = nullptr, *exec = nullptr;
  const husk_port_graphs& graphs = *port->graphs;
  ASSERT_EQ(graphs.graph_create(device, &graph, &error), HUSK_OK);
  ASSERT_EQ(graphs.graph_add_kernel(device, graph, add_scalar(), &launch, nullptr, 0, &error),
            HUSK_OK);
  ASSERT_EQ(graphs.graph_instantiate(device, graph, &exec, &error), HUSK_OK);
  ASSERT_EQ(graphs.exec_launch(device, exec, stream, &error), HUSK_OK);
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
  graphs.exec_destroy(device, exec);
  graphs.graph_destroy(device, graph);
  EXPECT_STREQ(heard, "add_scalar;husk load;husk graph;");
  EXPECT_EQ(*static_cast<int*>(dlsym(nvtx, "nvtx_depth")), 0);
  heard[0] = 0;
  dlclose(nvtx);
}

TEST_F(CudaNvtx, NeedALibraryWithTheFunctions) {
  close();
  husk_cuda_options options = with_nvtx("/no/such/nvtx.so");
  options.struct_size = sizeof options;
  port_with_options = *port;
  port_with_options.user = &options;
  port = &port_with_options;
  EXPECT_EQ(open(), HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("NVTX /no/such/nvtx.so nvtx NULL"));
  options.nvtx = "libc.so.6";
  EXPECT_EQ(open(), HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("libc.so.6 nvtxRangePushA"));
  EXPECT_EQ(device, nullptr);
  options.struct_size = offsetof(husk_cuda_options, nvtx);  // an older header without `nvtx`
  EXPECT_EQ(open(), HUSK_OK) << error.text;
}

}  // namespace husk::port_test
