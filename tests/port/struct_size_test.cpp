// Structs that begin with struct_size, from a runtime or an application of another version of Husk.
#include "../struct_size.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

#include "port_case.h"

namespace husk::port_test {

using test::expect_too_small;
using test::Newer;
using test::older;

using PortStructs = Port;
class CudaStructs : public OverFake {};

EVERY_PORT(PortStructs);

TEST_P(PortStructs, PropertiesEndWhereTheCallersStructEnds) {
  const husk_port_properties init = HUSK_PORT_PROPERTIES_INIT;
  Newer<husk_port_properties> newer(init);
  port->properties(device, &newer.known);
  EXPECT_STRNE(newer.known.name, "");
  EXPECT_EQ(newer.known.struct_size, sizeof(husk_port_properties));
  EXPECT_TRUE(newer.is_untouched());
  const size_t size = offsetof(husk_port_properties, memory_bytes);
  husk_port_properties old = older(init, size);
  port->properties(device, &old);
  EXPECT_STREQ(old.name, newer.known.name);
  EXPECT_STREQ(old.arch, newer.known.arch);
  EXPECT_EQ(old.struct_size, size);
  EXPECT_TRUE(test::ends_at(old, size));
}

TEST_P(PortStructs, ImagesKernelsAndLaunches) {
  const Image file = kernels_image();
  const husk_port_image image = file.view();
  void *module = nullptr, *found = nullptr, *none = nullptr;
  const Newer<husk_port_image> newer_image(image);
  ASSERT_EQ(port->module_load(device, &newer_image.known, &module, &error), HUSK_OK) << error.text;
  const husk_port_image small_image = older(image, offsetof(husk_port_image, name));
  expect_too_small(port->module_load(device, &small_image, &none, &error), error,
                   "husk_port_image");
  EXPECT_EQ(none, nullptr);

  const husk_port_kernel desc = {sizeof(husk_port_kernel),
                                 static_cast<uint32_t>(kBinary.size()),
                                 "add_scalar",
                                 kBinary.data(),
                                 0,
                                 1,
                                 host ? 1u : 128u,
                                 0};
  const Newer<husk_port_kernel> newer_kernel(desc);
  ASSERT_EQ(port->kernel_get(device, module, &newer_kernel.known, &found, &error), HUSK_OK)
      << error.text;
  const husk_port_kernel small_kernel = older(desc, offsetof(husk_port_kernel, threads));
  expect_too_small(port->kernel_get(device, module, &small_kernel, &none, &error), error,
                   "husk_port_kernel");
  EXPECT_EQ(none, nullptr);

  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  int32_t value = 5, n = 8;
  void* params[] = {&a, &a, &value, &n};
  const husk_launch launch = launch_for(n, params);
  const Newer<husk_launch> newer_launch(launch);
  ASSERT_EQ(port->launch(device, stream, found, &newer_launch.known, &error), HUSK_OK)
      << error.text;
  const husk_launch small_launch = older(launch, offsetof(husk_launch, params));
  expect_too_small(port->launch(device, stream, found, &small_launch, &error), error,
                   "husk_launch");
  EXPECT_EQ(read(a, 8), std::vector<int32_t>(8, 6));

  if (port->graphs) {
    const husk_port_graphs& graphs = *port->graphs;
    EXPECT_EQ(graphs.struct_size, sizeof(husk_port_graphs));
    void *graph = nullptr, *exec = nullptr;
    ASSERT_EQ(graphs.graph_create(device, &graph, &error), HUSK_OK) << error.text;
    expect_too_small(
        graphs.graph_add_kernel(device, graph, found, &small_launch, nullptr, 0, &error), error,
        "husk_launch");
    ASSERT_EQ(
        graphs.graph_add_kernel(device, graph, found, &newer_launch.known, nullptr, 0, &error),
        HUSK_OK)
        << error.text;
    ASSERT_EQ(graphs.graph_instantiate(device, graph, &exec, &error), HUSK_OK) << error.text;
    expect_too_small(graphs.exec_set_kernel(device, exec, 0, found, &small_launch, &error), error,
                     "husk_launch");
    EXPECT_EQ(graphs.exec_set_kernel(device, exec, 0, found, &newer_launch.known, &error), HUSK_OK)
        << error.text;
    graphs.exec_destroy(device, exec);
    graphs.graph_destroy(device, graph);
  }
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
  port->module_unload(device, module);
}

TEST_F(CudaStructs, Options) {
  close();
  port_with_options = *port;
  port = &port_with_options;
  const husk_cuda_options init = HUSK_CUDA_OPTIONS_INIT;
  const Newer<husk_cuda_options> newer(init);
  port_with_options.user = const_cast<husk_cuda_options*>(&newer.known);
  ASSERT_EQ(open(), HUSK_OK) << error.text;
  close();
  const size_t needed = offsetof(husk_cuda_options, nvtx);
  const husk_cuda_options old = older(init, needed), small = older(init, needed - 4);
  port_with_options.user = const_cast<husk_cuda_options*>(&old);
  ASSERT_EQ(open(), HUSK_OK) << error.text;
  close();
  port_with_options.user = const_cast<husk_cuda_options*>(&small);
  expect_too_small(open(), error, "husk_cuda_options");
  EXPECT_EQ(device, nullptr);
}

TEST_F(CudaStructs, Mappings) {
  const std::vector<int32_t> numbers(100, 7);
  int32_t* target = device_array(std::vector<int32_t>(100, 0));
  const int file = memfd_create("numbers", MFD_CLOEXEC);
  ASSERT_EQ(write(file, numbers.data(), 400), 400);
  void* begin = mmap(nullptr, 400, PROT_READ, MAP_PRIVATE, file, 0);
  ASSERT_NE(begin, MAP_FAILED);
  const husk_upload upload = {target, begin, 400};
  const husk_mapping mapping = {sizeof(husk_mapping), file, begin, 400};
  const Newer<husk_mapping> newer(mapping);
  ASSERT_EQ(port->upload_batch(device, &upload, 1, &newer.known, &error), HUSK_OK) << error.text;
  EXPECT_EQ(read(target, 100), numbers);
  const husk_mapping small = older(mapping, offsetof(husk_mapping, size));
  expect_too_small(port->upload_batch(device, &upload, 1, &small, &error), error, "husk_mapping");
  munmap(begin, 400);
  ::close(file);
}

// The port fills an op, and its op reads a context.
TEST_F(CudaStructs, Ops) {
  const husk_op init = HUSK_OP_INIT;
  Newer<husk_op> newer(init);
  ASSERT_EQ(port->find_op(device, "husk::matmul", &newer.known, &error), HUSK_OK) << error.text;
  EXPECT_EQ(newer.known.struct_size, sizeof(husk_op));
  EXPECT_TRUE(newer.is_untouched());
  husk_op old = older(init, offsetof(husk_op, prepare));
  ASSERT_EQ(port->find_op(device, "husk::matmul", &old, &error), HUSK_OK) << error.text;
  EXPECT_TRUE(test::ends_at(old, offsetof(husk_op, prepare)));
  EXPECT_EQ(old.call, newer.known.call);

  const husk_op_context context = context_of(newer.known.user, device, stream);
  const husk_op_context small = older(context, offsetof(husk_op_context, threads));
  for (const husk_op_fn function : {newer.known.call, newer.known.prepare})
    expect_too_small(function(&small, nullptr, 0, &error), error, "husk_op_context");
}

}  // namespace husk::port_test
