// Host images: loading them, their kernels, and every reason to refuse an image.
#include <elf.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>

#include "../struct_size.h"
#include "host_device.h"

namespace husk::host_test {
namespace {

class Module : public HostDevice {
 protected:
  static std::vector<char> file(const char* path = HUSK_TEST_IMAGE) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  husk_status load(const std::vector<char>& bytes, void** module, int32_t format = HUSK_IMAGE_ELF) {
    const husk_port_image image{sizeof(husk_port_image), format, bytes.data(), bytes.size(),
                                "the test image",        nullptr};
    return port->module_load(device, &image, module, &error);
  }

  husk_status kernel(void* module, const char* symbol, void** out) {
    const husk_port_kernel desc{sizeof(husk_port_kernel), 0, symbol, nullptr, 0, 1, 1, 0};
    return port->kernel_get(device, module, &desc, out, &error);
  }

  husk_status launch(void* kernel, std::vector<void*> params, uint32_t grid = 1) {
    const husk_launch desc{sizeof(husk_launch), {grid, 1, 1}, {1, 1, 1}, 0, 1, 0, params.data()};
    return port->launch(device, nullptr, kernel, &desc, &error);
  }

  bool says(const char* text) const {
    return std::string(error.text).find(text) != std::string::npos;
  }

  // A changed image must be refused with this status and text, and without leaks.
  void refuses(husk_status status, const char* text,
               const std::function<void(std::vector<char>&)>& change) {
    std::vector<char> bytes = file();
    change(bytes);
    void* module = &bytes;
    const int before = memory.live;
    EXPECT_EQ(load(bytes, &module), status) << error.text;
    EXPECT_EQ(module, nullptr);
    EXPECT_TRUE(says(text)) << error.text;
    EXPECT_TRUE(says("the test image")) << error.text;
    EXPECT_EQ(memory.live, before);
  }

  template <class T>
  static T& at(std::vector<char>& bytes, uint64_t offset) {
    return *reinterpret_cast<T*>(bytes.data() + offset);
  }
  static Elf64_Ehdr& header(std::vector<char>& bytes) { return at<Elf64_Ehdr>(bytes, 0); }
  static Elf64_Phdr& segment(std::vector<char>& bytes, uint32_t type) {
    for (int i = 0; i < header(bytes).e_phnum; ++i) {
      auto& header_at_index = at<Elf64_Phdr>(bytes, header(bytes).e_phoff + i * sizeof(Elf64_Phdr));
      if (header_at_index.p_type == type) return header_at_index;
    }
    std::abort();
  }
};

TEST_F(Module, Runs) {
  void *module, *add;
  ASSERT_EQ(load(file(), &module), HUSK_OK) << error.text;
  ASSERT_EQ(kernel(module, "add_scalar", &add), HUSK_OK) << error.text;
  float x[3] = {1, 2, 3}, y[3] = {}, *from = x, *to = y, by = 0.5;
  int64_t n = 3;
  ASSERT_EQ(launch(add, {&from, &to, &n, &by}), HUSK_OK) << error.text;
  EXPECT_EQ(y[0], 1.5f);
  EXPECT_EQ(y[2], 3.5f);
  port->module_unload(device, module);
}

TEST_F(Module, LoadsFromAnyAddress) {
  std::vector<char> bytes = file();
  bytes.insert(bytes.begin(), 3, 0);
  const husk_port_image image{sizeof(husk_port_image), HUSK_IMAGE_ELF, bytes.data() + 3,
                              bytes.size() - 3,        "moved",        nullptr};
  void* module;
  ASSERT_EQ(port->module_load(device, &image, &module, &error), HUSK_OK) << error.text;
  port->module_unload(device, module);
}

TEST_F(Module, FailedChecks) {
  void *module, *fail;
  ASSERT_EQ(load(file(), &module), HUSK_OK) << error.text;
  ASSERT_EQ(kernel(module, "fail_with", &fail), HUSK_OK) << error.text;
  const std::pair<int32_t, const char*> cases[] = {{1, "fail_with: the first check"},
                                                   {2, "fail_with: index out of range"},
                                                   {3, "no text"},
                                                   {-1, "no text"},
                                                   {INT32_MAX, "no text"},
                                                   {INT32_MIN, "no text"}};
  for (auto [number, text] : cases) {
    int32_t n = number;
    error = {};
    EXPECT_EQ(launch(fail, {&n}), HUSK_KERNEL);
    EXPECT_EQ(error.code, HUSK_KERNEL);
    EXPECT_TRUE(says(text)) << error.text;
  }
  int32_t no_failure = 0;
  EXPECT_EQ(launch(fail, {&no_failure}), HUSK_OK);
  port->module_unload(device, module);
}

// Two loads of one image are two libraries, even after other loads were unloaded.
TEST_F(Module, LoadsShareNothing) {
  for (int round = 0; round < 3; ++round) {
    void *modules[2], *kernels[2];
    int32_t calls = 0, *out = &calls;
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(load(file(), &modules[i]), HUSK_OK) << error.text;
      ASSERT_EQ(kernel(modules[i], "count_calls", &kernels[i]), HUSK_OK) << error.text;
    }
    for (int call = 1; call <= 2; ++call) {
      for (auto* k : kernels) {
        ASSERT_EQ(launch(k, {&out}), HUSK_OK);
        EXPECT_EQ(calls, call);
      }
    }
    port->module_unload(device, modules[round % 2]);
    port->module_unload(device, modules[1 - round % 2]);
  }
}

// The file descriptor of a library is open exactly as long as the library is loaded.
TEST_F(Module, LeavesNoDescriptors) {
  const auto open = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto before = open();
  void* module;
  ASSERT_EQ(load(file(), &module), HUSK_OK) << error.text;
  EXPECT_EQ(open(), before + 1);
  port->module_unload(device, module);
  EXPECT_EQ(open(), before);
  EXPECT_EQ(load(file(HUSK_TEST_IMAGE_UNDEFINED), &module), HUSK_INVALID_FILE);
  EXPECT_EQ(open(), before);
}

TEST_F(Module, SymbolsThatAreNotKernels) {
  void *module, *out = &module;
  ASSERT_EQ(load(file(), &module), HUSK_OK) << error.text;
  // An absent symbol; an object; a function of a library that the image is linked to; an empty
  // name.
  for (const char* symbol : {"absent", "husk_texts", "abort", ""}) {
    EXPECT_EQ(kernel(module, symbol, &out), HUSK_NOT_FOUND) << symbol;
    EXPECT_TRUE(says(symbol)) << error.text;
    EXPECT_EQ(out, nullptr);
  }
  EXPECT_EQ(kernel(module, nullptr, &out), HUSK_INVALID_ARGUMENT);
  const husk_port_kernel wrong[] = {
      {sizeof(husk_port_kernel), 0, "add_scalar", nullptr, 16, 1, 1, 0},
      {sizeof(husk_port_kernel), 0, "add_scalar", nullptr, 0, 2, 1, 0},
      {sizeof(husk_port_kernel), 0, "add_scalar", nullptr, 0, 1, 128, 0}};
  for (auto& desc : wrong)
    EXPECT_EQ(port->kernel_get(device, module, &desc, &out, &error), HUSK_UNSUPPORTED);
  port->module_unload(device, module);
}

TEST_F(Module, GridMustBeOne) {
  void *module, *fail;
  int32_t no_failure = 0;
  ASSERT_EQ(load(file(), &module), HUSK_OK) << error.text;
  ASSERT_EQ(kernel(module, "fail_with", &fail), HUSK_OK) << error.text;
  EXPECT_EQ(launch(fail, {&no_failure}, 2), HUSK_INVALID_ARGUMENT);
  EXPECT_TRUE(says("fail_with")) << error.text;
  port->module_unload(device, module);
}

// Structs from a runtime of a later version are read as far as they are known; those that lack a
// field of the first version are refused.
TEST_F(Module, StructsOfOtherVersions) {
  const std::vector<char> bytes = file();
  const husk_port_image image{
      sizeof(husk_port_image), HUSK_IMAGE_ELF, bytes.data(), bytes.size(), "versions", nullptr};
  const husk_port_kernel desc{sizeof(husk_port_kernel), 0, "fail_with", nullptr, 0, 1, 1, 0};
  int32_t none = 0;
  void* params[] = {&none};
  const husk_launch once{sizeof(husk_launch), {1, 1, 1}, {1, 1, 1}, 0, 1, 0, params};
  void *module, *kernel;
  const test::Newer<husk_port_image> newer_image(image);
  ASSERT_EQ(port->module_load(device, &newer_image.known, &module, &error), HUSK_OK) << error.text;
  const test::Newer<husk_port_kernel> newer_kernel(desc);
  ASSERT_EQ(port->kernel_get(device, module, &newer_kernel.known, &kernel, &error), HUSK_OK)
      << error.text;
  const test::Newer<husk_launch> newer_launch(once);
  EXPECT_EQ(port->launch(device, nullptr, kernel, &newer_launch.known, &error), HUSK_OK)
      << error.text;

  void* out;
  const auto small_image = test::older(image, offsetof(husk_port_image, name));
  test::expect_too_small(port->module_load(device, &small_image, &out, &error), error,
                         "husk_port_image");
  EXPECT_EQ(out, nullptr);
  const auto small_kernel = test::older(desc, offsetof(husk_port_kernel, threads));
  test::expect_too_small(port->kernel_get(device, module, &small_kernel, &out, &error), error,
                         "husk_port_kernel");
  EXPECT_EQ(out, nullptr);
  const auto small_launch = test::older(once, offsetof(husk_launch, params));
  test::expect_too_small(port->launch(device, nullptr, kernel, &small_launch, &error), error,
                         "husk_launch");
  port->module_unload(device, module);
}

TEST_F(Module, KernelsFromManyThreads) {
  void* module;
  ASSERT_EQ(load(file(), &module), HUSK_OK) << error.text;
  std::vector<std::thread> threads;
  // CountedMemory is not safe for several threads, so this test uses another allocator.
  void* other;
  const husk_allocator plain{nullptr, [](void*, size_t size, size_t) { return std::malloc(size); },
                             [](void*, void* pointer) { std::free(pointer); }};
  ASSERT_EQ(port->open(nullptr, 0, &plain, nullptr, &other, &error), HUSK_OK);
  void* shared;
  const std::vector<char> bytes = file();
  const husk_port_image image{
      sizeof(husk_port_image), HUSK_IMAGE_ELF, bytes.data(), bytes.size(), "shared", nullptr};
  ASSERT_EQ(port->module_load(other, &image, &shared, &error), HUSK_OK) << error.text;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        void* out;
        husk_error own{};
        const husk_port_kernel desc{sizeof(husk_port_kernel), 0, "fail_with", nullptr, 0, 1, 1, 0};
        EXPECT_EQ(port->kernel_get(other, shared, &desc, &out, &own), HUSK_OK);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  port->module_unload(other, shared);
  port->close(other);
  port->module_unload(device, module);
}

TEST_F(Module, WithoutMemory) {
  void* module;
  memory.fail_at = 0;
  EXPECT_EQ(load(file(), &module), HUSK_OUT_OF_MEMORY);
  EXPECT_EQ(module, nullptr);
  ASSERT_EQ(load(file(), &module), HUSK_OK) << error.text;
  void* out;
  memory.fail_at = 0;
  EXPECT_EQ(kernel(module, "fail_with", &out), HUSK_OUT_OF_MEMORY);
  EXPECT_TRUE(says("fail_with")) << error.text;
  port->module_unload(device, module);
  port->module_unload(device, nullptr);
}

TEST_F(Module, OtherFormats) {
  void* module;
  for (int format : {int{HUSK_IMAGE_CUBIN}, int{HUSK_IMAGE_PTX}, 0, 99})
    EXPECT_EQ(load(file(), &module, format), HUSK_UNSUPPORTED);
  const husk_port_image null{sizeof(husk_port_image), HUSK_IMAGE_ELF, nullptr, 64, "null", nullptr};
  EXPECT_EQ(port->module_load(device, &null, &module, &error), HUSK_INVALID_ARGUMENT);
}

TEST_F(Module, BrokenHeaders) {
  refuses(HUSK_INVALID_FILE, "too few", [](auto& b) {
    b.clear();
    b.shrink_to_fit();
    b.push_back(0);
  });
  refuses(HUSK_INVALID_FILE, "too few", [](auto& b) { b.resize(sizeof(Elf64_Ehdr) - 1); });
  refuses(HUSK_INVALID_FILE, "not ELF", [](auto& b) { b[1] = 'e'; });
  refuses(HUSK_INVALID_FILE, "64-bit", [](auto& b) { b[EI_CLASS] = ELFCLASS32; });
  refuses(HUSK_INVALID_FILE, "64-bit", [](auto& b) { b[EI_DATA] = ELFDATA2MSB; });
  refuses(HUSK_INVALID_FILE, "64-bit", [](auto& b) { b[EI_VERSION] = 2; });
  refuses(HUSK_UNSUPPORTED, "machine", [](auto& b) { header(b).e_machine = EM_RISCV; });
  refuses(HUSK_INVALID_FILE, "shared object", [](auto& b) { header(b).e_type = ET_EXEC; });
}

TEST_F(Module, BrokenExtents) {
  refuses(HUSK_INVALID_FILE, "program headers", [](auto& b) { header(b).e_phnum = 0; });
  refuses(HUSK_INVALID_FILE, "program headers", [](auto& b) { header(b).e_phnum = 0xfffe; });
  refuses(HUSK_INVALID_FILE, "program headers", [](auto& b) { header(b).e_phentsize = 8; });
  refuses(HUSK_INVALID_FILE, "program headers", [](auto& b) { header(b).e_phoff = b.size() - 8; });
  refuses(HUSK_INVALID_FILE, "program headers",
          [](auto& b) { header(b).e_phoff = UINT64_MAX - 8; });
  refuses(HUSK_INVALID_FILE, "segment",
          [](auto& b) { segment(b, PT_LOAD).p_offset = b.size() + 1; });
  refuses(HUSK_INVALID_FILE, "segment", [](auto& b) { segment(b, PT_LOAD).p_filesz = UINT64_MAX; });
  refuses(HUSK_INVALID_FILE, "segment", [](auto& b) { segment(b, PT_LOAD).p_memsz = 1; });
  refuses(HUSK_INVALID_FILE, "segment",
          [](auto& b) { segment(b, PT_LOAD).p_vaddr = UINT64_MAX - 8; });
  refuses(HUSK_INVALID_FILE, "no dynamic",
          [](auto& b) { segment(b, PT_DYNAMIC).p_type = PT_NULL; });
  refuses(HUSK_INVALID_FILE, "section headers", [](auto& b) { header(b).e_shoff = b.size(); });
  refuses(HUSK_INVALID_FILE, "section headers", [](auto& b) { header(b).e_shentsize = 1; });
  refuses(HUSK_INVALID_FILE, "section 1 ", [](auto& b) {
    at<Elf64_Shdr>(b, header(b).e_shoff + sizeof(Elf64_Shdr)).sh_offset = b.size();
  });
  refuses(HUSK_INVALID_FILE, "", [](auto& b) { b.resize(b.size() / 2); });
}

// The headers are valid, so the checks pass. The text of the loader's error must reach the caller.
TEST_F(Module, LoaderRefuses) {
  refuses(HUSK_INVALID_FILE, "husk_test_nowhere",
          [](auto& b) { b = file(HUSK_TEST_IMAGE_UNDEFINED); });
}

}  // namespace
}  // namespace husk::host_test
