// The ops of cuSOLVER on the fake library: what they compute and what they refuse. Programs of
// tests/torch/libraries/test_cusolver.py compare all of them with PyTorch.
#include <cmath>
#include <cstring>
#include <thread>

#include "op_case.h"

namespace husk::port_test {

namespace {

// A tensor of a call: sizes, strides, and its memory on the device.
struct LinalgTensor {
  std::vector<int64_t> sizes, strides;
  int32_t dtype = HUSK_F64;
  void* memory = nullptr;

  husk_op_arg arg(int32_t access = HUSK_ACCESS_WRITE) const {
    return tensor_arg(access, dtype, static_cast<int32_t>(sizes.size()), memory, sizes.data(),
                      strides.data());
  }
};

}  // namespace

class CudaLinalg : public WithOp<OverFake> {
 protected:
  // A batch of matrices, by columns, or by rows.
  LinalgTensor matrices(std::vector<int64_t> sizes, bool by_columns = true,
                        const std::vector<double>& values = {}) {
    LinalgTensor result;
    result.sizes = sizes;
    result.strides.resize(sizes.size());
    int64_t stride = 1;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const size_t last = sizes.size() - 1 - i;
      const size_t d = by_columns && i < 2 ? sizes.size() - 2 + i : last;
      result.strides[d] = stride;
      stride *= sizes[d];
    }
    std::vector<double> content = values;
    content.resize(static_cast<size_t>(stride), 0);
    if (stride > 0) result.memory = device_array(content);
    return result;
  }
  LinalgTensor ints(std::vector<int64_t> sizes) {
    LinalgTensor result = matrices(std::move(sizes), false);
    result.dtype = HUSK_I32;
    return result;
  }
  std::vector<double> content(const LinalgTensor& tensor) {
    size_t count = 1;
    for (const int64_t size : tensor.sizes) count *= static_cast<size_t>(size);
    return read(static_cast<const double*>(tensor.memory), count);
  }
};

TEST_F(CudaLinalg, TheOtherTriangleOfACholeskyFactorIsZero) {
  find("aten::linalg_cholesky_ex");
  for (int64_t n = 1; n <= 70; n += n < 20 ? 1 : 7) {
    std::vector<double> values(static_cast<size_t>(2 * n * n), 1);
    for (int64_t i = 0; i < 2 * n; ++i) values[static_cast<size_t>(i * n + i % n)] = 1.0 + n;
    for (const bool upper : {false, true}) {
      const LinalgTensor a = matrices({2, n, n}, true, values), l = matrices({2, n, n}),
                         info = ints({2});
      ASSERT_EQ(call({a.arg(), integer(upper), integer(1), l.arg(), info.arg()}), HUSK_OK)
          << error.text;
      const std::vector<double> factor = content(l);
      for (int64_t i = 0; i < 2 * n * n; ++i) {
        const int64_t row = i % n, column = i / n % n;
        const bool is_zero = upper ? row > column : row < column;
        ASSERT_EQ(factor[static_cast<size_t>(i)] == 0, is_zero) << n << " " << upper << " " << i;
      }
    }
    free_memory();
  }
}

TEST_F(CudaLinalg, MatricesWithoutElements) {
  const LinalgTensor none = matrices({2, 0, 0}), info = ints({2}), pivots = ints({2, 0});
  find("aten::linalg_inv_ex");
  ASSERT_EQ(call({none.arg(), integer(1), none.arg(), info.arg()}), HUSK_OK) << error.text;
  find("aten::linalg_lu_factor_ex");
  ASSERT_EQ(call({none.arg(), integer(1), integer(1), none.arg(), pivots.arg(), info.arg()}),
            HUSK_OK)
      << error.text;
  find("aten::linalg_cholesky_ex");
  ASSERT_EQ(call({none.arg(), integer(0), integer(1), none.arg(), info.arg()}), HUSK_OK)
      << error.text;
  find("aten::linalg_qr");
  const LinalgTensor empty = matrices({3, 0}), q = matrices({3, 3}), space = matrices({9}, false);
  ASSERT_EQ(call({empty.arg(), text("complete"), q.arg(), empty.arg(), space.arg()}), HUSK_OK)
      << error.text;
  EXPECT_EQ(content(q), (std::vector<double>{1, 0, 0, 0, 1, 0, 0, 0, 1}));
  find("aten::linalg_householder_product");
  const LinalgTensor a = matrices({3, 2}), out = matrices({3, 2}), tau = matrices({0}, false);
  ASSERT_EQ(call({a.arg(), tau.arg(), out.arg(), space.arg()}), HUSK_OK) << error.text;
  EXPECT_EQ(content(out), (std::vector<double>{1, 0, 0, 0, 1, 0}));
}

TEST_F(CudaLinalg, FactorsWithoutPivots) {
  find("aten::linalg_lu_factor_ex");
  const LinalgTensor a = matrices({2, 2}, true, {1, 2, 3, 4}), lu = matrices({2, 2}),
                     pivots = ints({2}), info = ints({});
  ASSERT_EQ(call({a.arg(), integer(0), integer(1), lu.arg(), pivots.arg(), info.arg()}), HUSK_OK)
      << error.text;
  EXPECT_EQ(content(lu), (std::vector<double>{1, 2, 3, -2}));
  EXPECT_EQ(read(static_cast<const int32_t*>(pivots.memory), 2), (std::vector<int32_t>{1, 2}));
}

TEST_F(CudaLinalg, RefusesLayoutsByTheNameOfTheTensor) {
  find("aten::linalg_inv_ex");
  const LinalgTensor a = matrices({2, 3, 3}), rows = matrices({2, 3, 3}, false), info = ints({2});
  LinalgTensor apart = a;
  apart.strides[2] = 4;
  expect_refused({rows.arg(), integer(0), a.arg(), info.arg()}, HUSK_UNSUPPORTED,
                 "aten::linalg_inv_ex: A column by column linalg='host'");
  expect_refused({apart.arg(), integer(0), a.arg(), info.arg()}, HUSK_UNSUPPORTED,
                 "A column by column");
  expect_refused({a.arg(), integer(0), rows.arg(), info.arg()}, HUSK_UNSUPPORTED,
                 "inverse column by column linalg='host'");
  LinalgTensor gaps = info;
  gaps.strides[0] = 2;
  expect_refused({a.arg(), integer(0), a.arg(), gaps.arg()}, HUSK_UNSUPPORTED,
                 "info gaps linalg='host'");
  find("aten::_linalg_solve_ex");
  const LinalgTensor b = matrices({2, 3, 3}), pivots = ints({2, 3});
  expect_refused(
      {a.arg(), b.arg(), integer(0), integer(0), rows.arg(), a.arg(), pivots.arg(), info.arg()},
      HUSK_UNSUPPORTED, "_solve_ex: B row by row linalg='host'");
}

// A kernel that reads an element at such an address ends all work of the process on the device.
TEST_F(CudaLinalg, RefusesTensorsThatAreNotAligned) {
  const LinalgTensor a = matrices({2, 2}), b = matrices({2, 2}), lu = matrices({2, 2}),
                     s = matrices({2}, false), space = matrices({9}, false), info = ints({}),
                     pivots = ints({2});
  const struct {
    const char* name;
    std::vector<husk_op_arg> args;
  } cases[] = {
      {"aten::linalg_lu_factor_ex",
       {a.arg(), integer(1), integer(0), lu.arg(), pivots.arg(), info.arg()}},
      {"aten::linalg_lu_solve", {lu.arg(), pivots.arg(), a.arg(), integer(1), integer(0), b.arg()}},
      {"aten::_linalg_solve_ex",
       {a.arg(), a.arg(), integer(1), integer(0), b.arg(), lu.arg(), pivots.arg(), info.arg()}},
      {"aten::linalg_inv_ex", {a.arg(), integer(0), b.arg(), info.arg()}},
      {"aten::linalg_cholesky_ex", {a.arg(), integer(0), integer(0), b.arg(), info.arg()}},
      {"aten::_linalg_check_errors", {info.arg(), text("x"), integer(0)}},
      {"aten::_linalg_eigh", {a.arg(), text("L"), integer(1), s.arg(), b.arg(), space.arg()}},
      {"aten::_linalg_svd",
       {a.arg(), integer(0), integer(1), {}, b.arg(), s.arg(), lu.arg(), space.arg()}},
      {"aten::geqrf", {a.arg(), b.arg(), s.arg(), space.arg()}},
      {"aten::linalg_qr", {a.arg(), text("reduced"), b.arg(), lu.arg(), space.arg()}},
      {"aten::linalg_householder_product", {a.arg(), s.arg(), b.arg(), space.arg()}},
      {"aten::ormqr", {a.arg(), s.arg(), b.arg(), integer(1), integer(0), lu.arg(), space.arg()}},
  };
  for (const auto& one : cases) {
    find(one.name);
    for (size_t i = 0; i < one.args.size(); ++i) {
      if (one.args[i].kind != HUSK_ARG_TENSOR) continue;
      std::vector<husk_op_arg> args = one.args;
      args[i].data = static_cast<char*>(args[i].data) + 2;
      expect_refused(args, HUSK_INVALID_ARGUMENT, "is not aligned to its elements");
    }
  }
}

// The library would read and write rows that are not there. Pivots are data of the model.
TEST_F(CudaLinalg, RefusesPivotsThatAreNotRows) {
  find("aten::linalg_lu_solve");
  const LinalgTensor lu = matrices({2, 2, 2}, true, {2, 1, 1, 2, 1, 0, 0, 1}),
                     b = matrices({2, 2, 3}), x = matrices({2, 2, 3});
  LinalgTensor pivots = ints({2, 2});
  const auto solve = [&](const std::vector<int32_t>& numbers) {
    pivots.memory = device_array(numbers);
    return call({lu.arg(), pivots.arg(), b.arg(), integer(1), integer(0), x.arg()});
  };
  EXPECT_EQ(solve({2, 2, 1, 2}), HUSK_OK) << error.text;
  const int32_t wrong[] = {0, 3, -1, INT32_MAX, INT32_MIN};
  for (const int32_t number : wrong) {
    for (size_t i = 0; i < 4; ++i) {
      std::vector<int32_t> numbers = {1, 2, 1, 2};
      numbers[i] = number;
      EXPECT_EQ(solve(numbers), HUSK_INVALID_INPUT) << number;
      EXPECT_TRUE(error_says("linalg_lu_solve: pivots number not of a row")) << error.text;
    }
  }
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
}

TEST_F(CudaLinalg, RefusesDtypesSizesAndArguments) {
  find("aten::linalg_inv_ex");
  const LinalgTensor a = matrices({2, 3, 3}), info = ints({2}), three = ints({3});
  LinalgTensor half = a, wide = matrices({2, 3, 4}), single = a;
  half.dtype = HUSK_F16;
  single.dtype = HUSK_F32;
  expect_refused({half.arg(), integer(0), a.arg(), info.arg()}, HUSK_UNSUPPORTED,
                 "A f32 or f64 linalg='host'");
  expect_refused({a.arg(), integer(0), single.arg(), info.arg()}, HUSK_UNSUPPORTED,
                 "inverse dtype linalg='host'");
  expect_refused({wide.arg(), integer(0), a.arg(), info.arg()}, HUSK_INVALID_INPUT, "is square");
  expect_refused({a.arg(), integer(0), wide.arg(), info.arg()}, HUSK_INVALID_INPUT,
                 "sizes as large as A");
  expect_refused({a.arg(), integer(0), a.arg(), three.arg()}, HUSK_INVALID_INPUT, "sizes");
  expect_refused({a.arg(), integer(0), a.arg(), a.arg()}, HUSK_INVALID_ARGUMENT,
                 "info another type");
  expect_refused({info.arg(), integer(0), a.arg(), info.arg()}, HUSK_INVALID_ARGUMENT,
                 "A is no matrix");
  expect_refused({a.arg()}, HUSK_INVALID_ARGUMENT, "aten::linalg_inv_ex takes 4 arguments not 1");
  LinalgTensor large = a;
  large.sizes = {1, int64_t{1} << 31, int64_t{1} << 31};
  large.strides = {1, 1, int64_t{1} << 31};
  expect_refused({large.arg(), integer(0), a.arg(), info.arg()}, HUSK_UNSUPPORTED,
                 "A above 2147483647");
}

TEST_F(CudaLinalg, RefusesAWorkspaceThatIsTooSmall) {
  find("aten::_linalg_eigh");
  const LinalgTensor a = matrices({3, 3}), values = matrices({3}, false),
                     none = matrices({0}, false), small = matrices({8}, false),
                     space = matrices({9}, false);
  LinalgTensor apart = space, single = space;
  apart.strides[0] = 2;
  single.dtype = HUSK_F32;
  const LinalgTensor* const all[] = {&small, &apart, &single};
  for (const LinalgTensor* wrong : all)
    expect_refused({a.arg(), text("L"), integer(0), values.arg(), none.arg(), wrong->arg()},
                   HUSK_INVALID_ARGUMENT, "workspace too small");
  EXPECT_EQ(call({a.arg(), text("L"), integer(0), values.arg(), none.arg(), space.arg()}), HUSK_OK)
      << error.text;
}

TEST_F(CudaLinalg, HostScratchGrowsWhenACallIsPrepared) {
  find("aten::_linalg_eigh");
  const int64_t n = 80;  // the fake library wants 80 KiB of host memory
  std::vector<double> values(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i * n + i)] = static_cast<double>(i);
  const LinalgTensor a = matrices({n, n}, true, values), w = matrices({n}, false),
                     v = matrices({n, n}), space = matrices({1}, false);
  const std::vector<husk_op_arg> args = {a.arg(), text("L"), integer(1),
                                         w.arg(), v.arg(),   space.arg()};
  EXPECT_EQ(call(args), HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("81920 bytes of host memory resize")) << error.text;
  memory.fail_at = 1;
  EXPECT_EQ(enqueue(op.prepare, args), HUSK_OUT_OF_MEMORY);
  EXPECT_TRUE(error_says("scratch memory")) << error.text;
  ASSERT_EQ(enqueue(op.prepare, args), HUSK_OK) << error.text;
  memory.fail_at = 1;  // a call allocates nothing
  ASSERT_EQ(call(args), HUSK_OK) << error.text;
  EXPECT_EQ(memory.fail_at, 1);
  memory.fail_at = 0;
  EXPECT_EQ(content(w)[79], 79);
}

TEST_F(CudaLinalg, NamesTheMatrixThatFails) {
  find("aten::linalg_inv_ex");
  std::vector<double> values(700, 2);
  values[650] = 0;
  const LinalgTensor a = matrices({700, 1, 1}, true, values), x = matrices({700, 1, 1}),
                     info = ints({700});
  EXPECT_EQ(call({a.arg(), integer(0), x.arg(), info.arg()}), HUSK_OK) << error.text;
  EXPECT_EQ(call({a.arg(), integer(1), x.arg(), info.arg()}), HUSK_INVALID_INPUT);
  EXPECT_TRUE(error_says("singular info 1 of matrix 650")) << error.text;
  find("aten::_linalg_check_errors");
  EXPECT_EQ(call({info.arg(), text("inv"), integer(1)}), HUSK_INVALID_INPUT);
  EXPECT_TRUE(error_says("_linalg_check_errors singular info 1 of matrix 650")) << error.text;
}

TEST_F(CudaLinalg, MatricesThatDoNotConverge) {
  const LinalgTensor a = matrices({1, 1}, true, {NAN}), w = matrices({1}, false),
                     v = matrices({1, 1}), space = matrices({9}, false);
  find("aten::_linalg_eigh");
  EXPECT_EQ(call({a.arg(), text("L"), integer(1), w.arg(), v.arg(), space.arg()}),
            HUSK_INVALID_INPUT);
  EXPECT_TRUE(error_says("did not converge eigenvalues info 1")) << error.text;
  find("aten::_linalg_svd");
  EXPECT_EQ(call({a.arg(), integer(0), integer(0), {}, v.arg(), w.arg(), v.arg(), space.arg()}),
            HUSK_INVALID_INPUT);
  EXPECT_TRUE(error_says("did not converge singular values info 2")) << error.text;
}

// Each call of the driver and of the library in a call of an op fails once.
TEST_F(CudaLinalg, EveryCallFailsOnce) {
  const LinalgTensor a = matrices({2, 3, 2}, true, {1, 2, 3, 4, 5, 7, 1, 0, 0, 0, 1, 0}),
                     square = matrices({2, 2, 2}, true, {2, 1, 1, 2, 1, 0, 0, 1}),
                     q = matrices({2, 3, 3}), wide = matrices({2, 3, 3}), r = matrices({2, 3, 2}),
                     u = matrices({2, 3, 2}), vh = matrices({2, 2, 2}, false),
                     s = matrices({2, 2}, false), tau = matrices({2, 2}, false),
                     x = matrices({2, 2, 2}), lu = matrices({2, 2, 2}), info = ints({2}),
                     pivots = ints({2, 2}), space = matrices({9}, false);
  const struct {
    const char* name;
    std::vector<husk_op_arg> args;
  } cases[] = {
      {"aten::linalg_qr", {a.arg(), text("complete"), q.arg(), r.arg(), space.arg()}},
      {"aten::_linalg_svd",
       {a.arg(), integer(0), integer(1), {}, u.arg(), s.arg(), vh.arg(), space.arg()}},
      {"aten::_linalg_eigh", {square.arg(), text("L"), integer(1), s.arg(), x.arg(), space.arg()}},
      {"aten::geqrf", {a.arg(), u.arg(), tau.arg(), space.arg()}},
      {"aten::linalg_householder_product", {a.arg(), tau.arg(), u.arg(), space.arg()}},
      {"aten::ormqr",
       {a.arg(), tau.arg(), q.arg(), integer(1), integer(1), wide.arg(), space.arg()}},
      {"aten::linalg_cholesky_ex", {square.arg(), integer(0), integer(1), x.arg(), info.arg()}},
      {"aten::linalg_inv_ex", {square.arg(), integer(1), x.arg(), info.arg()}},
      {"aten::_linalg_solve_ex",
       {square.arg(), square.arg(), integer(1), integer(1), x.arg(), lu.arg(), pivots.arg(),
        info.arg()}},
      {"aten::linalg_lu_solve",
       {lu.arg(), pivots.arg(), square.arg(), integer(1), integer(0), x.arg()}},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    find(one.name);
    ASSERT_EQ(call(one.args), HUSK_OK) << error.text;
    ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
    const uint64_t before = fake().calls(nullptr);
    ASSERT_EQ(call(one.args), HUSK_OK) << error.text;
    const uint64_t calls = fake().calls(nullptr) - before;
    uint64_t refused = 0;
    for (uint64_t n = 1; n <= calls; ++n) {
      fake().fail_at(n, 999);
      const husk_status status = call(one.args);
      refused += status != HUSK_OK;
      if (status != HUSK_OK) {
        EXPECT_TRUE(error_says("cu")) << error.text;
      }
      fake().fail_at(0, 0);
      ASSERT_EQ(call(one.args), HUSK_OK) << error.text;
      ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
    }
    EXPECT_GE(refused + 3, calls);  // a context that is left and memory that is freed do not fail
  }
}

TEST_F(CudaLinalg, SeveralThreadsShareTheHandle) {
  find("aten::linalg_inv_ex");
  struct Own {
    LinalgTensor a, x, info;
    void* stream = nullptr;
    husk_status status = HUSK_OK;
  };
  std::vector<Own> all(4);
  for (Own& own : all) {
    own.a = matrices({2, 2}, true, {2, 0, 0, 4});
    own.x = matrices({2, 2});
    own.info = ints({});
    ASSERT_EQ(port->stream_create(device, &own.stream, &error), HUSK_OK);
  }
  ASSERT_EQ(port->stream_wait(device, stream, &error), HUSK_OK);
  std::vector<std::thread> threads;
  for (Own& own : all)
    threads.emplace_back([&, this] {
      husk_error own_error{};
      const husk_op_context context = context_of(op.user, device, own.stream);
      const husk_op_arg args[] = {own.a.arg(), integer(0), own.x.arg(), own.info.arg()};
      for (int round = 0; round < 50 && own.status == HUSK_OK; ++round)
        own.status = op.call(&context, args, 4, &own_error);
    });
  for (std::thread& thread : threads) thread.join();
  for (Own& own : all) {
    EXPECT_EQ(own.status, HUSK_OK);
    ASSERT_EQ(port->stream_wait(device, own.stream, &error), HUSK_OK);
    port->stream_destroy(device, own.stream);
    EXPECT_EQ(content(own.x), (std::vector<double>{0.5, 0, 0, 0.25}));
  }
}

TEST_F(CudaLinalg, AMissingLibraryIsAnErrorWithARemedy) {
  expect_errors_of_opening("aten::geqrf", &husk_cuda_options::cusolver,
                           "/no/such/libcusolver.so.12", "cuSOLVER linalg='host'",
                           "this cuSOLVER has no cusolverDnCreate newer");
}

TEST_F(CudaLinalg, AFailedStartIsAnErrorAndIsRetried) {
  const int host_live = memory.live;
  const uint64_t live = fake().live_objects();
  for (const char* call :
       {"cusolverDnCreate", "cusolverDnCreateParams", "cusolverDnCreateGesvdjInfo"}) {
    fake().fail_call(call, 1, 1);
    EXPECT_EQ(port->find_op(device, "aten::geqrf", &op, &error), HUSK_DEVICE);
    EXPECT_TRUE(error_says(std::string(call) + " CUSOLVER_STATUS_NOT_INITIALIZED 13.0"))
        << error.text;
    EXPECT_EQ(memory.live, host_live);
    EXPECT_EQ(fake().live_objects(), live);
  }
  for (int n = 1; n <= 2; ++n) {
    memory.fail_at = n;
    EXPECT_EQ(port->find_op(device, "aten::geqrf", &op, &error), HUSK_OUT_OF_MEMORY);
    EXPECT_EQ(memory.live, host_live);
  }
  EXPECT_EQ(port->find_op(device, "aten::geqrf", &op, &error), HUSK_OK) << error.text;
  EXPECT_EQ(op.flags, 0u);  // a call cannot be captured
}

}  // namespace husk::port_test
