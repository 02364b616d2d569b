// What a device that was lost looks like, and the options that find out why.
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
    const husk_launch launch = {{1, 1, 1}, {1, 1, 1}, 0, 1, 0, 0, params};
    return port->launch(device, stream, kernel("trap_if", {HUSK_POINTER, HUSK_I32}, 1), &launch, &error);
  }
  bool lost() const {   // an error of the device that stays
    return error.code == HUSK_DEVICE && error.driver_code >= 700 && error.driver_code < 720 &&
           error_says("restart CUDA_ERROR_");
  }
  static husk_cuda_options checked() {
    husk_cuda_options options{};
    options.check_each = 1;
    return options;
  }
  // Whether the wait behind a kernel that fails says so, and whatever comes later too.
  bool fails_late() {
    void *piece = nullptr, *other = nullptr;
    if (trap(0) != HUSK_OK || port->stream_wait(device, stream, &error) != HUSK_OK) return false;
    if (trap(719) != HUSK_OK || port->stream_wait(device, stream, &error) == HUSK_OK || !lost()) return false;
    if (!error_says("nothing since its last wait is known to have finished check_each")) return false;
    if (port->alloc(device, 64, &piece, &error) == HUSK_OK || !lost()) return false;
    if (port->stream_create(device, &other, &error) == HUSK_OK || !lost()) return false;
    forget_memory();   // what releases something can still be called
    port->stream_destroy(device, stream);
    return true;
  }
  bool fails_at_once() {
    open_with(checked());
    return trap(0) == HUSK_OK && trap(719) == HUSK_DEVICE && lost() &&
           error_says("in kernel trap_if last known to have finished kernel trap_if cuStreamSynchronize");
  }
};
class OverFakeDebug : public CudaDebug {
  void SetUp() override {
    NEEDS_FAKE;
    CudaDebug::SetUp();
  }
};

// A process of its own each: a device that is lost stays so. A GPU's driver does not live on in a forked one, so there the test
// begins anew; qemu, under which only the fake driver is, cannot start another program.
#define IN_A_PROCESS_OF_ITS_OWN(fails)                                    \
  GTEST_FLAG_SET(death_test_style, fake() ? "fast" : "threadsafe");       \
  EXPECT_EXIT(_exit(fails ? 0 : 1), ::testing::ExitedWithCode(0), "")

TEST_F(CudaDebug, tells_of_a_kernel_that_fails_at_the_next_wait) {
  IN_A_PROCESS_OF_ITS_OWN(fails_late());
}

TEST_F(CudaDebug, names_the_kernel_that_fails_where_each_is_checked) {
  IN_A_PROCESS_OF_ITS_OWN(fails_at_once());
}

TEST_F(OverFakeDebug, waits_behind_each_piece_of_work) {
  open_with(checked());
  int32_t *a = device_array(std::vector<int32_t>(8, 1)), *b = device_array(std::vector<int32_t>(8, 1));
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

TEST_F(OverFakeDebug, fills_what_is_freed) {
  void* piece = nullptr;
  ASSERT_EQ(port->alloc(device, 1000, &piece, &error), HUSK_OK);
  port->free(device, piece);
  EXPECT_EQ(fake().calls("cuMemsetD8Async"), 0u);
  husk_cuda_options options{};
  options.fill_freed = 1;
  open_with(options);
  ASSERT_EQ(port->alloc(device, 1000, &piece, &error), HUSK_OK);
  port->free(device, piece);
  port->free(device, nullptr);
  EXPECT_EQ(fake().calls("cuMemsetD8Async"), 1u);
  EXPECT_EQ(fake().pending(), 0u);
}

TEST_F(OverFakeDebug, names_what_was_checked) {
  open_with(checked());
  int32_t *a = device_array(std::vector<int32_t>(8, 1)), *b = device_array(std::vector<int32_t>(8, 1));
  for (const int32_t code : {700, 226, 911}) {
    fake().fail_call("cuStreamSynchronize", 1, code);
    EXPECT_EQ(port->copy(device, stream, b, a, 32, &error), HUSK_DEVICE);
    EXPECT_TRUE(error_says("in a copy of 32 bytes cuStreamSynchronize restart " + std::to_string(code)));
    EXPECT_TRUE(error_says("last known to have finished: none"));
    fake().fail_call("cuStreamSynchronize", 1, code);
    EXPECT_EQ(port->fill(device, stream, a, 1, 4, 8, &error), HUSK_DEVICE);
    EXPECT_TRUE(error_says("in a fill of 8 elements restart"));
  }
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
}

// Whatever is asked of a device that is lost says so, and closing it leaks nothing.
TEST_F(OverFakeDebug, says_of_every_call_that_the_device_is_lost) {
  int32_t *a = device_array(std::vector<int32_t>(8, 1)), *b = device_array(std::vector<int32_t>(8, 1));
  int32_t value = 1, n = 8;
  void* params[] = {&a, &a, &value, &n};
  void *add = add_scalar(), *graph = nullptr, *exec = nullptr, *none = nullptr;
  const husk_launch launch = shape(8, params);
  const husk_port_graphs& graphs = *port->graphs;
  ASSERT_EQ(graphs.graph_create(device, &graph, &error), HUSK_OK);
  ASSERT_EQ(graphs.graph_add_kernel(device, graph, add, &launch, nullptr, 0, &error), HUSK_OK);
  ASSERT_EQ(graphs.graph_instantiate(device, graph, &exec, &error), HUSK_OK);
  ASSERT_EQ(port->launch(device, stream, add, &launch, &error), HUSK_OK);
  fake().break_device(700);
  const Image image = kernels_image();
  const husk_port_image view = image.view();
  const husk_load one = {a, &value, 4};
  const std::function<husk_status()> calls[] = {
      [&] { return port->alloc(device, 8, &none, &error); },
      [&] { return port->upload(device, stream, a, &value, 4, &error); },
      [&] { return port->load(device, &one, 1, 0, &error); },
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
    EXPECT_TRUE(lost());
    EXPECT_EQ(none, nullptr);
  }
  graphs.exec_destroy(device, exec);
  graphs.graph_destroy(device, graph);
  fake().break_device(0);
}

class CudaRanges : public Cuda {
 protected:
  static std::string library() {
    return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "port_nvtx.so").string();
  }
  static husk_cuda_options named(const char* path) {
    husk_cuda_options options{};
    options.nvtx = path;
    return options;
  }
};

TEST_F(CudaRanges, are_what_the_host_does) {
  const std::string path = library();
  void* nvtx = dlopen(path.c_str(), RTLD_NOW);
  ASSERT_NE(nvtx, nullptr) << dlerror();
  char* heard = static_cast<char*>(dlsym(nvtx, "nvtx_heard"));
  open_with(named(path.c_str()));
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  int32_t value = 1, n = 8;
  void* params[] = {&a, &a, &value, &n};
  const husk_launch launch = shape(8, params);
  const husk_load one = {a, &value, 4};
  ASSERT_EQ(port->launch(device, stream, add_scalar(), &launch, &error), HUSK_OK) << error.text;
  ASSERT_EQ(port->load(device, &one, 1, 0, &error), HUSK_OK) << error.text;
  void *graph = nullptr, *exec = nullptr;
  const husk_port_graphs& graphs = *port->graphs;
  ASSERT_EQ(graphs.graph_create(device, &graph, &error), HUSK_OK);
  ASSERT_EQ(graphs.graph_add_kernel(device, graph, add_scalar(), &launch, nullptr, 0, &error), HUSK_OK);
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

TEST_F(CudaRanges, need_a_library_that_has_them) {
  close();
  husk_cuda_options options = named("/no/such/nvtx.so");
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
  options.struct_size = offsetof(husk_cuda_options, nvtx);   // of a caller that does not know it
  EXPECT_EQ(open(), HUSK_OK) << error.text;
}

}  // namespace husk::port_test
