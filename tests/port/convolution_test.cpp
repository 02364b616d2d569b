// "husk::cudnn_convolution" compared with plain sums, on the fake cuDNN, or on the machine's own if
// there is one.
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "numbers.h"
#include "op_case.h"

namespace husk::port_test {

namespace {

fake::Number number_of(int32_t dtype) {
  switch (dtype) {
    case HUSK_F16: return fake::Number::f16;
    case HUSK_BF16: return fake::Number::bf16;
    case HUSK_F32: return fake::Number::f32;
    default: return fake::Number::f64;
  }
}

// A tensor of a test. Its values are small multiples of 1/4, which every dtype holds.
struct Image4 {
  std::vector<int64_t> sizes, strides;
  int32_t dtype;
  std::vector<double> values;  // of the whole storage
  void* memory = nullptr;

  Image4(int32_t type, std::vector<int64_t> of_sizes, bool channels_last, int64_t gap = 0)
      : sizes(std::move(of_sizes)), strides(sizes.size()), dtype(type) {
    int64_t dense = 1;
    const size_t rank = sizes.size();
    if (channels_last) {
      strides[1] = 1;
      dense = sizes[1];
    }
    for (size_t d = rank; d-- > 0;) {
      if (channels_last && d == 1) continue;
      strides[d] = dense;
      dense *= sizes[d] + (d == rank - 1 ? gap : 0);
    }
    values.resize(static_cast<size_t>(dense));
  }
  size_t bytes() const { return values.size() * fake::width(number_of(dtype)); }
  husk_op_arg arg(int32_t access) const {
    return tensor_arg(access, dtype, static_cast<int32_t>(sizes.size()), memory, sizes.data(),
                      strides.data());
  }
};

struct ConvolutionCase {
  int32_t dtype = HUSK_F32;
  std::vector<int64_t> image{2, 6, 9, 7};  // sizes of the forward convolution's image
  std::vector<int64_t> filter{8, 6, 3, 3};
  std::vector<int64_t> stride{1, 1}, padding{1, 1}, dilation{1, 1};
  int64_t groups = 1;
  bool transposed = false, channels_last = true;
  int64_t fast = 0;
  int64_t gap = 0;  // after each row of the input
};

std::vector<int64_t> result_of(const ConvolutionCase& c) {
  std::vector<int64_t> sizes{c.image[0], c.filter[0]};
  for (size_t d = 2; d < c.image.size(); ++d)
    sizes.push_back(
        (c.image[d] + 2 * c.padding[d - 2] - c.dilation[d - 2] * (c.filter[d] - 1) - 1) /
            c.stride[d - 2] +
        1);
  return sizes;
}

// Calls `visit` with every position below `sizes`.
template <class Visit>
void each(const std::vector<int64_t>& sizes, const Visit& visit) {
  for (const int64_t size : sizes)
    if (size == 0) return;
  std::vector<int64_t> at(sizes.size());
  for (;;) {
    visit(at);
    size_t d = sizes.size();
    while (d > 0 && ++at[d - 1] == sizes[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

size_t place_of(const Image4& tensor, const std::vector<int64_t>& at) {
  int64_t sum = 0;
  for (size_t d = 0; d < at.size(); ++d) sum += at[d] * tensor.strides[d];
  return static_cast<size_t>(sum);
}

// Adds the products of a convolution to its result, or to its image if it is transposed.
void convolve(const ConvolutionCase& c, Image4* image, const Image4& filter, Image4* result) {
  const int64_t of_group = c.filter[0] / c.groups;
  std::vector<int64_t> taps = filter.sizes, in(taps.size()), at(taps.size());
  taps[0] = 1;
  each(result->sizes, [&](const std::vector<int64_t>& out) {
    double& other = result->values[place_of(*result, out)];
    in[0] = out[0];
    each(taps, [&](const std::vector<int64_t>& tap) {
      for (size_t d = 2; d < in.size(); ++d) {
        in[d] = out[d] * c.stride[d - 2] - c.padding[d - 2] + tap[d] * c.dilation[d - 2];
        if (in[d] < 0 || in[d] >= image->sizes[d]) return;
      }
      in[1] = out[1] / of_group * c.filter[1] + tap[1];
      at = tap;
      at[0] = out[1];
      double& one = image->values[place_of(*image, in)];
      const double weight = filter.values[place_of(filter, at)];
      if (c.transposed)
        one += weight * other;
      else
        other += weight * one;
    });
  });
}

}  // namespace

class CudaConvolution : public WithOp<Cuda> {
 protected:
  static constexpr int64_t kWorkspace = 1 << 20;

  void SetUp() override {
    Cuda::SetUp();
    if (IsSkipped() || HasFailure()) return;
    find("husk::cudnn_convolution");
    if (IsSkipped() || HasFailure()) return;
    workspace = device_memory(kWorkspace);
  }

  void place(Image4* tensor) {
    std::vector<char> bytes(tensor->bytes());
    for (size_t i = 0; i < tensor->values.size(); ++i)
      fake::store(number_of(tensor->dtype), bytes.data(), static_cast<int64_t>(i),
                  tensor->values[i]);
    tensor->memory = device_array(bytes);
  }
  void fill(Image4* tensor) {
    for (double& value : tensor->values)
      value = static_cast<double>(static_cast<int>(random() % 9) - 4) / 4;
    place(tensor);
  }
  std::vector<husk_op_arg> arguments(const ConvolutionCase& c, const Image4& x, const Image4& w,
                                     const Image4& out) {
    return {x.arg(HUSK_ACCESS_READ),    w.arg(HUSK_ACCESS_READ), ints(c.stride),    ints(c.padding),
            ints(c.dilation),           integer(c.transposed),   integer(c.groups), integer(c.fast),
            out.arg(HUSK_ACCESS_WRITE), workspace_arg()};
  }

  // Calls the op and returns its status. After HUSK_OK it compares the result.
  husk_status compute(const ConvolutionCase& c) {
    const std::vector<int64_t> result_sizes = result_of(c);
    Image4 image(c.dtype, c.image, c.channels_last, c.transposed ? 0 : c.gap),
        filter(c.dtype, c.filter, c.channels_last),
        result(c.dtype, result_sizes, c.channels_last, c.transposed ? c.gap : 0);
    Image4 &x = c.transposed ? result : image, &out = c.transposed ? image : result;
    fill(&x);
    fill(&filter);
    for (double& value : out.values) value = 77;
    place(&out);
    if (const husk_status status = enqueue(op.call, arguments(c, x, filter, out))) return status;
    const std::vector<char> bytes = read(static_cast<const char*>(out.memory), out.bytes());
    for (double& value : out.values) value = 0;
    convolve(c, &image, filter, &result);
    const double tolerance = c.dtype == HUSK_F64   ? 1e-12
                             : c.dtype == HUSK_F32 ? 1e-5
                             : c.dtype == HUSK_F16 ? 2e-3
                                                   : 1.6e-2;
    for (size_t i = 0; i < out.values.size(); ++i) {
      const double value = fake::load(number_of(c.dtype), bytes.data(), static_cast<int64_t>(i)),
                   right = out.values[i];
      if (std::abs(value - right) <= tolerance * std::max(1.0, std::abs(right))) continue;
      ADD_FAILURE() << "dtype " << c.dtype << ": element " << i << " is " << value << ", not "
                    << right;
      break;
    }
    free_memory();
    workspace = device_memory(kWorkspace);
    return HUSK_OK;
  }
  void expect(const ConvolutionCase& c) { EXPECT_EQ(compute(c), HUSK_OK) << error.text; }

  std::mt19937 random{7};
};

TEST_F(CudaConvolution, EveryDtypeAndLayout) {
  for (const int32_t dtype : {HUSK_F16, HUSK_BF16, HUSK_F32, HUSK_F64})
    for (const bool transposed : {false, true})
      for (const bool channels_last : {true, false}) {
        SCOPED_TRACE(testing::Message() << dtype << " " << transposed << " " << channels_last);
        ConvolutionCase c;
        c.dtype = dtype;
        c.transposed = transposed;
        c.channels_last = channels_last;
        if (transposed) c.filter = {8, 6, 3, 2};
        expect(c);
      }
}

TEST_F(CudaConvolution, StridesPaddingsDilationsAndGroups) {
  for (const bool transposed : {false, true})
    for (const int32_t dtype : {HUSK_F16, HUSK_F32}) {
      SCOPED_TRACE(testing::Message() << dtype << " " << transposed);
      const std::vector<int64_t> image{3, 8, 11, 10}, ones{1, 1}, nothing{0, 0};
      expect({dtype, image, {16, 8, 3, 5}, {2, 1}, {0, 2}, ones, 1, transposed});
      expect({dtype, image, {16, 8, 3, 3}, ones, {2, 2}, {2, 2}, 1, transposed});
      expect({dtype, image, {16, 4, 3, 3}, ones, {1, 1}, ones, 2, transposed});
      expect({dtype, image, {8, 1, 3, 3}, {2, 2}, {1, 1}, ones, 8, transposed});
      expect({dtype, image, {16, 8, 1, 1}, ones, nothing, ones, 1, transposed});
      expect({dtype, image, {8, 8, 2, 2}, {2, 2}, nothing, ones, 1, transposed});
    }
}

TEST_F(CudaConvolution, ThreeDimensions) {
  for (const bool transposed : {false, true})
    for (const bool channels_last : {true, false})
      expect({HUSK_F16,
              {2, 8, 5, 6, 7},
              {8, 8, 3, 3, 2},
              {1, 2, 1},
              {1, 1, 0},
              {1, 1, 2},
              1,
              transposed,
              channels_last});
}

TEST_F(CudaConvolution, DimensionsOfSizeOneDecideNothing) {
  for (const bool channels_last : {true, false}) {
    expect({HUSK_F16, {1, 1, 8, 8}, {4, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, false, channels_last});
    expect({HUSK_F16, {1, 8, 1, 1}, {8, 8, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1, false, channels_last});
  }
}

TEST_F(CudaConvolution, F32InTf32) {
  ConvolutionCase c;
  c.fast = 1;
  expect(c);
}

TEST_F(CudaConvolution, RowsWithGaps) {
  NEEDS_FAKE;  // whether cuDNN has an engine for that is its own choice
  ConvolutionCase c;
  c.channels_last = false;
  c.gap = 3;
  expect(c);
}

TEST_F(CudaConvolution, NothingToMultiply) {
  expect({HUSK_F16, {0, 6, 9, 7}});
  expect({HUSK_F16, {2, 6, 0, 0}, {8, 6, 1, 1}});  // only padding
  expect({HUSK_F32, {2, 0, 9, 7}, {8, 0, 3, 3}});
}

TEST_F(CudaConvolution, UsesF32WithoutRoundingUnlessToldOtherwise) {
  NEEDS_FAKE;
  // Engine 1 of the fake rounds, engine 2 needs a workspace, engine 3 nothing.
  ConvolutionCase c;
  Image4 image(HUSK_F32, {1, 1, 1, 1}, true), filter(HUSK_F32, {1, 1, 1, 1}, true),
      result(HUSK_F32, {1, 1, 1, 1}, true);
  image.values = {1 + 0x1p-20};
  filter.values = {1};
  place(&image);
  place(&filter);
  place(&result);
  c.padding = {0, 0};
  for (const int64_t size : {kWorkspace, int64_t{0}})
    for (const int64_t fast : {0, 1}) {
      workspace_size = size;
      c.fast = fast;
      ASSERT_EQ(enqueue(op.call, arguments(c, image, filter, result)), HUSK_OK) << error.text;
      const float value = read(static_cast<const float*>(result.memory), 1)[0];
      EXPECT_EQ(value, fast ? 1 : 1 + 0x1p-20f) << size;
    }
  workspace_size = kWorkspace;
}

TEST_F(CudaConvolution, RefusesOtherArguments) {
  const ConvolutionCase c;
  Image4 image(HUSK_F32, c.image, true), filter(HUSK_F32, c.filter, true),
      result(HUSK_F32, result_of(c), true);
  const auto refused = [&](const ConvolutionCase& of, husk_status status, const char* words) {
    for (husk_op_fn function : {op.call, op.prepare}) {
      EXPECT_EQ(enqueue(function, arguments(of, image, filter, result)), status);
      EXPECT_TRUE(error_says(words)) << error.text;
    }
  };
  const auto with = [&](const auto& change) {
    ConvolutionCase changed = c;
    change(changed);
    return changed;
  };
  const auto sizes = "husk::cudnn_convolution f32 [2, 6, 9, 7] [8, 6, 3, 3] sizes do not match";
  refused(with([](auto& k) { k.padding = {0, 0}; }), HUSK_INVALID_INPUT, sizes);
  refused(with([](auto& k) { k.groups = 2; }), HUSK_INVALID_INPUT, sizes);
  refused(with([](auto& k) { k.groups = 0; }), HUSK_INVALID_INPUT, sizes);
  refused(with([](auto& k) { k.transposed = true; }), HUSK_INVALID_INPUT, "transposed, f32");
  refused(with([](auto& k) { k.stride = {0, 1}; }), HUSK_UNSUPPORTED, "out of range conv='triton'");
  refused(with([](auto& k) { k.dilation = {1, int64_t{1} << 40}; }), HUSK_UNSUPPORTED,
          "out of range conv='triton'");
  refused(with([](auto& k) { k.padding = {-1, 0}; }), HUSK_UNSUPPORTED, "out of range");
  refused(with([](auto& k) { k.stride = {1}; }), HUSK_INVALID_ARGUMENT, "three lists of ints");
  for (Image4* tensor : {&image, &filter, &result}) {
    tensor->strides[0] = int64_t{1} << 32;
    refused(c, HUSK_UNSUPPORTED, "above 2147483647");
    tensor->strides[0] = 0;
    refused(c, HUSK_UNSUPPORTED, "whose elements share memory");
    tensor->strides[0] = tensor->strides[2] * tensor->sizes[2];
    tensor->memory = reinterpret_cast<void*>(uintptr_t{2});
    refused(c, HUSK_INVALID_ARGUMENT, "is not aligned to its elements");
    tensor->memory = nullptr;
    tensor->dtype = HUSK_I32;
    refused(c, HUSK_INVALID_ARGUMENT, "husk::cudnn_convolution takes export the program again");
    tensor->dtype = HUSK_F32;
  }
  EXPECT_EQ(enqueue(op.call, {}), HUSK_INVALID_ARGUMENT);
  std::vector<husk_op_arg> args = arguments(c, image, filter, result);
  const int64_t apart = 2;
  args.back().strides = &apart;
  EXPECT_EQ(enqueue(op.call, args), HUSK_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("a dense workspace of u8")) << error.text;
}

TEST_F(CudaConvolution, AnEngineIsChosenOnce) {
  NEEDS_FAKE;
  const ConvolutionCase c{HUSK_F16};
  Image4 image(c.dtype, c.image, true), filter(c.dtype, c.filter, true),
      result(c.dtype, result_of(c), true);
  // The tensors have no address yet.
  ASSERT_EQ(enqueue(op.prepare, arguments(c, image, filter, result)), HUSK_OK) << error.text;
  EXPECT_EQ(fake().calls("cudnnBackendExecute"), 0u);
  fill(&image);
  fill(&filter);
  place(&result);
  const int host_live = memory.live;
  const uint64_t live = fake().live_objects(), waits = fake().calls("cuStreamSynchronize"),
                 asked = fake().calls("cudnnBackendGetAttribute");
  memory.fail_at = 1;
  for (int run = 0; run < 5; ++run)
    ASSERT_EQ(enqueue(op.call, arguments(c, image, filter, result)), HUSK_OK) << error.text;
  EXPECT_EQ(fake().calls("cudnnBackendExecute"), 5u);
  EXPECT_EQ(fake().calls("cudnnBackendGetAttribute"), asked);
  EXPECT_EQ(fake().calls("cuStreamSynchronize"), waits);
  EXPECT_EQ(fake().live_objects(), live);
  EXPECT_EQ(memory.fail_at, 1);
  EXPECT_EQ(memory.live, host_live);
  memory.fail_at = 0;
}

TEST_F(CudaConvolution, MoreShapesThanTheCacheHolds) {
  NEEDS_FAKE;
  ConvolutionCase c{HUSK_F16};
  uint64_t live = 0;
  for (int64_t rows = 1; rows <= 600; ++rows) {
    c.image[2] = rows;
    Image4 image(c.dtype, c.image, true), filter(c.dtype, c.filter, true),
        result(c.dtype, result_of(c), true);
    ASSERT_EQ(enqueue(op.prepare, arguments(c, image, filter, result)), HUSK_OK) << error.text;
    if (rows == 300) live = fake().live_objects();
  }
  EXPECT_EQ(fake().live_objects(), live);  // plans that are dropped are given back
  expect(c);
}

TEST_F(CudaConvolution, ReportsErrorsOfTheLibrary) {
  NEEDS_FAKE;
  ConvolutionCase c{HUSK_F16};
  int64_t rows = 20;
  for (const char* call : {"cudnnBackendExecute", "cudnnSetStream", "cudnnBackendFinalize",
                           "cudnnBackendSetAttribute", "cudnnBackendCreateDescriptor"}) {
    SCOPED_TRACE(call);
    c.image[2] = ++rows;  // without a kept plan
    fake().fail_call(call, 1, 5000);
    EXPECT_EQ(compute(c), HUSK_DEVICE);
    EXPECT_EQ(error.driver_code, 5000);
    EXPECT_TRUE(error_says("husk::cudnn_convolution f16 CUDNN_STATUS_EXECUTION_FAILED"))
        << error.text;
    expect(c);
  }
  c.image[2] = ++rows;
  fake().fail_call("cudnnBackendExecute", 1, 3000);
  EXPECT_EQ(compute(c), HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("CUDNN_STATUS_NOT_SUPPORTED conv='triton'")) << error.text;
  // The first heuristic proposes nothing, so the second one is asked.
  c.image[2] = ++rows;
  fake().fail_call("cudnnBackendGetAttribute", 1, -1);
  expect(c);
}

TEST_F(CudaConvolution, SaysThatNoEngineFits) {
  NEEDS_FAKE;
  ConvolutionCase c;
  c.image[2] = 50;
  Image4 image(c.dtype, c.image, true), filter(c.dtype, c.filter, true),
      result(c.dtype, result_of(c), true);
  workspace_size = 0;
  // The answers, in their order: what the first heuristic proposes; engine and notes of each of
  // three configurations, and the workspace of the last; what the second one proposes.
  fake().fail_call("cudnnBackendGetAttribute", 9, -1);
  EXPECT_EQ(enqueue(op.prepare, arguments(c, image, filter, result)), HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("cuDNN has no engine a workspace of 0 bytes conv='triton'")) << error.text;
  workspace_size = kWorkspace;
}

TEST_F(CudaConvolution, SeveralThreadsAtOnce) {
  NEEDS_FAKE;
  const ConvolutionCase c{HUSK_F32};
  struct Own {
    Image4 image, filter, result;
    void* stream = nullptr;
    husk_status status = HUSK_OK;
  };
  std::vector<Own> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back({Image4(c.dtype, c.image, true), Image4(c.dtype, c.filter, true),
                   Image4(c.dtype, result_of(c), true)});
    fill(&all.back().image);
    fill(&all.back().filter);
    place(&all.back().result);
    ASSERT_EQ(port->stream_create(device, &all.back().stream, &error), HUSK_OK);
  }
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
  workspace_size = 0;
  std::vector<std::thread> threads;
  for (Own& own : all)
    threads.emplace_back([&, this] {
      husk_error own_error{};
      const husk_op_context context = context_of(op.user, device, own.stream);
      for (int run = 0; run < 30 && own.status == HUSK_OK; ++run) {
        const std::vector<husk_op_arg> args = arguments(c, own.image, own.filter, own.result);
        own.status = op.call(&context, args.data(), static_cast<uint32_t>(args.size()), &own_error);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (Own& own : all) {
    EXPECT_EQ(own.status, HUSK_OK);
    ASSERT_EQ(port->stream_wait(device, own.stream, &error), HUSK_OK);
    port->stream_destroy(device, own.stream);
    for (double& value : own.result.values) value = 0;
    convolve(c, &own.image, own.filter, &own.result);
    const std::vector<float> outputs = read(static_cast<const float*>(own.result.memory),
                                            own.result.values.size());
    for (size_t i = 0; i < outputs.size(); ++i) ASSERT_NEAR(outputs[i], own.result.values[i], 1e-5);
  }
  EXPECT_EQ(fake().calls("cudnnBackendExecute"), 120u);
  workspace_size = kWorkspace;
}

// A device on which find_op was not called yet.
class CudaDnnLibrary : public WithOp<OverFake> {};

TEST_F(CudaDnnLibrary, IsOpenedByTheFirstFindOp) {
  for (int again = 0; again < 3; ++again)
    ASSERT_EQ(port->find_op(device, "husk::cudnn_convolution", &op, &error), HUSK_OK) << error.text;
  EXPECT_EQ(fake().calls("cudnnCreate"), 1u);
  EXPECT_EQ(fake().calls("cublasLtCreate"), 0u);
  EXPECT_EQ(op.flags, static_cast<uint32_t>(HUSK_OP_CAPTURABLE));
}

TEST_F(CudaDnnLibrary, AMissingLibraryIsAnErrorWithARemedy) {
  expect_errors_of_opening("husk::cudnn_convolution", &husk_cuda_options::cudnn,
                           "/no/such/libcudnn.so.9", "cuDNN conv='triton'",
                           "this cuDNN has no cudnnCreate");
}

TEST_F(CudaDnnLibrary, AFailedStartIsAnErrorAndIsRetried) {
  const int host_live = memory.live;
  fake().fail_call("cudnnCreate", 1, 1001);
  EXPECT_EQ(port->find_op(device, "husk::cudnn_convolution", &op, &error), HUSK_DEVICE);
  EXPECT_TRUE(error_says("cuDNN cudnnCreate CUDNN_STATUS_NOT_INITIALIZED")) << error.text;
  EXPECT_EQ(memory.live, host_live);
  EXPECT_EQ(port->find_op(device, "husk::cudnn_convolution", &op, &error), HUSK_OK) << error.text;
  const int live = memory.live;
  close();
  open();
  memory.fail_at = 1;
  EXPECT_EQ(port->find_op(device, "husk::cudnn_convolution", &op, &error), HUSK_OUT_OF_MEMORY);
  memory.fail_at = 0;
  EXPECT_LT(memory.live, live);
}

}  // namespace husk::port_test
