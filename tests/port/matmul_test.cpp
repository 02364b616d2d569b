// "husk::matmul" compared with a plain product, on the fake cuBLASLt, or on the machine's own if
// there is one.
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "op_case.h"

namespace husk::port_test {

namespace {

size_t width(int32_t dtype) { return dtype == HUSK_F64 ? 8 : dtype == HUSK_F32 ? 4 : 2; }

// The values of these tests are zero or normal numbers that f16 and bf16 represent exactly.
std::vector<char> encoded(const std::vector<double>& values, int32_t dtype) {
  std::vector<char> bytes(values.size() * width(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    char* at = bytes.data() + i * width(dtype);
    const float single = static_cast<float>(values[i]);
    uint32_t word;
    memcpy(&word, &single, 4);
    const uint16_t bfloat = static_cast<uint16_t>(word >> 16);
    const uint16_t half = static_cast<uint16_t>(
        (word >> 16 & 0x8000) | (single == 0 ? 0 : (word >> 13 & 0x3FFFF) - (112 << 10)));
    if (dtype == HUSK_F64) memcpy(at, &values[i], 8);
    if (dtype == HUSK_F32) memcpy(at, &single, 4);
    if (dtype == HUSK_BF16) memcpy(at, &bfloat, 2);
    if (dtype == HUSK_F16) memcpy(at, &half, 2);
  }
  return bytes;
}

double decoded(const char* at, int32_t dtype) {
  double wide = 0;
  float single = 0;
  uint16_t bits = 0;
  if (dtype == HUSK_F64) return memcpy(&wide, at, 8), wide;
  if (dtype == HUSK_F32) return memcpy(&single, at, 4), single;
  memcpy(&bits, at, 2);
  uint32_t word = static_cast<uint32_t>(bits) << 16;
  if (dtype == HUSK_F16) {
    if ((bits & 0x7FFF) == 0) return 0;
    word = (bits & 0x8000u) << 16 | (((bits & 0x7FFFu) << 13) + (112u << 23));
  }
  return memcpy(&single, &word, 4), single;
}

double tolerance(int32_t dtype) {
  return dtype == HUSK_F64 ? 1e-12 : dtype == HUSK_F32 ? 1e-5 : dtype == HUSK_F16 ? 2e-3 : 1.6e-2;
}

enum class Layout { rows, columns, padded_rows, padded_columns, scattered };
constexpr Layout kLayouts[] = {Layout::rows, Layout::columns, Layout::padded_rows,
                               Layout::padded_columns};

// A tensor of a test: sizes and strides of batch, rows and columns; its values on the host and,
// once placed, its memory on the device.
struct Tensor {
  int64_t sizes[3], strides[3];
  int32_t rank, dtype;
  void* memory = nullptr;
  std::vector<double> values;  // of the whole storage, gaps too

  Tensor(int32_t type, int32_t dims, int64_t batch, int64_t rows, int64_t columns, Layout layout,
         bool shared = false)
      : sizes{batch, rows, columns}, rank(dims), dtype(type) {
    const bool by_rows = layout == Layout::rows || layout == Layout::padded_rows ||
                         layout == Layout::scattered;
    const int64_t inner = by_rows ? columns : rows, outer = by_rows ? rows : columns;
    const int64_t gap = layout == Layout::padded_rows || layout == Layout::padded_columns ? 8 : 0,
                  step = layout == Layout::scattered ? 2 : 1;
    const int64_t pitch = (inner + gap) * step;
    strides[1] = by_rows ? pitch : step;
    strides[2] = by_rows ? step : pitch;
    strides[0] = shared ? 0 : pitch * outer;
    values.resize(static_cast<size_t>(pitch * outer * (shared ? 1 : batch)));
  }
  double& at(int64_t b, int64_t r, int64_t c) {
    return values[static_cast<size_t>(b * strides[0] + r * strides[1] + c * strides[2])];
  }
  husk_op_arg arg(int32_t access) const {
    return tensor_arg(access, dtype, rank, memory, sizes + 3 - rank, strides + 3 - rank);
  }
};

enum class Bias { none, row, expanded_row, whole };

struct MatmulCase {
  int32_t dtype = HUSK_F32, rank = 2;
  int64_t batch = 1, m = 5, n = 7, k = 3;
  Layout a = Layout::rows, b = Layout::rows, d = Layout::rows;
  Bias bias = Bias::none;
  double alpha = 1, beta = 1;
  bool shared_a = false;
  int64_t fast = 0;
};

std::ostream& operator<<(std::ostream& out, const MatmulCase& c) {
  return out << "dtype " << c.dtype << " rank " << c.rank << " batch " << c.batch << " m " << c.m
             << " n " << c.n << " k " << c.k << " layouts " << int(c.a) << int(c.b) << int(c.d)
             << " bias " << int(c.bias) << " alpha " << c.alpha << " beta " << c.beta;
}

}  // namespace

class CudaMatmul : public WithOp<Cuda> {
 protected:
  static constexpr uint64_t kWorkspace = 1 << 20;

  void SetUp() override {
    Cuda::SetUp();
    if (IsSkipped() || HasFailure()) return;
    find("husk::matmul");
    if (IsSkipped() || HasFailure()) return;
    workspace = device_memory(kWorkspace);
  }

  void place(Tensor* tensor) {
    tensor->memory = device_array(encoded(tensor->values, tensor->dtype));
  }
  void fill(Tensor* tensor) {
    for (double& value : tensor->values)
      value = static_cast<double>(static_cast<int>(random() % 9) - 4) / 4;
    place(tensor);
  }
  std::vector<husk_op_arg> arguments(const MatmulCase& c, const Tensor& a, const Tensor& b,
                                     const Tensor* bias, const Tensor& d) {
    return {a.arg(HUSK_ACCESS_READ),
            b.arg(HUSK_ACCESS_READ),
            bias ? bias->arg(HUSK_ACCESS_READ) : husk_op_arg{},
            number(c.alpha),
            number(c.beta),
            integer(c.fast),
            d.arg(HUSK_ACCESS_WRITE),
            workspace_arg()};
  }

  // Calls the op and returns its status. After HUSK_OK it compares the result, and the gaps of its
  // storage, which the op must not write.
  husk_status multiply(const MatmulCase& c) {
    Tensor a(c.dtype, c.rank, c.batch, c.m, c.k, c.a, c.shared_a),
        b(c.dtype, c.rank, c.batch, c.k, c.n, c.b);
    Tensor d(c.dtype, c.rank, c.batch, c.m, c.n, c.d);
    Tensor whole(c.dtype, c.rank, c.batch, c.m, c.n, c.d), row(c.dtype, 1, 1, 1, c.n, Layout::rows);
    if (c.bias == Bias::expanded_row) {
      row.rank = 2;
      row.sizes[1] = c.m;
      row.strides[1] = 0;
    }
    Tensor* const bias = c.bias == Bias::none ? nullptr : c.bias == Bias::whole ? &whole : &row;
    fill(&a);
    fill(&b);
    if (bias) fill(bias);
    for (double& value : d.values) value = 77;
    place(&d);
    const std::vector<husk_op_arg> args = arguments(c, a, b, bias, d);
    if (const husk_status status = enqueue(op.call, args)) return status;
    const std::vector<char> bytes = read(static_cast<const char*>(d.memory),
                                         d.values.size() * width(c.dtype));
    for (int64_t i = 0; i < c.batch; ++i)
      for (int64_t r = 0; r < c.m; ++r)
        for (int64_t s = 0; s < c.n; ++s) {
          double sum = 0;
          for (int64_t t = 0; t < c.k; ++t) sum += a.at(i, r, t) * b.at(i, t, s);
          sum *= c.alpha;
          if (bias)
            sum += c.beta *
                   (c.bias == Bias::whole ? whole.at(i, r, s) : row.values[static_cast<size_t>(s)]);
          d.at(i, r, s) = sum;
        }
    for (size_t i = 0; i < d.values.size(); ++i) {
      const double value = decoded(bytes.data() + i * width(c.dtype), c.dtype), right = d.values[i];
      if (std::abs(value - right) <= tolerance(c.dtype) * std::max(1.0, std::abs(right))) continue;
      ADD_FAILURE() << c << ": element " << i << " is " << value << ", not " << right;
      break;
    }
    free_memory();
    workspace = device_memory(kWorkspace);
    return HUSK_OK;
  }
  void expect(const MatmulCase& c) { EXPECT_EQ(multiply(c), HUSK_OK) << c << ": " << error.text; }
  void expect_refused(const MatmulCase& c, const char* words) {
    EXPECT_EQ(multiply(c), HUSK_UNSUPPORTED) << c;
    EXPECT_TRUE(error_says(words)) << error.text;
  }

  std::mt19937 random{7};
};

constexpr int32_t kDtypes[] = {HUSK_F16, HUSK_BF16, HUSK_F32, HUSK_F64};
constexpr int64_t kShapes[][3] = {{1, 1, 1}, {1, 8, 16},   {8, 1, 16},
                                  {5, 7, 3}, {16, 24, 40}, {33, 65, 17}};

TEST_F(CudaMatmul, EveryDtypeShapeAndLayout) {
  for (const int32_t dtype : kDtypes)
    for (const auto& shape : kShapes)
      for (const Layout a : kLayouts)
        for (const Layout b : kLayouts)
          for (const Layout d : {Layout::rows, Layout::columns, Layout::padded_rows})
            expect({dtype, 2, 1, shape[0], shape[1], shape[2], a, b, d});
}

TEST_F(CudaMatmul, ABiasOfEveryKind) {
  for (const int32_t dtype : kDtypes)
    for (const auto& shape : kShapes)
      for (const Layout d : {Layout::rows, Layout::padded_rows})
        for (const Bias bias : {Bias::row, Bias::expanded_row, Bias::whole})
          expect({dtype, 2, 1, shape[0], shape[1], shape[2], Layout::rows, Layout::columns, d, bias,
                  0.5});
  expect(
      {HUSK_F16, 2, 1, 16, 24, 40, Layout::rows, Layout::rows, Layout::columns, Bias::whole, 1, 2});
  expect({HUSK_F32, 2, 1, 16, 24, 40, Layout::rows, Layout::rows, Layout::rows, Bias::whole, 0.25,
          -2});
  expect(
      {HUSK_F64, 2, 1, 16, 24, 40, Layout::rows, Layout::rows, Layout::rows, Bias::whole, -1, 0});
}

TEST_F(CudaMatmul, Batches) {
  for (const int32_t dtype : kDtypes)
    for (const int64_t batch : {1, 2, 7})
      for (const bool shared : {false, true})
        for (const Layout a : kLayouts)
          for (const Bias bias : {Bias::none, Bias::whole})
            expect({dtype, 3, batch, 9, 16, 8, a, Layout::columns, Layout::rows, bias, 1, 0.5,
                    shared});
}

TEST_F(CudaMatmul, F32InTf32) {
  MatmulCase c{HUSK_F32, 2, 1, 64, 64, 64};
  c.fast = 1;
  expect(c);
}

TEST_F(CudaMatmul, NothingToMultiply) {
  expect({HUSK_F16, 2, 1, 0, 7, 3});
  expect({HUSK_F16, 2, 1, 5, 0, 3});
  expect({HUSK_F16, 3, 0, 5, 7, 3});
  expect({HUSK_F16, 2, 1, 5, 7, 0});
  expect({HUSK_F64, 3, 2, 5, 7, 0});
  expect_refused({HUSK_F32, 2, 1, 5, 7, 0, Layout::rows, Layout::rows, Layout::rows, Bias::row},
                 "over nothing bias gemm='triton'");
}

TEST_F(CudaMatmul, RefusesUnsupportedArguments) {
  expect_refused({HUSK_F32, 2, 1, 5, 7, 3, Layout::scattered},
                 "husk::matmul f32 [5, 3] [3, 7] a factor gemm='triton'");
  expect_refused({HUSK_F16, 2, 1, 5, 7, 3, Layout::rows, Layout::rows, Layout::scattered},
                 "f16 a result gemm='triton'");
  expect_refused({HUSK_F32, 2, 1, 5, 7, 3, Layout::rows, Layout::rows, Layout::columns, Bias::row},
                 "and a bias no row");
  expect_refused(
      {HUSK_F32, 2, 1, 5, 7, 3, Layout::rows, Layout::rows, Layout::rows, Bias::row, 1, 0.5},
      "and a bias is scaled");
  Tensor a(HUSK_F32, 2, 1, 5, 3, Layout::rows), b(HUSK_F32, 2, 1, 4, 7, Layout::rows),
      d(HUSK_F32, 2, 1, 5, 7, Layout::rows);
  EXPECT_EQ(enqueue(op.call, arguments({}, a, b, nullptr, d)), HUSK_INVALID_INPUT);
  EXPECT_TRUE(error_says("[5, 3] [4, 7] sizes")) << error.text;
  Tensor ints(HUSK_I32, 2, 1, 5, 3, Layout::rows);
  EXPECT_EQ(enqueue(op.call, arguments({}, ints, b, nullptr, d)), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(enqueue(op.call, {}), HUSK_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("husk::matmul takes again")) << error.text;
}

// Arguments that a file may choose, for which cuBLASLt would read memory that no tensor owns.
TEST_F(CudaMatmul, RefusesArgumentsOutsideOfTheTensors) {
  Tensor a(HUSK_F32, 2, 1, 5, 3, Layout::rows), b(HUSK_F32, 2, 1, 3, 7, Layout::rows),
      d(HUSK_F32, 2, 1, 5, 7, Layout::rows), row(HUSK_F32, 2, 1, 1, 7, Layout::rows);
  for (Tensor* tensor : {&a, &b, &d, &row}) fill(tensor);
  row.strides[1] = 0;
  ASSERT_EQ(enqueue(op.call, arguments({}, a, b, &row, d)), HUSK_OK) << error.text;
  for (const int64_t rows : {0, 2, 6}) {
    row.sizes[1] = rows;
    EXPECT_EQ(enqueue(op.call, arguments({}, a, b, &row, d)), HUSK_UNSUPPORTED) << rows;
    EXPECT_TRUE(error_says("a bias of another size")) << error.text;
  }
  row.sizes[1] = 5;
  ASSERT_EQ(enqueue(op.call, arguments({}, a, b, &row, d)), HUSK_OK) << error.text;

  Tensor far = b;
  far.strides[1] = int64_t{1} << 32;
  EXPECT_EQ(enqueue(op.call, arguments({}, a, far, nullptr, d)), HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("a stride is above 2147483647")) << error.text;

  for (Tensor* tensor : {&a, &b, &d, &row}) {
    void* const memory_before = tensor->memory;
    tensor->memory = static_cast<char*>(memory_before) + 2;
    EXPECT_EQ(enqueue(op.call, arguments({}, a, b, &row, d)), HUSK_INVALID_ARGUMENT);
    EXPECT_TRUE(error_says("is not aligned to its elements")) << error.text;
    tensor->memory = memory_before;
  }
}

TEST_F(CudaMatmul, UsesTheAlignedPartOfAWorkspace) {
  void* const whole = workspace;
  workspace = static_cast<char*>(whole) + 1;
  workspace_size = kWorkspace - 1;
  const MatmulCase c{HUSK_F16, 2, 1, 16, 24, 40};
  Tensor a(c.dtype, 2, 1, c.m, c.k, c.a), b(c.dtype, 2, 1, c.k, c.n, c.b),
      d(c.dtype, 2, 1, c.m, c.n, c.d);
  for (Tensor* tensor : {&a, &b, &d}) fill(tensor);
  for (const int64_t size : {workspace_size, int64_t{255}, int64_t{1}, int64_t{0}}) {
    workspace_size = size;
    EXPECT_EQ(enqueue(op.call, arguments(c, a, b, nullptr, d)), HUSK_OK) << error.text;
  }
  workspace = whole;
}

// The library gets the number of bytes that the workspace has. Elements that lie apart, or at one
// place, would make that number larger than the memory.
TEST_F(CudaMatmul, RefusesAWorkspaceThatIsNotDense) {
  const MatmulCase c{HUSK_F16, 2, 1, 16, 24, 40};
  Tensor a(c.dtype, 2, 1, c.m, c.k, c.a), b(c.dtype, 2, 1, c.k, c.n, c.b),
      d(c.dtype, 2, 1, c.m, c.n, c.d);
  for (Tensor* tensor : {&a, &b, &d}) fill(tensor);
  for (const int64_t stride : {0, 2, -1}) {
    std::vector<husk_op_arg> args = arguments(c, a, b, nullptr, d);
    args.back().strides = &stride;
    for (husk_op_fn function : {op.call, op.prepare}) {
      EXPECT_EQ(enqueue(function, args), HUSK_INVALID_ARGUMENT) << stride;
      EXPECT_TRUE(error_says("a dense workspace of u8")) << error.text;
    }
  }
  std::vector<husk_op_arg> args = arguments(c, a, b, nullptr, d);
  args.back().dtype = HUSK_F32;
  EXPECT_EQ(enqueue(op.call, args), HUSK_INVALID_ARGUMENT);
  args.back() = {};
  EXPECT_EQ(enqueue(op.call, args), HUSK_INVALID_ARGUMENT);
}

TEST_F(CudaMatmul, FindsNoOtherOps) {
  husk_op other = HUSK_OP_INIT;
  EXPECT_EQ(port->find_op(device, "aten::mm.out", &other, &error), HUSK_NOT_FOUND);
}

TEST_F(CudaMatmul, APlanIsChosenOnceAndRunAllocatesNothing) {
  NEEDS_FAKE;
  const MatmulCase c{HUSK_F16, 2, 1, 16, 24, 40};
  Tensor a(c.dtype, 2, 1, c.m, c.k, c.a), b(c.dtype, 2, 1, c.k, c.n, c.b),
      d(c.dtype, 2, 1, c.m, c.n, c.d);
  // The tensors have no address yet.
  ASSERT_EQ(enqueue(op.prepare, arguments(c, a, b, nullptr, d)), HUSK_OK) << error.text;
  EXPECT_EQ(fake().calls("cublasLtMatmulAlgoGetHeuristic"), 1u);
  EXPECT_EQ(fake().calls("cublasLtMatmul"), 0u);
  fill(&a);
  fill(&b);
  place(&d);
  const int host_live = memory.live;
  const uint64_t waits = fake().calls("cuStreamSynchronize");
  memory.fail_at = 1;
  for (int run = 0; run < 5; ++run)
    ASSERT_EQ(enqueue(op.call, arguments(c, a, b, nullptr, d)), HUSK_OK) << error.text;
  EXPECT_EQ(fake().calls("cublasLtMatmulAlgoGetHeuristic"), 1u);
  EXPECT_EQ(fake().calls("cublasLtMatmul"), 5u);
  EXPECT_EQ(fake().calls("cuStreamSynchronize"), waits);
  expect({HUSK_F16, 2, 1, 17, 24, 40});  // a shape that was not prepared
  EXPECT_EQ(fake().calls("cublasLtMatmulAlgoGetHeuristic"), 2u);
  EXPECT_EQ(memory.fail_at, 1);
  EXPECT_EQ(memory.live, host_live);
  memory.fail_at = 0;
}

TEST_F(CudaMatmul, MoreShapesThanTheCacheHolds) {
  NEEDS_FAKE;
  for (int64_t m = 1; m <= 3000; ++m) {
    Tensor a(HUSK_F16, 2, 1, m, 2, Layout::rows), b(HUSK_F16, 2, 1, 2, 2, Layout::rows),
        d(HUSK_F16, 2, 1, m, 2, Layout::rows);
    ASSERT_EQ(enqueue(op.prepare, arguments({}, a, b, nullptr, d)), HUSK_OK) << error.text;
  }
  EXPECT_EQ(fake().calls("cublasLtMatmulAlgoGetHeuristic"), 3000u);
  Tensor a(HUSK_F16, 2, 1, 3000, 2, Layout::rows), b(HUSK_F16, 2, 1, 2, 2, Layout::rows),
      d(HUSK_F16, 2, 1, 3000, 2, Layout::rows);
  ASSERT_EQ(enqueue(op.prepare, arguments({}, a, b, nullptr, d)), HUSK_OK) << error.text;
  EXPECT_EQ(fake().calls("cublasLtMatmulAlgoGetHeuristic"), 3000u);  // the last one is kept
  expect({HUSK_F16, 2, 1, 5, 7, 3});
}

TEST_F(CudaMatmul, ReportsErrorsOfTheLibrary) {
  NEEDS_FAKE;
  const MatmulCase c{HUSK_BF16, 2, 1, 16, 24, 40};
  for (const int32_t code : {-1, 15}) {  // -1: success without a result
    fake().fail_call("cublasLtMatmulAlgoGetHeuristic", 1, code);
    expect_refused(c,
                   "husk::matmul bf16 [16, 40] [40, 24] cublasLtMatmulAlgoGetHeuristic "
                   "CUBLAS_STATUS_NOT_SUPPORTED gemm='triton'");
  }
  int64_t rows = 100;
  for (const char* call : {"cublasLtMatmul", "cublasLtMatmulDescInit", "cublasLtMatrixLayoutInit",
                           "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmulPreferenceInit"}) {
    SCOPED_TRACE(call);
    MatmulCase other = c;
    other.m = ++rows;  // a product without a kept plan
    fake().fail_call(call, 1, 13);
    EXPECT_EQ(multiply(other), HUSK_DEVICE);
    EXPECT_EQ(error.driver_code, 13);
    EXPECT_TRUE(error_says("husk::matmul CUBLAS_STATUS_EXECUTION_FAILED")) << error.text;
    expect(other);
  }
}

TEST_F(CudaMatmul, SeveralThreadsMultiplyAtOnce) {
  NEEDS_FAKE;
  struct Own {
    Tensor a{HUSK_F32, 2, 1, 4, 4, Layout::rows}, b{HUSK_F32, 2, 1, 4, 4, Layout::rows},
        d{HUSK_F32, 2, 1, 4, 4, Layout::rows};
    void* stream = nullptr;
    husk_status status = HUSK_OK;
  };
  std::vector<Own> all(4);
  for (Own& own : all) {
    fill(&own.a);
    fill(&own.b);
    place(&own.d);
    ASSERT_EQ(port->stream_create(device, &own.stream, &error), HUSK_OK);
  }
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
  std::vector<std::thread> threads;
  for (Own& own : all)
    threads.emplace_back([&, this] {
      husk_error own_error{};
      const husk_op_context context = context_of(op.user, device, own.stream);
      for (int run = 0; run < 50 && own.status == HUSK_OK; ++run) {
        const std::vector<husk_op_arg> args = arguments({}, own.a, own.b, nullptr, own.d);
        own.status = op.call(&context, args.data(), static_cast<uint32_t>(args.size()), &own_error);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (Own& own : all) {
    EXPECT_EQ(own.status, HUSK_OK);
    ASSERT_EQ(port->stream_wait(device, own.stream, &error), HUSK_OK);
    port->stream_destroy(device, own.stream);
  }
  EXPECT_EQ(fake().calls("cublasLtMatmul"), 200u);
}

// A device on which find_op was not called yet.
class CudaOpLibrary : public WithOp<OverFake> {};

TEST_F(CudaOpLibrary, IsOpenedByTheFirstFindOp) {
  EXPECT_EQ(fake().calls("cublasLtCreate"), 0u);
  for (int again = 0; again < 3; ++again)
    ASSERT_EQ(port->find_op(device, "husk::matmul", &op, &error), HUSK_OK) << error.text;
  EXPECT_EQ(fake().calls("cublasLtCreate"), 1u);
}

TEST_F(CudaOpLibrary, MayBeNamed) {
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  options.cublas = "libcublasLt.so.13";
  open_with(options);
  EXPECT_EQ(port->find_op(device, "husk::matmul", &op, &error), HUSK_OK) << error.text;
}

TEST_F(CudaOpLibrary, AMissingLibraryIsAnErrorWithARemedy) {
  expect_errors_of_opening("husk::matmul", &husk_cuda_options::cublas, "/no/such/libcublasLt.so.13",
                           "cuBLASLt gemm='triton'", "cublasLtCreate");
}

TEST_F(CudaOpLibrary, AFailedStartIsAnErrorAndIsRetried) {
  const int host_live = memory.live;
  fake().fail_call("cublasLtCreate", 1, 1);
  EXPECT_EQ(port->find_op(device, "husk::matmul", &op, &error), HUSK_DEVICE);
  EXPECT_TRUE(error_says("cublasLtCreate CUBLAS_STATUS_NOT_INITIALIZED 13.0")) << error.text;
  EXPECT_EQ(memory.live, host_live);
  fake().fail_call("cuCtxPushCurrent", 1, 999);
  EXPECT_EQ(port->find_op(device, "husk::matmul", &op, &error), HUSK_DEVICE);
  memory.fail_at = 1;
  EXPECT_EQ(port->find_op(device, "husk::matmul", &op, &error), HUSK_OUT_OF_MEMORY);
  EXPECT_EQ(port->find_op(device, "husk::matmul", &op, &error), HUSK_OK) << error.text;
}

}  // namespace husk::port_test
