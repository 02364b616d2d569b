// "husk::matmul" against a plain product: over the fake cuBLASLt, or the machine's own where there is one.
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "port_case.h"

namespace husk::port_test {

namespace {

size_t width(int32_t dtype) { return dtype == HUSK_F64 ? 8 : dtype == HUSK_F32 ? 4 : 2; }

// The numbers here are zero or of the normal range, and a half or bfloat16 holds them.
std::vector<char> encoded(const std::vector<double>& values, int32_t dtype) {
  std::vector<char> bytes(values.size() * width(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    char* at = bytes.data() + i * width(dtype);
    const float single = static_cast<float>(values[i]);
    uint32_t word;
    memcpy(&word, &single, 4);
    const uint16_t brain = static_cast<uint16_t>(word >> 16);
    const uint16_t half = static_cast<uint16_t>((word >> 16 & 0x8000) | (single == 0 ? 0 : (word >> 13 & 0x3FFFF) - (112 << 10)));
    if (dtype == HUSK_F64) memcpy(at, &values[i], 8);
    if (dtype == HUSK_F32) memcpy(at, &single, 4);
    if (dtype == HUSK_BF16) memcpy(at, &brain, 2);
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

enum class Lie { rows, columns, padded_rows, padded_columns, scattered };
constexpr Lie kLies[] = {Lie::rows, Lie::columns, Lie::padded_rows, Lie::padded_columns};

// A tensor of the test: batch, rows, columns; where each element lies in `memory`.
struct Tensor {
  int64_t sizes[3], strides[3];
  int32_t rank, dtype;
  void* memory = nullptr;
  std::vector<double> values;   // of the storage

  Tensor(int32_t type, int32_t dims, int64_t batch, int64_t rows, int64_t columns, Lie lie, bool shared = false)
      : sizes{batch, rows, columns}, rank(dims), dtype(type) {
    const bool by_rows = lie == Lie::rows || lie == Lie::padded_rows || lie == Lie::scattered;
    const int64_t inner = by_rows ? columns : rows, outer = by_rows ? rows : columns;
    const int64_t gap = lie == Lie::padded_rows || lie == Lie::padded_columns ? 8 : 0, step = lie == Lie::scattered ? 2 : 1;
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
    husk_op_arg made{};
    made.kind = HUSK_ARG_TENSOR;
    made.access = access;
    made.dtype = dtype;
    made.rank = rank;
    made.data = memory;
    made.sizes = sizes + 3 - rank;
    made.strides = strides + 3 - rank;
    return made;
  }
};

enum class Bias { none, row, expanded_row, whole };

struct Case {
  int32_t dtype = HUSK_F32, rank = 2;
  int64_t batch = 1, m = 5, n = 7, k = 3;
  Lie a = Lie::rows, b = Lie::rows, d = Lie::rows;
  Bias bias = Bias::none;
  double alpha = 1, beta = 1;
  bool shared_a = false;
  int64_t fast = 0;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "dtype " << c.dtype << " rank " << c.rank << " batch " << c.batch << " m " << c.m << " n " << c.n << " k " << c.k
             << " lies " << int(c.a) << int(c.b) << int(c.d) << " bias " << int(c.bias) << " alpha " << c.alpha << " beta " << c.beta;
}

}  // namespace

class CudaMatmul : public Cuda {
 protected:
  static constexpr uint64_t kWorkspace = 1 << 20;

  void SetUp() override {
    Cuda::SetUp();
    if (IsSkipped() || HasFailure()) return;
    const husk_status status = port->find_op(device, "husk::matmul", &op, &error);
    if (status == HUSK_UNSUPPORTED && !fake()) GTEST_SKIP() << error.text;
    ASSERT_EQ(status, HUSK_OK) << error.text;
    workspace = device_memory(kWorkspace);
  }

  void place(Tensor* tensor) { tensor->memory = device_array(encoded(tensor->values, tensor->dtype)); }
  void fill(Tensor* tensor) {
    for (double& value : tensor->values) value = static_cast<double>(static_cast<int>(random() % 9) - 4) / 4;
    place(tensor);
  }
  husk_status enqueue(husk_op_fn function, std::vector<husk_op_arg> args) {
    const husk_op_context context = {op.user, device, stream, nullptr};
    return function(&context, args.data(), static_cast<uint32_t>(args.size()), &error);
  }
  static husk_op_arg number(double value) {
    husk_op_arg made{};
    made.kind = HUSK_ARG_FLOAT;
    made.f = value;
    return made;
  }
  static husk_op_arg integer(int64_t value) {
    husk_op_arg made{};
    made.kind = HUSK_ARG_INT;
    made.i = value;
    return made;
  }
  std::vector<husk_op_arg> arguments(const Case& c, const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& d) {
    husk_op_arg space{};
    space.kind = HUSK_ARG_TENSOR;
    space.access = HUSK_ACCESS_WRITE;
    space.dtype = HUSK_U8;
    space.rank = 1;
    space.data = workspace;
    space.sizes = &workspace_size;
    space.strides = &one;
    return {a.arg(HUSK_ACCESS_READ), b.arg(HUSK_ACCESS_READ), bias ? bias->arg(HUSK_ACCESS_READ) : husk_op_arg{},
            number(c.alpha), number(c.beta), integer(c.fast), d.arg(HUSK_ACCESS_WRITE), space};
  }

  // The op's status; where it is HUSK_OK the result was looked at, and that nothing else was written.
  husk_status multiply(const Case& c) {
    Tensor a(c.dtype, c.rank, c.batch, c.m, c.k, c.a, c.shared_a), b(c.dtype, c.rank, c.batch, c.k, c.n, c.b);
    Tensor d(c.dtype, c.rank, c.batch, c.m, c.n, c.d);
    Tensor whole(c.dtype, c.rank, c.batch, c.m, c.n, c.d), row(c.dtype, 1, 1, 1, c.n, Lie::rows);
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
    const std::vector<char> got = read(static_cast<const char*>(d.memory), d.values.size() * width(c.dtype));
    for (int64_t i = 0; i < c.batch; ++i)
      for (int64_t r = 0; r < c.m; ++r)
        for (int64_t s = 0; s < c.n; ++s) {
          double sum = 0;
          for (int64_t t = 0; t < c.k; ++t) sum += a.at(i, r, t) * b.at(i, t, s);
          sum *= c.alpha;
          if (bias) sum += c.beta * (c.bias == Bias::whole ? whole.at(i, r, s) : row.values[static_cast<size_t>(s)]);
          d.at(i, r, s) = sum;
        }
    for (size_t i = 0; i < d.values.size(); ++i) {
      const double value = decoded(got.data() + i * width(c.dtype), c.dtype), right = d.values[i];
      if (std::abs(value - right) <= tolerance(c.dtype) * std::max(1.0, std::abs(right))) continue;
      ADD_FAILURE() << c << ": element " << i << " is " << value << ", not " << right;
      break;
    }
    forget_memory();
    workspace = device_memory(kWorkspace);
    return HUSK_OK;
  }
  void expect(const Case& c) { EXPECT_EQ(multiply(c), HUSK_OK) << c << ": " << error.text; }
  void expect_refused(const Case& c, const char* words) {
    EXPECT_EQ(multiply(c), HUSK_UNSUPPORTED) << c;
    EXPECT_TRUE(error_says(words)) << error.text;
  }

  husk_op op{};
  void* workspace = nullptr;
  int64_t workspace_size = kWorkspace, one = 1;
  std::mt19937 random{7};
};

constexpr int32_t kDtypes[] = {HUSK_F16, HUSK_BF16, HUSK_F32, HUSK_F64};
constexpr int64_t kShapes[][3] = {{1, 1, 1}, {1, 8, 16}, {8, 1, 16}, {5, 7, 3}, {16, 24, 40}, {33, 65, 17}};

TEST_F(CudaMatmul, every_dtype_shape_and_layout) {
  for (const int32_t dtype : kDtypes)
    for (const auto& shape : kShapes)
      for (const Lie a : kLies)
        for (const Lie b : kLies)
          for (const Lie d : {Lie::rows, Lie::columns, Lie::padded_rows})
            expect({dtype, 2, 1, shape[0], shape[1], shape[2], a, b, d});
}

TEST_F(CudaMatmul, a_bias_of_every_kind) {
  for (const int32_t dtype : kDtypes)
    for (const auto& shape : kShapes)
      for (const Lie d : {Lie::rows, Lie::padded_rows})
        for (const Bias bias : {Bias::row, Bias::expanded_row, Bias::whole})
          expect({dtype, 2, 1, shape[0], shape[1], shape[2], Lie::rows, Lie::columns, d, bias, 0.5});
  expect({HUSK_F16, 2, 1, 16, 24, 40, Lie::rows, Lie::rows, Lie::columns, Bias::whole, 1, 2});
  expect({HUSK_F32, 2, 1, 16, 24, 40, Lie::rows, Lie::rows, Lie::rows, Bias::whole, 0.25, -2});
  expect({HUSK_F64, 2, 1, 16, 24, 40, Lie::rows, Lie::rows, Lie::rows, Bias::whole, -1, 0});
}

TEST_F(CudaMatmul, batches) {
  for (const int32_t dtype : kDtypes)
    for (const int64_t batch : {1, 2, 7})
      for (const bool shared : {false, true})
        for (const Lie a : kLies)
          for (const Bias bias : {Bias::none, Bias::whole})
            expect({dtype, 3, batch, 9, 16, 8, a, Lie::columns, Lie::rows, bias, 1, 0.5, shared});
}

TEST_F(CudaMatmul, f32_in_tf32) {
  Case c{HUSK_F32, 2, 1, 64, 64, 64};
  c.fast = 1;
  expect(c);
}

TEST_F(CudaMatmul, nothing_to_multiply) {
  expect({HUSK_F16, 2, 1, 0, 7, 3});
  expect({HUSK_F16, 2, 1, 5, 0, 3});
  expect({HUSK_F16, 3, 0, 5, 7, 3});
  expect({HUSK_F16, 2, 1, 5, 7, 0});
  expect({HUSK_F64, 3, 2, 5, 7, 0});
  expect_refused({HUSK_F32, 2, 1, 5, 7, 0, Lie::rows, Lie::rows, Lie::rows, Bias::row}, "over nothing bias libraries=True");
}

TEST_F(CudaMatmul, what_it_does_not_take_is_refused) {
  expect_refused({HUSK_F32, 2, 1, 5, 7, 3, Lie::scattered}, "husk::matmul f32 [5, 3] [3, 7] a factor libraries=True");
  expect_refused({HUSK_F16, 2, 1, 5, 7, 3, Lie::rows, Lie::rows, Lie::scattered}, "f16 a result libraries=True");
  expect_refused({HUSK_F32, 2, 1, 5, 7, 3, Lie::rows, Lie::rows, Lie::columns, Bias::row}, "and a bias no row");
  expect_refused({HUSK_F32, 2, 1, 5, 7, 3, Lie::rows, Lie::rows, Lie::rows, Bias::row, 1, 0.5}, "and a bias is scaled");
  Tensor a(HUSK_F32, 2, 1, 5, 3, Lie::rows), b(HUSK_F32, 2, 1, 4, 7, Lie::rows), d(HUSK_F32, 2, 1, 5, 7, Lie::rows);
  EXPECT_EQ(enqueue(op.call, arguments({}, a, b, nullptr, d)), HUSK_INVALID_INPUT);
  EXPECT_TRUE(error_says("[5, 3] [4, 7] sizes")) << error.text;
  Tensor ints(HUSK_I32, 2, 1, 5, 3, Lie::rows);
  EXPECT_EQ(enqueue(op.call, arguments({}, ints, b, nullptr, d)), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(enqueue(op.call, {}), HUSK_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("husk::matmul takes again")) << error.text;
}

TEST_F(CudaMatmul, other_names_are_not_found) {
  husk_op other{};
  EXPECT_EQ(port->find_op(device, "aten::mm.out", &other, &error), HUSK_NOT_FOUND);
}

TEST_F(CudaMatmul, a_plan_is_chosen_once_and_run_allocates_nothing) {
  NEEDS_FAKE;
  const Case c{HUSK_F16, 2, 1, 16, 24, 40};
  Tensor a(c.dtype, 2, 1, c.m, c.k, c.a), b(c.dtype, 2, 1, c.k, c.n, c.b), d(c.dtype, 2, 1, c.m, c.n, c.d);
  ASSERT_EQ(enqueue(op.prepare, arguments(c, a, b, nullptr, d)), HUSK_OK) << error.text;   // addresses that are not known yet
  EXPECT_EQ(fake().calls("cublasLtMatmulAlgoGetHeuristic"), 1u);
  EXPECT_EQ(fake().calls("cublasLtMatmul"), 0u);
  fill(&a);
  fill(&b);
  place(&d);
  const int host_live = memory.live;
  const uint64_t waits = fake().calls("cuStreamSynchronize");
  memory.fail_at = 1;
  for (int run = 0; run < 5; ++run) ASSERT_EQ(enqueue(op.call, arguments(c, a, b, nullptr, d)), HUSK_OK) << error.text;
  EXPECT_EQ(fake().calls("cublasLtMatmulAlgoGetHeuristic"), 1u);
  EXPECT_EQ(fake().calls("cublasLtMatmul"), 5u);
  EXPECT_EQ(fake().calls("cuStreamSynchronize"), waits);
  expect({HUSK_F16, 2, 1, 17, 24, 40});   // a shape that was not prepared
  EXPECT_EQ(fake().calls("cublasLtMatmulAlgoGetHeuristic"), 2u);
  EXPECT_EQ(memory.fail_at, 1);
  EXPECT_EQ(memory.live, host_live);
  memory.fail_at = 0;
}

TEST_F(CudaMatmul, more_shapes_than_are_kept) {
  NEEDS_FAKE;
  for (int64_t m = 1; m <= 3000; ++m) {
    Tensor a(HUSK_F16, 2, 1, m, 2, Lie::rows), b(HUSK_F16, 2, 1, 2, 2, Lie::rows), d(HUSK_F16, 2, 1, m, 2, Lie::rows);
    ASSERT_EQ(enqueue(op.prepare, arguments({}, a, b, nullptr, d)), HUSK_OK) << error.text;
  }
  EXPECT_EQ(fake().calls("cublasLtMatmulAlgoGetHeuristic"), 3000u);
  Tensor a(HUSK_F16, 2, 1, 3000, 2, Lie::rows), b(HUSK_F16, 2, 1, 2, 2, Lie::rows), d(HUSK_F16, 2, 1, 3000, 2, Lie::rows);
  ASSERT_EQ(enqueue(op.prepare, arguments({}, a, b, nullptr, d)), HUSK_OK) << error.text;
  EXPECT_EQ(fake().calls("cublasLtMatmulAlgoGetHeuristic"), 3000u);   // the last is there
  expect({HUSK_F16, 2, 1, 5, 7, 3});
}

TEST_F(CudaMatmul, tells_what_the_library_says) {
  NEEDS_FAKE;
  const Case c{HUSK_BF16, 2, 1, 16, 24, 40};
  for (const int32_t code : {-1, 15}) {   // it finds nothing, or says so
    fake().fail_call("cublasLtMatmulAlgoGetHeuristic", 1, code);
    expect_refused(c, "husk::matmul bf16 [16, 40] [40, 24] cublasLtMatmulAlgoGetHeuristic CUBLAS_STATUS_NOT_SUPPORTED libraries=True");
  }
  int64_t rows = 100;
  for (const char* call : {"cublasLtMatmul", "cublasLtMatmulDescInit", "cublasLtMatrixLayoutInit", "cublasLtMatmulAlgoGetHeuristic",
                           "cublasLtMatmulPreferenceInit"}) {
    SCOPED_TRACE(call);
    Case other = c;
    other.m = ++rows;   // one that no plan is kept of
    fake().fail_call(call, 1, 13);
    EXPECT_EQ(multiply(other), HUSK_DEVICE);
    EXPECT_EQ(error.driver_code, 13);
    EXPECT_TRUE(error_says("husk::matmul CUBLAS_STATUS_EXECUTION_FAILED")) << error.text;
    expect(other);
  }
}

TEST_F(CudaMatmul, several_threads_multiply_at_once) {
  NEEDS_FAKE;
  struct Own {
    Tensor a{HUSK_F32, 2, 1, 4, 4, Lie::rows}, b{HUSK_F32, 2, 1, 4, 4, Lie::rows}, d{HUSK_F32, 2, 1, 4, 4, Lie::rows};
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
      husk_error its{};
      const husk_op_context context = {op.user, device, own.stream, nullptr};
      for (int run = 0; run < 50 && own.status == HUSK_OK; ++run) {
        const std::vector<husk_op_arg> args = arguments({}, own.a, own.b, nullptr, own.d);
        own.status = op.call(&context, args.data(), static_cast<uint32_t>(args.size()), &its);
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

// A device that was not asked for an op yet.
class CudaLibrary : public OverFake {
 protected:
  husk_op op{};
};

TEST_F(CudaLibrary, is_opened_where_an_op_is_asked_for) {
  EXPECT_EQ(fake().calls("cublasLtCreate"), 0u);
  for (int again = 0; again < 3; ++again) ASSERT_EQ(port->find_op(device, "husk::matmul", &op, &error), HUSK_OK) << error.text;
  EXPECT_EQ(fake().calls("cublasLtCreate"), 1u);
}

TEST_F(CudaLibrary, may_be_named) {
  husk_cuda_options options{};
  options.cublas = "libcublasLt.so.13";
  open_with(options);
  EXPECT_EQ(port->find_op(device, "husk::matmul", &op, &error), HUSK_OK) << error.text;
}

TEST_F(CudaLibrary, that_is_not_there_is_told_with_the_remedy) {
  husk_cuda_options options{};
  options.cublas = "/no/such/libcublasLt.so.13";
  open_with(options);
  const int host_live = memory.live;
  EXPECT_EQ(port->find_op(device, "husk::matmul", &op, &error), HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("cuBLASLt /no/such/libcublasLt.so.13 LD_LIBRARY_PATH libraries=True")) << error.text;
  EXPECT_EQ(memory.live, host_live);
  options.cublas = "libcuda.so.1";   // some other library
  open_with(options);
  EXPECT_EQ(port->find_op(device, "husk::matmul", &op, &error), HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("cublasLtCreate")) << error.text;
}

TEST_F(CudaLibrary, that_does_not_start_is_told_and_asked_again) {
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
