#include "port_case.h"

#include <dlfcn.h>
#ifdef HUSK_TEST_HOST_PORT
#include <husk/port_host.h>
#endif
#ifdef HUSK_TEST_TOY_PORT
#include "../toy_device/toy_port.h"
#endif

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "ptx.h"

namespace husk::port_test {

const Fake& fake() {
  static const Fake instance = [] {
    Fake controls;
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver || !dlsym(driver, "fake_reset")) return controls;
    const auto get = [driver](auto& function, const char* name) {
      void* address = dlsym(driver, name);
      memcpy(&function, &address, sizeof address);
    };
    get(controls.reset, "fake_reset");
    get(controls.fail_at, "fake_fail_at");
    get(controls.fail_call, "fake_fail_call");
    get(controls.failed, "fake_failed");
    get(controls.calls, "fake_calls");
    get(controls.live_objects, "fake_live_objects");
    get(controls.pending, "fake_pending");
    get(controls.idle_waits, "fake_idle_waits");
    get(controls.lazy_loads, "fake_lazy_loads");
    get(controls.early_starts, "fake_early_starts");
    get(controls.schedule, "fake_schedule");
    get(controls.set_capability, "fake_set_capability");
    get(controls.set_driver_version, "fake_set_driver_version");
    get(controls.set_devices, "fake_set_devices");
    get(controls.set_memory, "fake_set_memory");
    get(controls.set_integrated, "fake_set_integrated");
    get(controls.break_device, "fake_break");
    get(controls.hide, "fake_hide");
    get(controls.pin, "fake_pin");
    return controls;
  }();
  return instance;
}

void* CountedMemory::allocate(void* user, size_t size, size_t align) {
  auto* self = static_cast<CountedMemory*>(user);
  EXPECT_LE(align, 64u);
  EXPECT_EQ(align & (align - 1), 0u);
  if (self->fail_at && --self->fail_at == 0) return nullptr;
  if (size >> 40) return nullptr;  // a sanitizer would abort
  void* pointer = std::aligned_alloc(64, (size + 63) / 64 * 64);
  if (pointer) ++self->live;
  return pointer;
}

void CountedMemory::release(void* user, void* pointer) {
  EXPECT_NE(pointer, nullptr);
  --static_cast<CountedMemory*>(user)->live;
  std::free(pointer);
}

const PortCase* cuda_case() {
  static const PortCase cuda{"cuda", husk_port_cuda};
  return &cuda;
}

const PortCase* host_case() {
#ifdef HUSK_TEST_HOST_PORT
  static const PortCase host{"host", husk_port_host, true, 1};
  return &host;
#else
  return nullptr;
#endif
}

const PortCase* toy_case() {
#ifdef HUSK_TEST_TOY_PORT
  static const PortCase toy{"toy", husk_port_toy, true, 12};
  return &toy;
#else
  return nullptr;
#endif
}

std::vector<const PortCase*> every_port() {
  std::vector<const PortCase*> all;
  for (const PortCase* each : {host_case(), cuda_case(), toy_case()})
    if (each) all.push_back(each);
  return all;
}

std::vector<const PortCase*> ports_with_graphs() {
  std::vector<const PortCase*> all = every_port();
  std::erase_if(all, [](const PortCase* each) { return each->port()->graphs == nullptr; });
  return all;
}

std::string port_name(const ::testing::TestParamInfo<const PortCase*>& tested) {
  return tested.param->name;
}

const std::vector<uint8_t> Device::kBinary = {HUSK_POINTER, HUSK_POINTER, HUSK_I32, HUSK_I32};

husk_status Device::open(int32_t index) {
  allocator = memory.allocator();
  error = {};
  return port->open(port->user, index, &allocator, nullptr, &device, &error);
}

void Device::open_with(const husk_cuda_options& options) {
  close();
  port_with_options = *port;
  cuda_options = options;
  cuda_options.struct_size = sizeof cuda_options;
  port_with_options.user = &cuda_options;
  port = &port_with_options;
  ASSERT_EQ(open(), HUSK_OK) << error.text;
  ASSERT_EQ(port->stream_create(device, &stream, &error), HUSK_OK) << error.text;
}

void Device::SetUp() {
  if (!host && fake()) fake().reset();
  const husk_status status = open();
  if (status == HUSK_UNSUPPORTED && !host && !fake()) GTEST_SKIP() << error.text;
  ASSERT_EQ(status, HUSK_OK) << error.text;
  ASSERT_EQ(port->stream_create(device, &stream, &error), HUSK_OK) << error.text;
}

void Device::free_memory() {
  for (void* piece : memories_) port->free(device, piece);
  memories_.clear();
}

void Device::close() {
  if (!device) return;
  if (stream) {
    EXPECT_EQ(port->stream_wait(device, stream, &error), HUSK_OK) << error.text;
    port->stream_destroy(device, stream);
    stream = nullptr;
  }
  free_memory();
  for (void* module : modules_) port->module_unload(device, module);
  modules_.clear();
  images_.clear();
  module_[0] = module_[1] = nullptr;
  port->close(device);
  device = nullptr;
}

void Device::TearDown() {
  close();
  EXPECT_EQ(memory.live, 0);
  if (!host && fake()) {
    EXPECT_EQ(fake().live_objects(), 0u);
  }
}

void OverFake::SetUp() {
  NEEDS_FAKE;
  Cuda::SetUp();
}

void* Device::device_memory(uint64_t size) {
  void* piece = nullptr;
  EXPECT_EQ(port->alloc(device, size, &piece, &error), HUSK_OK) << error.text;
  memories_.push_back(piece);
  return piece;
}

std::vector<char> read_from_program_folder(const char* name) {
  std::ifstream file(std::filesystem::read_symlink("/proc/self/exe").parent_path() / name,
                     std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Image Device::kernels_image(bool waits) const {
  if (host)
    return {HUSK_IMAGE_ELF, "the suite's kernels",
            read_from_program_folder("port_kernels_host.so")};
  if (fake())
    return {HUSK_IMAGE_CUBIN, "the suite's kernels",
            read_from_program_folder("port_kernels_fake.so")};
  const char* text = waits ? kWaitsPtx : kKernelsPtx;
  return {HUSK_IMAGE_PTX, "the suite's kernels", std::vector<char>(text, text + strlen(text) + 1)};
}

void* Device::load(const Image& image) {
  const husk_port_image view = images_.emplace_back(image).view();
  void* module = nullptr;
  EXPECT_EQ(port->module_load(device, &view, &module, &error), HUSK_OK) << error.text;
  if (module) modules_.push_back(module);
  return module;
}

void* Device::kernel(const char* symbol, const std::vector<uint8_t>& params, uint32_t threads,
                     uint32_t shared_bytes, uint32_t cluster) {
  const bool waits = strcmp(symbol, "scale_wait") == 0 || strcmp(symbol, "add_weights") == 0;
  if (!module_[waits]) module_[waits] = load(kernels_image(waits));
  if (!module_[waits]) return nullptr;
  const husk_port_kernel desc = {sizeof(husk_port_kernel),
                                 static_cast<uint32_t>(params.size()),
                                 symbol,
                                 params.data(),
                                 host ? 0 : shared_bytes,
                                 cluster,
                                 host ? 1 : threads,
                                 0};
  void* kernel = nullptr;
  EXPECT_EQ(port->kernel_get(device, module_[waits], &desc, &kernel, &error), HUSK_OK)
      << error.text;
  return kernel;
}

husk_launch Device::launch_for(int32_t n, void** params) const {
  const uint32_t threads = host ? 1 : 128;
  const uint32_t blocks = host ? 1 : (static_cast<uint32_t>(n) + threads - 1) / threads;
  return {sizeof(husk_launch), {blocks, 1, 1}, {threads, 1, 1}, 0, 1, 0, params};
}

bool Device::error_says(const std::string& words) const {
  std::istringstream stream_of_words(words);
  const std::string text = error.text;
  for (std::string word; stream_of_words >> word;) {
    if (text.find(word) == std::string::npos) {
      ADD_FAILURE() << "'" << word << "' is not in: " << text;
      return false;
    }
  }
  return true;
}

}  // namespace husk::port_test
