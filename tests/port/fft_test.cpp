// "husk::fft" compared with a plain sum, on the fake cuFFT, or on the machine's own if there is
// one; and what it refuses.
#include <cmath>
#include <complex>
#include <cstring>

#include "op_case.h"

namespace husk::port_test {

namespace {

std::vector<int64_t> dense_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= sizes[d];
  }
  return strides;
}

struct FftTensor {
  std::vector<int64_t> sizes, strides;
  void* memory = nullptr;
  int32_t dtype = HUSK_F32;

  husk_op_arg arg() const {
    return tensor_arg(HUSK_ACCESS_WRITE, dtype, static_cast<int32_t>(sizes.size()), memory,
                      sizes.data(), strides.data());
  }
};

}  // namespace

class CudaFft : public WithOp<Cuda> {
 protected:
  void SetUp() override {
    Cuda::SetUp();
    if (IsSkipped() || HasFailure()) return;
    find("husk::fft");
  }
  FftTensor tensor(std::vector<int64_t> sizes, const std::vector<float>& values = {}) {
    FftTensor result;
    result.sizes = sizes;
    result.strides = dense_strides(sizes);
    size_t count = 1;
    for (const int64_t size : sizes) count *= static_cast<size_t>(size);
    std::vector<float> content = values;
    content.resize(count, 0);
    result.memory = device_array(content);
    return result;
  }
  static std::vector<husk_op_arg> arguments(const FftTensor& input, int64_t dims, int64_t inverse,
                                            const FftTensor& out) {
    husk_op_arg no_sizes{};
    no_sizes.kind = HUSK_ARG_INTS;
    return {input.arg(), integer(dims), integer(inverse), no_sizes, out.arg()};
  }
};

TEST_F(CudaFft, LinesOfComplexNumbers) {
  for (const int64_t n : {1, 2, 7, 16})
    for (const bool inverse : {false, true}) {
      std::vector<float> values(static_cast<size_t>(6 * n));
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 5 % 11) - 5;
      const FftTensor x = tensor({3, n, 2}, values), y = tensor({3, n, 2});
      ASSERT_EQ(enqueue(op.call, arguments(x, 1, inverse, y)), HUSK_OK) << error.text;
      const std::vector<float> results = read(static_cast<const float*>(y.memory), values.size());
      for (int64_t line = 0; line < 3; ++line)
        for (int64_t k = 0; k < n; ++k) {
          std::complex<double> sum = 0;
          for (int64_t j = 0; j < n; ++j) {
            const size_t at = static_cast<size_t>(2 * (line * n + j));
            sum += std::complex<double>(values[at], values[at + 1]) *
                   std::polar(1.0, (inverse ? 2 : -2) * M_PI * static_cast<double>(j * k) /
                                       static_cast<double>(n));
          }
          const size_t at = static_cast<size_t>(2 * (line * n + k));
          EXPECT_NEAR(results[at], sum.real(), 1e-4);
          EXPECT_NEAR(results[at + 1], sum.imag(), 1e-4);
        }
    }
}

// A transform to real numbers gets a copy of its input, which the library overwrites.
TEST_F(CudaFft, KeepsItsInput) {
  const std::vector<float> values = {1, 0, 2, -1, 3, 0};
  const FftTensor x = tensor({3, 2}, values), y = tensor({4});
  ASSERT_EQ(enqueue(op.call, arguments(x, 1, 1, y)), HUSK_OK) << error.text;
  const std::vector<float> results = read(static_cast<const float*>(y.memory), 4);
  const float right[] = {8, 0, 0, -4};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(results[i], right[i], 1e-6) << i;
  EXPECT_EQ(read(static_cast<const float*>(x.memory), 6), values);
}

TEST_F(CudaFft, NothingToTransform) {
  FftTensor none;
  none.sizes = {0, 4, 2};
  none.strides = {8, 2, 1};
  EXPECT_EQ(enqueue(op.call, arguments(none, 1, 0, none)), HUSK_OK) << error.text;
  EXPECT_EQ(enqueue(op.prepare, arguments(none, 1, 0, none)), HUSK_OK) << error.text;
}

TEST_F(CudaFft, RefusesUnsupportedArguments) {
  const FftTensor x = tensor({2, 8, 2}), y = tensor({2, 8, 2}), real = tensor({2, 8}),
                  half = tensor({2, 5, 2}), other = tensor({2, 6, 2});
  FftTensor apart = x, odd = x, ints = x, wide = x;
  apart.strides[0] = 20;
  odd.memory = static_cast<char*>(x.memory) + 4;
  ints.dtype = HUSK_F16;
  wide.dtype = HUSK_F64;
  expect_refused(arguments(apart, 1, 0, y), HUSK_UNSUPPORTED,
                 "husk::fft f32 complex 2 x [8]: the input has gaps fft='triton'");
  expect_refused(arguments(x, 1, 0, apart), HUSK_UNSUPPORTED, "the result has gaps fft='triton'");
  expect_refused(arguments(odd, 1, 0, y), HUSK_UNSUPPORTED,
                 "the address of the input aligned fft='triton'");
  expect_refused(arguments(real, 1, 1, half), HUSK_UNSUPPORTED,
                 "real to complex sign fft='triton'");
  expect_refused(arguments(half, 1, 0, real), HUSK_UNSUPPORTED,
                 "complex to real sign fft='triton'");
  expect_refused(arguments(ints, 1, 0, y), HUSK_INVALID_ARGUMENT, "f32 or f64");
  expect_refused(arguments(x, 1, 0, wide), HUSK_INVALID_ARGUMENT, "f32 or f64");
  expect_refused(arguments(x, 4, 0, y), HUSK_INVALID_ARGUMENT, "1, 2 or 3");
  expect_refused(arguments(x, 0, 0, y), HUSK_INVALID_ARGUMENT, "1, 2 or 3");
  expect_refused({x.arg()}, HUSK_INVALID_ARGUMENT, "husk::fft takes again");
  for (const auto& args : {arguments(x, 1, 0, other), arguments(x, 3, 0, y),
                           arguments(real, 1, 0, other), arguments(real, 1, 0, real)})
    expect_refused(args, HUSK_INVALID_INPUT, "husk::fft sizes do not match");
}

TEST_F(CudaFft, APlanIsMadeOnceAndRunAllocatesNothing) {
  NEEDS_FAKE;
  FftTensor nowhere = tensor({2, 8, 2});
  const FftTensor x = nowhere, y = tensor({2, 8, 2});
  nowhere.memory = nullptr;
  ASSERT_EQ(enqueue(op.prepare, arguments(nowhere, 1, 0, nowhere)), HUSK_OK) << error.text;
  memory.fail_at = 1;
  for (int round = 0; round < 3; ++round)
    ASSERT_EQ(enqueue(op.call, arguments(x, 1, 0, y)), HUSK_OK) << error.text;
  EXPECT_EQ(memory.fail_at, 1);
  memory.fail_at = 0;
  EXPECT_EQ(fake().calls("cufftMakePlanMany64"), 1u);
  ASSERT_EQ(enqueue(op.call, arguments(x, 2, 0, y)), HUSK_OK) << error.text;
  EXPECT_EQ(fake().calls("cufftMakePlanMany64"), 2u);
}

TEST_F(CudaFft, MoreShapesThanTheCacheHolds) {
  NEEDS_FAKE;
  const auto transform = [&](int64_t size) {
    return enqueue(op.call, arguments(tensor({size, 2}), 1, 0, tensor({size, 2})));
  };
  for (int64_t size = 1; size <= 100; ++size) ASSERT_EQ(transform(size), HUSK_OK) << error.text;
  EXPECT_EQ(fake().calls("cufftDestroy"), 100u - 64);
  // The plans that are left are those of the last calls.
  ASSERT_EQ(transform(100 - 63), HUSK_OK) << error.text;
  EXPECT_EQ(fake().calls("cufftMakePlanMany64"), 100u);
  ASSERT_EQ(transform(1), HUSK_OK) << error.text;
  EXPECT_EQ(fake().calls("cufftMakePlanMany64"), 101u);
}

TEST_F(CudaFft, ReportsErrorsOfTheLibrary) {
  NEEDS_FAKE;
  const FftTensor x = tensor({3, 2}), y = tensor({4});
  for (const char* call : {"cufftCreate", "cufftSetAutoAllocation", "cufftMakePlanMany64",
                           "cufftSetStream", "cufftSetWorkArea", "cufftXtExec"}) {
    fake().fail_call(call, 1, 6);
    EXPECT_EQ(enqueue(op.call, arguments(x, 1, 1, y)), HUSK_DEVICE);
    EXPECT_TRUE(error_says("husk::fft f32 complex to real 1 x [4] CUFFT_EXEC_FAILED"))
        << error.text;
    EXPECT_TRUE(error_says(call)) << error.text;
    EXPECT_EQ(error.driver_code, 6);
  }
  const FftTensor longer = tensor({4, 2}), more = tensor({6});
  fake().fail_call("cufftMakePlanMany64", 1, 8);
  EXPECT_EQ(enqueue(op.call, arguments(longer, 1, 1, more)), HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("CUFFT_INVALID_SIZE fft='triton'")) << error.text;
  for (const char* call : {"cuMemAllocAsync", "cuMemcpyAsync", "cuEventRecord"}) {
    fake().fail_call(call, 1, 2);
    EXPECT_EQ(enqueue(op.call, arguments(x, 1, 1, y)), HUSK_OUT_OF_MEMORY);
    EXPECT_TRUE(error_says(std::string("husk::fft ") + call)) << error.text;
  }
  EXPECT_EQ(enqueue(op.call, arguments(x, 1, 1, y)), HUSK_OK) << error.text;
}

TEST_F(CudaFft, AMissingLibraryIsAnErrorWithARemedy) {
  NEEDS_FAKE;
  expect_errors_of_opening("husk::fft", &husk_cuda_options::cufft, "/no/such/libcufft.so.12",
                           "cuFFT fft='triton'", "this cuFFT has no cufftCreate newer");
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  open_with(options);
  memory.fail_at = 1;
  EXPECT_EQ(port->find_op(device, "husk::fft", &op, &error), HUSK_OUT_OF_MEMORY);
  EXPECT_EQ(port->find_op(device, "husk::fft", &op, &error), HUSK_OK) << error.text;
  EXPECT_EQ(op.flags, 0u);  // a call cannot be captured
}

}  // namespace husk::port_test
