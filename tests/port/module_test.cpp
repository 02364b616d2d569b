#include <sys/mman.h>

#include <cstring>

#include "port_case.h"

namespace husk::port_test {

// A copy of bytes that ends at an inaccessible page, so that a read past the end is a fault.
class GuardedBytes {
 public:
  explicit GuardedBytes(const std::vector<char>& bytes) {
    const size_t pages = (bytes.size() + 4095) / 4096 * 4096;
    size_ = pages + 4096;
    region_ = static_cast<char*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(region_ + pages, 4096, PROT_NONE);
    data = region_ + pages - bytes.size();
    if (!bytes.empty()) memcpy(data, bytes.data(), bytes.size());
  }
  ~GuardedBytes() { munmap(region_, size_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  char* data;

 private:
  char* region_;
  size_t size_;
};

class PortImages : public Port {
 protected:
  // The status of module_load for an image of these bytes.
  husk_status try_load(int32_t format, const std::vector<char>& bytes) {
    const GuardedBytes guarded(bytes);
    const husk_port_image image = {
        sizeof(husk_port_image), format, guarded.data, bytes.size(), "odd.image", nullptr};
    void* module = &module;
    const int live = memory.live;
    const husk_status status = port->module_load(device, &image, &module, &error);
    if (status == HUSK_OK) {
      port->module_unload(device, module);
    } else {
      EXPECT_EQ(module, nullptr);
      EXPECT_EQ(error.code, status);
      EXPECT_TRUE(error_says("odd.image"));
    }
    EXPECT_EQ(memory.live, live);
    return status;
  }
  husk_status get(void* module, const char* symbol, const std::vector<uint8_t>& params,
                  uint32_t threads = 1) {
    const husk_port_kernel desc = {sizeof(husk_port_kernel),
                                   static_cast<uint32_t>(params.size()),
                                   symbol,
                                   params.data(),
                                   0,
                                   1,
                                   threads,
                                   0};
    void* kernel = nullptr;
    return port->kernel_get(device, module, &desc, &kernel, &error);
  }
};

EVERY_PORT(PortImages);

TEST_P(PortImages, AreRefusedWhenCutShort) {
  const Image whole = kernels_image();
  const size_t step = whole.bytes.size() / 200 + 1;
  for (size_t size = 0; size < whole.bytes.size(); size += step) {
    const std::vector<char> part(whole.bytes.begin(),
                                 whole.bytes.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_EQ(try_load(whole.format, part), HUSK_INVALID_FILE) << size;
  }
  const std::vector<char> part(whole.bytes.begin(), whole.bytes.end() - 1);
  EXPECT_EQ(try_load(whole.format, part), HUSK_INVALID_FILE);
  EXPECT_EQ(try_load(whole.format, whole.bytes), HUSK_OK);
}

TEST_P(PortImages, AreRefusedInOtherFormats) {
  const Image whole = kernels_image();
  EXPECT_EQ(try_load(host ? HUSK_IMAGE_CUBIN : HUSK_IMAGE_ELF, whole.bytes), HUSK_UNSUPPORTED);
  EXPECT_EQ(try_load(99, whole.bytes), HUSK_UNSUPPORTED);
  const std::string text =
      "this is not a program, but long enough to be taken for the header of one: 0123456789";
  EXPECT_NE(try_load(whole.format, {text.begin(), text.end()}), HUSK_OK);
}

TEST_P(PortImages, LoadAgainAndSideBySide) {
  const Image image = kernels_image();
  void* first = load(image);
  void* second = load(image);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first, second);
  EXPECT_EQ(get(first, "add_scalar", kBinary), HUSK_OK) << error.text;
  EXPECT_EQ(get(second, "add_scalar", kBinary), HUSK_OK) << error.text;
  EXPECT_EQ(get(second, "add_scalar", kBinary), HUSK_OK) << error.text;  // the same kernel twice
}

TEST_P(PortImages, NameTheSymbolThatTheyLack) {
  const Image image = kernels_image();
  void* module = load(image);
  EXPECT_EQ(get(module, "no_such_kernel", {}), HUSK_NOT_FOUND);
  EXPECT_TRUE(error_says("no_such_kernel"));
  EXPECT_NE(error.code, HUSK_OK);
}

TEST_P(PortImages, ReportFailedAllocations) {
  const Image image = kernels_image();
  void* module = load(image);
  memory.fail_at = 1;
  EXPECT_EQ(get(module, "add_scalar", kBinary), HUSK_OUT_OF_MEMORY);
  EXPECT_TRUE(error_says("kernel"));
  EXPECT_EQ(get(module, "add_scalar", kBinary), HUSK_OK);
  memory.fail_at = 1;
  const husk_port_image view = image.view();
  EXPECT_EQ(port->module_load(device, &view, &module, &error), HUSK_OUT_OF_MEMORY);
}

// The tests below are for the CUDA port only.

class CudaImages : public Cuda {
 protected:
  void get(const char* symbol, const std::vector<uint8_t>& params, uint32_t threads = 128,
           uint32_t shared = 0, uint32_t cluster = 1) {
    if (!module_) module_ = load(kernels_image());
    const husk_port_kernel desc = {sizeof(husk_port_kernel),
                                   static_cast<uint32_t>(params.size()),
                                   symbol,
                                   params.data(),
                                   shared,
                                   cluster,
                                   threads,
                                   0};
    status = port->kernel_get(device, module_, &desc, &kernel_, &error);
  }
  husk_status try_load(int32_t format, const std::vector<char>& bytes) {
    const GuardedBytes guarded(bytes);
    const husk_port_image image = {
        sizeof(husk_port_image), format, guarded.data, bytes.size(), "odd.image", nullptr};
    void* module = nullptr;
    const husk_status result = port->module_load(device, &image, &module, &error);
    if (result == HUSK_OK) port->module_unload(device, module);
    return result;
  }
  static std::vector<char> text(const std::string& words) { return {words.begin(), words.end()}; }
  void *module_ = nullptr, *kernel_ = nullptr;
  husk_status status = HUSK_OK;
};

TEST_F(CudaImages, MustHaveTheGivenParameters) {
  get("add_scalar", {HUSK_POINTER, HUSK_POINTER, HUSK_I32});
  EXPECT_EQ(status, HUSK_INVALID_FILE);
  EXPECT_TRUE(error_says("add_scalar more 3"));
  get("add_scalar", {HUSK_POINTER, HUSK_POINTER, HUSK_I32, HUSK_I32, HUSK_I32});
  EXPECT_EQ(status, HUSK_INVALID_FILE);
  EXPECT_TRUE(error_says("add_scalar 4 5"));
  get("add_scalar", {HUSK_POINTER, HUSK_POINTER, HUSK_I64, HUSK_I32});
  EXPECT_EQ(status, HUSK_INVALID_FILE);
  EXPECT_TRUE(error_says("add_scalar parameter 2 8"));
  get("add_scalar", {HUSK_POINTER, HUSK_POINTER, HUSK_DTYPE_NONE, HUSK_I32});
  EXPECT_EQ(status, HUSK_INVALID_FILE);
  get("add_scalar", {HUSK_U64, HUSK_F64, HUSK_F32, HUSK_U32});  // only sizes are compared
  EXPECT_EQ(status, HUSK_OK) << error.text;
}

TEST_F(CudaImages, MustRunWithTheGivenThreads) {
  get("narrow", {HUSK_POINTER}, 64);
  EXPECT_EQ(status, HUSK_OK) << error.text;
  get("narrow", {HUSK_POINTER}, 65);
  EXPECT_EQ(status, HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("narrow 65 64"));
}

TEST_F(CudaImages, MustRunWithTheGivenSharedMemory) {
  get("shared_last", {HUSK_POINTER, HUSK_I32, HUSK_I32}, 32, 1 << 20);
  EXPECT_EQ(status, HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("shared_last 1048576"));
}

TEST_F(CudaImages, OfPtxMustEndWithANul) {
  const std::string ptx = ".version 7.0\n.target sm_80\n.address_size 64\n";
  EXPECT_EQ(try_load(HUSK_IMAGE_PTX, text(ptx)), HUSK_INVALID_FILE);
  EXPECT_TRUE(error_says("odd.image NUL"));
  EXPECT_EQ(try_load(HUSK_IMAGE_PTX, {}), HUSK_INVALID_FILE);
  EXPECT_EQ(try_load(HUSK_IMAGE_PTX, {0}), HUSK_INVALID_FILE);
  EXPECT_EQ(
      try_load(HUSK_IMAGE_PTX, kernels_image().format == HUSK_IMAGE_PTX ? std::vector<char>{1, 2, 0}
                                                                        : kernels_image().bytes),
      HUSK_INVALID_FILE);
  EXPECT_TRUE(error_says("odd.image text"));
}

TEST_F(CudaImages, OfBadPtxReportTheCompilersMessage) {
  std::vector<char> ptx = text(".version 7.0\n.target sm_80\n.address_size 64\nnonsense\n");
  ptx.push_back(0);
  const husk_status result = try_load(HUSK_IMAGE_PTX, ptx);
  EXPECT_TRUE(result == HUSK_INVALID_FILE || result == HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("cuLibraryGetModule CUDA_ERROR_ odd.image ptxas"));
}

TEST_F(CudaImages, OfUnknownKindAreRefused) {
  std::vector<char> words = text("only words");
  words.push_back(0);
  EXPECT_EQ(try_load(HUSK_IMAGE_PTX, words), HUSK_INVALID_FILE);
  EXPECT_TRUE(error_says("cuLibraryGetModule CUDA_ERROR_INVALID_IMAGE odd.image"));
}

// Machine code of the assembler, if the build had one and the device can run the code.
TEST_F(CudaImages, OfMachineCodeRun) {
  if (fake()) GTEST_SKIP() << "needs a GPU";
  const Image image = {HUSK_IMAGE_CUBIN, "kernels for sm_90",
                       read_from_program_folder("port_kernels_sm_90.cubin")};
  if (image.bytes.empty()) GTEST_SKIP() << "the build had no ptxas";
  if (port->arch_rank(device, "sm_90", HUSK_IMAGE_CUBIN) == 0) GTEST_SKIP() << "needs sm_90";
  for (size_t size = 0; size < image.bytes.size(); size += 97) {
    const std::vector<char> part(image.bytes.begin(),
                                 image.bytes.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_EQ(try_load(HUSK_IMAGE_CUBIN, part), HUSK_INVALID_FILE) << size;
  }
  module_ = load(image);
  get("no_such_kernel", {});
  EXPECT_EQ(status, HUSK_NOT_FOUND);
  get("add_scalar", {HUSK_POINTER, HUSK_POINTER, HUSK_I64, HUSK_I32});
  EXPECT_EQ(status, HUSK_INVALID_FILE);
  get("add_scalar", kBinary);
  ASSERT_EQ(status, HUSK_OK) << error.text;
  int32_t* a = device_array(std::vector<int32_t>(300, 5));
  int32_t value = 2, n = 300;
  void* params[] = {&a, &a, &value, &n};
  const husk_launch launch = launch_for(n, params);
  ASSERT_EQ(port->launch(device, stream, kernel_, &launch, &error), HUSK_OK) << error.text;
  EXPECT_EQ(read(a, 300), std::vector<int32_t>(300, 7));
}

TEST_F(CudaImages, ForOtherMachinesAreRefusedByTheDriver) {
  NEEDS_FAKE;
  std::vector<char> bytes = kernels_image().bytes;
  bytes[18] = static_cast<char>(190);  // EM_CUDA, which the fake driver cannot run
  bytes[19] = 0;
  module_ = load({HUSK_IMAGE_CUBIN, "odd.image", bytes});
  get("add_scalar", kBinary);
  EXPECT_EQ(status, HUSK_UNSUPPORTED);
  EXPECT_TRUE(
      error_says("cuLibraryGetKernel CUDA_ERROR_NO_BINARY_FOR_GPU add_scalar odd.image export"));
  EXPECT_EQ(error.driver_code, 209);
}

// Each field of the headers in turn has an impossible value, which must not cause a read past the
// end.
TEST_F(CudaImages, WithOddHeadersAreNeverReadPastTheirEnd) {
  NEEDS_FAKE;
  const std::vector<char> whole = kernels_image().bytes;
  uint64_t section_table;
  memcpy(&section_table, &whole[40], 8);
  std::vector<size_t> places;
  for (size_t at = 0; at < 64; at += 2) places.push_back(at);
  for (size_t at = 0; at < 64 * 12; at += 8) places.push_back(section_table + at);
  for (size_t at = 64; at < 64 + 56 * 8; at += 8) places.push_back(at);
  for (const size_t place : places) {
    for (const unsigned char value : {0xFF, 0x80, 0x7F}) {
      std::vector<char> bytes = whole;
      memset(&bytes[place], value, place < 64 ? 2 : 8);
      // EM_CUDA: if the port accepts the image, the fake driver follows its offsets but runs
      // nothing.
      bytes[18] = static_cast<char>(190);
      bytes[19] = 0;
      try_load(HUSK_IMAGE_CUBIN, bytes);
      EXPECT_TRUE(error.code == HUSK_OK || error_says("odd.image"));
    }
  }
}

TEST_F(CudaImages, AreLoadedBeforeTheFirstLaunch) {
  NEEDS_FAKE;
  int32_t* a = device_array(std::vector<int32_t>(8, 5));
  int32_t value = 2, n = 8;
  void* params[] = {&a, &a, &value, &n};
  const husk_launch launch = launch_for(8, params);
  ASSERT_EQ(port->launch(device, stream, add_scalar(), &launch, &error), HUSK_OK) << error.text;
  EXPECT_EQ(read(a, 8), std::vector<int32_t>(8, 7));
  EXPECT_EQ(fake().lazy_loads(), 0u);
}

TEST_F(CudaImages, AreUploadedByPrefetch) {
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  options.prefetch = 1;
  open_with(options);
  int32_t* a = device_array(std::vector<int32_t>(8, 5));
  int32_t value = 2, n = 8;
  void* params[] = {&a, &a, &value, &n};
  const husk_launch launch = launch_for(8, params);
  ASSERT_EQ(port->launch(device, stream, add_scalar(), &launch, &error), HUSK_OK) << error.text;
  EXPECT_EQ(read(a, 8), std::vector<int32_t>(8, 7));
  if (fake()) {
    EXPECT_EQ(fake().calls("cuGraphUpload"), 1u);
  }
}

}  // namespace husk::port_test
