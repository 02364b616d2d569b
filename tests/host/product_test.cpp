// mm, addmm, bmm and baddbmm, compared with loops in double.
#include "host_device.h"
#include "linalg/product_choice.h"
#include "tensor.h"

namespace husk::host_test {
namespace {

const int32_t kDtypes[] = {HUSK_F32, HUSK_F64, HUSK_F16, HUSK_BF16};

class Product : public HostDevice {
 protected:
  // The allowed error: one rounding to the dtype, and the errors of the sums.
  static double allowed(int32_t dtype, double expected, double magnitude) {
    const double unit = dtype == HUSK_F64   ? 0x1p-53
                        : dtype == HUSK_F32 ? 0x1p-24
                        : dtype == HUSK_F16 ? 0x1p-11
                                            : 0x1p-8;
    const double sums = dtype == HUSK_F64 ? 1e-14 : 1e-6;
    return unit * std::fabs(expected) + sums * magnitude + (dtype == HUSK_F16 ? 0x1p-24 : 0);
  }

  // Expects out = alpha * a b + addend. `addend` is read before the call, because out may be self.
  static void expect_product(const Tensor& a, const Tensor& b, const Tensor& out, double alpha = 1,
                             const std::vector<double>& addend = {}) {
    const int64_t m = out.sizes[0], n = out.sizes[1], k = a.sizes[1];
    // The values of b by columns. Reading an element takes long in a build with sanitizers.
    std::vector<double> row(static_cast<size_t>(k)), columns(static_cast<size_t>(n * k));
    for (int64_t j = 0; j < n; ++j)
      for (int64_t d = 0; d < k; ++d) columns[static_cast<size_t>(j * k + d)] = b.get({d, j});
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t d = 0; d < k; ++d) row[static_cast<size_t>(d)] = a.get({i, d});
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, magnitude = 0;
        const double *left = row.data(), *right = columns.data() + j * k;
        for (int64_t d = 0; d < k; ++d) {
          const double term = left[d] * right[d];
          sum += term;
          magnitude += std::fabs(term);
        }
        sum *= alpha;
        magnitude *= std::fabs(alpha);
        if (!addend.empty()) {
          sum += addend[i * n + j];
          magnitude += std::fabs(addend[i * n + j]);
        }
        ASSERT_NEAR(out.get({i, j}), sum, allowed(out.dtype, sum, magnitude))
            << "at " << i << ", " << j << " of " << m << " x " << n << " x " << k << ", dtype "
            << out.dtype;
      }
    }
  }

  void check_mm(Tensor a, Tensor b, Tensor out) {
    a.randomize(random);
    b.randomize(random);
    const Tensor before = out;
    ASSERT_EQ(call("aten::mm.out", {a.arg(), b.arg(), out.arg(HUSK_ACCESS_WRITE)}), HUSK_OK)
        << error.text;
    expect_product(a, b, out);
    // Memory between and around the elements is unchanged.
    Tensor after = out;
    for (int64_t i = 0; i < out.sizes[0]; ++i) {
      for (int64_t j = 0; j < out.sizes[1]; ++j) {
        const size_t size = element_bytes(out.dtype),
                     at = static_cast<size_t>(out.element_at({i, j})) * size;
        std::memcpy(after.bytes.data() + at, before.bytes.data() + at, size);
      }
    }
    ASSERT_EQ(after.bytes, before.bytes);
  }

  std::mt19937 random{7};
};

TEST_F(Product, OddSizes) {
  const int64_t sizes[][3] = {
      {1, 1, 1},     {1, 1, 300},   {1, 33, 7},    {1, 40, 2100}, {33, 1, 7},    {2, 17, 65},
      {3, 100, 5},   {4, 31, 31},   {5, 5, 5},     {6, 16, 32},   {7, 9, 1},     {8, 40, 20},
      {20, 8, 40},   {9, 40, 20},   {12, 32, 64},  {13, 33, 17},  {96, 256, 8},  {97, 257, 31},
      {25, 70, 259}, {100, 64, 30}, {300, 3, 20},  {2, 2100, 9},  {10, 2100, 9}, {2, 5, 33},
      {7, 70, 64},   {8, 31, 4097}, {12, 33, 511}, {14, 63, 513}, {193, 33, 70}, {3, 4, 32}};
  for (const CpuSet& set : sets()) {
    use(set);
    for (int32_t dtype : kDtypes) {
      for (auto& s : sizes) {
        const int64_t m = s[0], n = s[1], k = s[2];
        SCOPED_TRACE(::testing::Message() << set.name);
        check_mm(Tensor(dtype, {m, k}), Tensor(dtype, {k, n}), Tensor(dtype, {m, n}));
        check_mm(Tensor(dtype, {m, k}), Tensor(dtype, {k, n}, {1, 0}), Tensor(dtype, {m, n}));
      }
    }
  }
}

TEST_F(Product, Strides) {
  const std::vector<int> orders[] = {{0, 1}, {1, 0}};
  const int64_t sizes[][3] = {{1, 37, 45}, {3, 29, 38}, {37, 2, 21}, {30, 41, 70}};
  for (const CpuSet& set : sets()) {
    use(set);
    for (int32_t dtype : kDtypes) {
      for (auto& s : sizes) {
        for (int bits = 0; bits < 64; ++bits) {
          const int64_t m = s[0], n = s[1], k = s[2];
          check_mm(Tensor(dtype, {m, k}, orders[bits & 1], bits >> 3 & 1, 3),
                   Tensor(dtype, {k, n}, orders[bits >> 1 & 1], bits >> 4 & 1, 1),
                   Tensor(dtype, {m, n}, orders[bits >> 2 & 1], bits >> 5 & 1, 5));
        }
      }
    }
  }
}

TEST_F(Product, ExpandedAndReversed) {
  for (const CpuSet& set : sets()) {
    use(set);
    for (int64_t m : {2, 20}) {
      Tensor a(HUSK_F32, {m, 19}), b(HUSK_F32, {19, 40});
      a.strides = {0, 1};    // every row is the same one
      b.strides = {-40, 1};  // rows in reverse order
      b.offset = 18 * 40;
      check_mm(a, b, Tensor(HUSK_F32, {m, 40}));
    }
  }
}

TEST_F(Product, UnalignedToVectors) {
  for (const CpuSet& set : sets()) {
    use(set);
    for (int64_t lead = 1; lead < 4; ++lead) {
      check_mm(Tensor(HUSK_F32, {20, 30}, {}, 0, lead), Tensor(HUSK_F32, {30, 50}, {}, 0, lead),
               Tensor(HUSK_F32, {20, 50}, {}, 0, lead));
    }
  }
}

TEST_F(Product, ZeroSizes) {
  for (auto& s : {std::vector<int64_t>{0, 4, 3}, {4, 0, 3}, {0, 0, 0}, {0, 4, 0}}) {
    Tensor a(HUSK_F32, {s[0], s[2]}), b(HUSK_F32, {s[2], s[1]}), out(HUSK_F32, {s[0], s[1]});
    const auto before = out.bytes;
    husk_op_arg to = out.arg(HUSK_ACCESS_WRITE);
    to.data = nullptr;  // a tensor without elements needs no address
    EXPECT_EQ(call("aten::mm.out", {a.arg(), b.arg(), to}), HUSK_OK) << error.text;
    EXPECT_EQ(call("aten::mm.out", {a.arg(), b.arg(), out.arg(HUSK_ACCESS_WRITE)}), HUSK_OK)
        << error.text;
    EXPECT_EQ(out.bytes, before);
  }
}

TEST_F(Product, EmptySumsAreZero) {
  for (const CpuSet& set : sets()) {
    use(set);
    for (int64_t m : {1, 30})
      for (int32_t dtype : kDtypes)
        check_mm(Tensor(dtype, {m, 0}), Tensor(dtype, {0, 40}), Tensor(dtype, {m, 40}));
  }
}

// self has every shape that broadcasts; beta and alpha are ints or floats.
TEST_F(Product, AddedSelf) {
  const std::vector<int64_t> shapes[] = {{}, {1}, {37}, {1, 37}, {30, 1}, {1, 1}, {30, 37}};
  for (const CpuSet& set : sets()) {
    use(set);
    for (int32_t dtype : kDtypes) {
      for (auto& shape : shapes) {
        for (bool column_major : {false, true}) {
          Tensor a(dtype, {30, 21}), b(dtype, {21, 37}), self(dtype, shape);
          Tensor out(dtype, {30, 37}, column_major ? std::vector<int>{1, 0} : std::vector<int>{});
          a.randomize(random);
          b.randomize(random);
          self.randomize(random);
          std::vector<double> addend;
          for (int64_t i = 0; i < 30; ++i) {
            for (int64_t j = 0; j < 37; ++j) {
              int64_t at = 0;
              const size_t rank = shape.size();
              if (rank > 0 && shape[rank - 1] > 1) at += j * self.strides[rank - 1];
              if (rank > 1 && shape[0] > 1) at += i * self.strides[0];
              addend.push_back(self.get(at) * -3);
            }
          }
          ASSERT_EQ(call("aten::addmm.out", {self.arg(), a.arg(), b.arg(), int_arg(-3),
                                             float_arg(0.5), out.arg(HUSK_ACCESS_WRITE)}),
                    HUSK_OK)
              << error.text;
          expect_product(a, b, out, 0.5, addend);
        }
      }
    }
  }
}

TEST_F(Product, SelfMayBeOut) {
  for (int64_t m : {1, 7, 50}) {
    Tensor a(HUSK_F32, {m, 70}), b(HUSK_F32, {70, 300}), out(HUSK_F32, {m, 300});
    a.randomize(random);
    b.randomize(random);
    out.randomize(random);
    std::vector<double> addend;
    for (int64_t i = 0; i < m * 300; ++i) addend.push_back(out.get(i));
    ASSERT_EQ(call("aten::addmm.out", {out.arg(), a.arg(), b.arg(), int_arg(1), int_arg(1),
                                       out.arg(HUSK_ACCESS_READ | HUSK_ACCESS_WRITE)}),
              HUSK_OK)
        << error.text;
    expect_product(a, b, out, 1, addend);
  }
}

// beta = 0 ignores self, even NaN. Every other beta does not, and NaN in a factor always reaches
// the result.
TEST_F(Product, NaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const CpuSet& set : sets()) {
    use(set);
    for (int32_t dtype : kDtypes) {
      for (int64_t m : {1, 6}) {
        Tensor a(dtype, {m, 9}), b(dtype, {9, 35}), self(dtype, {35}), out(dtype, {m, 35});
        a.randomize(random);
        b.randomize(random);
        self.randomize(random);
        self.set({3}, nan);
        const auto run = [&](double beta) {
          return call("aten::addmm.out", {self.arg(), a.arg(), b.arg(), float_arg(beta), int_arg(1),
                                          out.arg(HUSK_ACCESS_WRITE)});
        };
        ASSERT_EQ(run(0), HUSK_OK) << error.text;
        expect_product(a, b, out);
        ASSERT_EQ(run(1), HUSK_OK) << error.text;
        for (int64_t j = 0; j < 35; ++j) EXPECT_EQ(std::isnan(out.get({m - 1, j})), j == 3) << j;
        b.set({8, 7}, nan);
        ASSERT_EQ(run(0), HUSK_OK) << error.text;
        for (int64_t j = 0; j < 35; ++j) EXPECT_EQ(std::isnan(out.get({0, j})), j == 7) << j;
      }
    }
  }
}

TEST_F(Product, Batches) {
  for (int32_t dtype : kDtypes) {
    for (int64_t batches : {0, 1, 3}) {
      Tensor a(dtype, {batches, 10, 14}, {1, 0, 2}), b(dtype, {batches, 14, 20}, {0, 2, 1});
      Tensor self(dtype, {1, 20}), out(dtype, {batches, 10, 20});
      a.randomize(random);
      b.randomize(random);
      self.randomize(random);
      const auto matrix = [](const Tensor& t, int64_t batch) {
        Tensor view = t;
        view.offset += batch * t.strides[0];
        view.sizes.erase(view.sizes.begin());
        view.strides.erase(view.strides.begin());
        return view;
      };
      ASSERT_EQ(call("aten::bmm.out", {a.arg(), b.arg(), out.arg(HUSK_ACCESS_WRITE)}), HUSK_OK)
          << error.text;
      for (int64_t i = 0; i < batches; ++i)
        expect_product(matrix(a, i), matrix(b, i), matrix(out, i));
      ASSERT_EQ(call("aten::baddbmm.out", {self.arg(), a.arg(), b.arg(), int_arg(2), int_arg(1),
                                           out.arg(HUSK_ACCESS_WRITE)}),
                HUSK_OK)
          << error.text;
      std::vector<double> addend;
      for (int64_t i = 0; i < 200; ++i) addend.push_back(2 * self.get({0, i % 20}));
      for (int64_t i = 0; i < batches; ++i)
        expect_product(matrix(a, i), matrix(b, i), matrix(out, i), 1, addend);
    }
  }
}

// The instructions for bf16 take subnormal numbers as 0, other code computes with them. A product
// of one row uses no such instructions.
TEST_F(Product, SubnormalBFloat16) {
  for (const CpuSet& set : sets()) {
    use(set);
    for (int64_t m : {1, 2, 30}) {
      for (bool row_major : {false, true}) {
        Tensor a(HUSK_BF16, {m, 3}), out(HUSK_BF16, {m, 40});
        Tensor b(HUSK_BF16, {3, 40}, row_major ? std::vector<int>{} : std::vector<int>{1, 0});
        for (int64_t i = 0; i < m * 3; ++i) a.set(i, 1);
        for (int64_t i = 0; i < 3 * 40; ++i) b.set(i, 0x1p-127);
        ASSERT_EQ(call("aten::mm.out", {a.arg(), b.arg(), out.arg(HUSK_ACCESS_WRITE)}), HUSK_OK)
            << error.text;
        const bool is_zero = set.multiplies_bf16() && m > 1;
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < 40; ++j) EXPECT_EQ(out.get({i, j}), is_zero ? 0 : 3 * 0x1p-127);
      }
    }
  }
}

// Long sums of random numbers have an error of at most 1e-5 of the largest result.
TEST_F(Product, Precision) {
  std::uniform_real_distribution<float> pick(-1, 1);
  for (const CpuSet& set : sets()) {
    use(set);
    for (int64_t m : {1, 20}) {
      Tensor a(HUSK_F32, {m, 5000}), b(HUSK_F32, {5000, 24}, {1, 0}), out(HUSK_F32, {m, 24});
      for (int64_t i = 0; i < m * 5000; ++i) a.set(i, pick(random));
      for (int64_t i = 0; i < 24 * 5000; ++i) b.set(i, pick(random));
      ASSERT_EQ(call("aten::mm.out", {a.arg(), b.arg(), out.arg(HUSK_ACCESS_WRITE)}), HUSK_OK)
          << error.text;
      double worst = 0, scale = 0;
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < 24; ++j) {
          double sum = 0;
          for (int64_t d = 0; d < 5000; ++d) sum += a.get({i, d}) * b.get({d, j});
          worst = std::max(worst, std::fabs(sum - out.get({i, j})));
          scale = std::max(scale, std::fabs(sum));
        }
      }
      EXPECT_LT(worst, 1e-5 * scale);
    }
  }
}

// The kernels for a and b of these formats; null if there are none.
using RunProduct = bool (*)(host::Product&);
RunProduct run_of(host::Features cpu, husk_dtype a, host::Format b) {
  const host::ProductKernels* kernels = host::product_kernels(cpu, a, b);
  return kernels ? kernels->run : nullptr;
}

TEST(ProductKernels, AreFoundByFormatsAndFeatures) {
  using namespace host::feature;
  using namespace host::cpu_set;
#if defined(__x86_64__)
  const struct {
    host::Features cpu;
    RunProduct f32, bf16;
  } rows[] = {
      {kBaseline, host::product_run_baseline, host::product_run_baseline},
      {kAvx2 | AvxVnni, host::product_run_avx2, host::product_run_avx2},
      {kAvx2 | Avx512F, host::product_run_avx2, host::product_run_avx2},
      {kAvx512, host::product_run_avx512, host::product_run_avx512},
      {kAvx512 | Avx512Vnni, host::product_run_avx512, host::product_run_avx512},
      {kAvx512 | AmxTile | AmxInt8, host::product_run_avx512, host::product_run_avx512},
      {kAvx512Bf16, host::product_run_avx512, host::product_run_bf16},
      {kAvx512Bf16 | AmxTile | AmxInt8, host::product_run_avx512, host::product_run_bf16},
      {kAmx, host::product_run_avx512, host::product_run_amx},
  };
#else
  const struct {
    host::Features cpu;
    RunProduct f32, bf16;
  } rows[] = {
      {kArmBaseline, host::product_run_baseline, host::product_run_baseline},
      {kArmBaseline | Dotprod | I8mm, host::product_run_baseline, host::product_run_baseline},
      {kArmBf16, host::product_run_baseline, host::product_run_bf16},
  };
#endif
  for (const auto& row : rows) {
    SCOPED_TRACE(::testing::Message() << row.cpu.bits);
    for (const husk_dtype dtype : {HUSK_F32, HUSK_F64, HUSK_F16})
      EXPECT_EQ(run_of(row.cpu, dtype, {dtype, 0}), row.f32) << dtype;
    EXPECT_EQ(run_of(row.cpu, HUSK_BF16, {HUSK_BF16, 0}), row.bf16);
    for (const husk_dtype dtype : {HUSK_U8, HUSK_I8, HUSK_I16, HUSK_I32, HUSK_I64, HUSK_C64})
      EXPECT_EQ(run_of(row.cpu, dtype, {dtype, 0}), host::product_run_plain) << dtype;
  }
}

// Formats that no kernel knows are refused, and are not computed as others.
TEST(ProductKernels, AreMissingForOtherFormats) {
  const host::Features cpu = host::cpu_features();
  for (husk_dtype dtype : {HUSK_BOOL, HUSK_U16, HUSK_U32, HUSK_U64, HUSK_F8E5M2, HUSK_DTYPE_NONE})
    EXPECT_EQ(run_of(cpu, dtype, {dtype, 0}), nullptr) << dtype;
  EXPECT_EQ(run_of(cpu, HUSK_F32, {HUSK_I8, 0}), nullptr);
  EXPECT_EQ(run_of(cpu, HUSK_BF16, {HUSK_F32, 0}), nullptr);
  EXPECT_EQ(run_of(cpu, HUSK_F32, {HUSK_F32, 32}), nullptr);
  EXPECT_EQ(run_of(cpu, HUSK_F32, {HUSK_U8, 32}), nullptr);
}

}  // namespace
}  // namespace husk::host_test
