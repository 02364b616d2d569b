// The kernel of products by tiles (linalg/product_amx.h), on CPUs without AMX: a class computes
// what the instructions do. Products are compared with loops in double.
#include <random>

#include "host_device.h"
#include "linalg/int_product_amx.h"
#include "linalg/product_amx.h"
#include "linalg/product_parts.h"
#include "tensor.h"

namespace husk::host_test {
namespace {

using host::BFloat16;

// The tiles of a thread, as the SDM describes their instructions.
class PlainTiles {
 public:
  PlainTiles() { EXPECT_EQ(configured++, 0); }
  ~PlainTiles() { --configured; }
  PlainTiles(const PlainTiles&) = delete;

  template <int N>
  void zero() {
    std::memset(tiles[N], 0, sizeof tiles[N]);
  }
  template <int N>
  void load(const void* from, int64_t stride) {
    for (int64_t r = 0; r < 16; ++r)
      std::memcpy(tiles[N][r], static_cast<const char*>(from) + r * stride, 64);
  }
  template <int N>
  void store(void* to, int64_t stride) {
    for (int64_t r = 0; r < 16; ++r)
      std::memcpy(static_cast<char*>(to) + r * stride, tiles[N][r], 64);
  }
  // First and second elements of pairs are summed apart.
  template <int Sums, int A, int B>
  void add_product() {
    for (int m = 0; m < 16; ++m) {
      float halves[16][2] = {};
      for (int k = 0; k < 16; ++k)
        for (int n = 0; n < 16; ++n)
          for (int half = 0; half < 2; ++half)
            halves[n][half] = std::fma(value(tiles[A][m][k], half), value(tiles[B][k][n], half),
                                       halves[n][half]);
      for (int n = 0; n < 16; ++n) {
        float sum;
        std::memcpy(&sum, &tiles[Sums][m][n], sizeof sum);
        sum += halves[n][0] + halves[n][1];
        std::memcpy(&tiles[Sums][m][n], &sum, sizeof sum);
      }
    }
  }

  template <int Sums, int A, int B>
  void add_int_product() {
    for (int m = 0; m < 16; ++m)
      for (int n = 0; n < 16; ++n)
        for (int k = 0; k < 64; ++k)
          tiles[Sums][m][n] += static_cast<uint32_t>(byte(A, m, k) * byte(B, k / 4, 4 * n + k % 4));
  }

  static int configured;

 private:
  int32_t byte(int tile, int row, int column) const {
    return static_cast<int8_t>(tiles[tile][row][column / 4] >> 8 * (column % 4));
  }
  static float value(uint32_t pair, int half) {
    const uint32_t bits = half ? pair & 0xffff0000 : pair << 16;
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return std::fabs(result) < std::numeric_limits<float>::min() ? 0 : result;
  }

  uint32_t tiles[8][16][16];
};
int PlainTiles::configured = 0;

class Amx : public HostDevice {
 protected:
  void SetUp() override {
    HostDevice::SetUp();
    use({"Amx", host::cpu_set::kAmx});  // for the sizes of parts; no op is called
  }

  // A product with its parts, as on so many threads.
  void run(const host::Product& product, uint32_t threads) {
    const husk_op_context context = HUSK_OP_CONTEXT_INIT;
    host::Cancellation cancellation(context);
    const husk_threads pool{nullptr, threads, nullptr};
    const host::ProductSplit split(product, static_cast<host::Device*>(device)->features, &pool);
    for (int64_t part = 0; part < split.parts(); ++part) {
      host::Product p = product;
      p.cancellation = &cancellation;
      split.restrict_to(p, part);
      p.scratch = op_scratch.of(op("aten::mm"));  // NaN: copies must not rely on what was there
      host::run_amx<PlainTiles>(p);
      EXPECT_EQ(PlainTiles::configured, 0);
    }
  }

  static host::MatrixView view(const Tensor& t) {
    return {t.bytes.data() + t.offset * 2, t.strides[0], t.strides[1]};
  }

  static host::Operand operand(const Tensor& t, const void* packed = nullptr) {
    const host::MatrixView all = view(t);
    return {all.data, all.row, all.column, {HUSK_BF16, 0}, {packed, 0}};
  }

  // Packs b as AVX-512 BF16 does. The memory has the exact size, so that a sanitizer finds reads
  // behind it.
  static std::vector<host::BFloat16Pair> packed(const Tensor& b) {
    const int64_t k = b.sizes[0], n = b.sizes[1], pairs = (k + 1) / 2;
    std::vector<host::BFloat16Pair> copy(static_cast<size_t>((n + 31) / 32 * 32 * pairs));
    const auto* from = reinterpret_cast<const uint16_t*>(b.bytes.data());
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t d = 0; d < k; ++d) {
        const uint32_t bits = from[b.element_at({d, j})];
        copy[static_cast<size_t>((j / 32 * pairs + d / 2) * 32 + j % 32)].bits |= d % 2 ? bits << 16
                                                                                        : bits;
      }
    }
    return copy;
  }

  // Computes out = relu(2 a b - self) + residual with and without a packed b, and with other
  // numbers of threads. What follows the sums is compared with the same in double.
  void check(Tensor a, Tensor b, Tensor out) {
    const int64_t m = out.sizes[0], n = out.sizes[1], k = a.sizes[1];
    SCOPED_TRACE(::testing::Message() << m << " x " << n << " x " << k);
    Tensor self(HUSK_BF16, {n}), residual(HUSK_BF16, {m, n});
    for (Tensor* tensor : {&a, &b, &self, &residual}) tensor->randomize(random);
    // No NaN between the elements may reach a sum.
    for (Tensor* tensor : {&a, &b}) {
      std::vector<bool> used(tensor->bytes.size() / 2);
      for (int64_t i = 0; i < tensor->sizes[0]; ++i)
        for (int64_t j = 0; j < tensor->sizes[1]; ++j)
          used[static_cast<size_t>(tensor->element_at({i, j}))] = true;
      for (size_t i = 0; i < used.size(); ++i)
        if (!used[i]) std::memset(&tensor->bytes[i * 2], 0xff, 2);
    }
    host::Product p = {};
    p.dtype = HUSK_BF16;
    p.m = m;
    p.n = n;
    p.k = k;
    p.a = view(a);
    p.b = operand(b);
    p.self = {self.bytes.data(), 0, 1};
    p.residual = view(residual);
    p.activation = host::Activation::Relu;
    p.alpha = 2;
    p.beta = -1;
    p.out = out.bytes.data() + out.offset * 2;
    p.out_row = out.strides[0];
    p.out_column = out.strides[1];
    const auto before = out.bytes;
    run(p, 1);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = -self.get(j), magnitude = std::fabs(sum);
        for (int64_t d = 0; d < k; ++d) {
          sum += 2 * a.get({i, d}) * b.get({d, j});
          magnitude += 2 * std::fabs(a.get({i, d}) * b.get({d, j}));
        }
        const double expected = std::fmax(sum, 0) + residual.get({i, j});
        ASSERT_NEAR(out.get({i, j}), expected, 0x1p-8 * std::fabs(expected) + 1e-6 * magnitude)
            << "at " << i << ", " << j;
      }
    }
    const auto expected = out.bytes;
    const auto copy = packed(b);
    // With a packed copy nothing is read of b itself.
    Tensor unread = b;
    std::fill(unread.bytes.begin(), unread.bytes.end(), static_cast<unsigned char>(0xff));
    for (const uint32_t threads : {1u, 2u, 7u}) {
      for (const void* data :
           {static_cast<const void*>(nullptr), static_cast<const void*>(copy.data())}) {
        out.bytes = before;
        p.b = operand(data ? unread : b, data);
        run(p, threads);
        ASSERT_EQ(out.bytes, expected) << threads << " threads, packed " << (data != nullptr);
      }
    }
  }

  std::mt19937 random{13};
};

TEST_F(Amx, Sizes) {
  const int64_t sizes[][3] = {{1, 1, 1},     {16, 16, 32},  {17, 17, 33},   {15, 31, 31},
                              {32, 32, 64},  {33, 33, 65},  {5, 40, 2},     {40, 300, 20},
                              {48, 48, 512}, {31, 16, 513}, {47, 15, 1024}, {64, 50, 1057},
                              {300, 3, 40},  {257, 33, 7},  {530, 40, 34},  {10, 600, 100}};
  for (auto& [m, n, k] : sizes) {
    check(Tensor(HUSK_BF16, {m, k}), Tensor(HUSK_BF16, {k, n}), Tensor(HUSK_BF16, {m, n}));
    check(Tensor(HUSK_BF16, {m, k}), Tensor(HUSK_BF16, {k, n}, {1, 0}), Tensor(HUSK_BF16, {m, n}));
  }
}

TEST_F(Amx, AllRests) {
  for (int64_t rest = 0; rest < 34; ++rest) {
    check(Tensor(HUSK_BF16, {16 + rest, 40}), Tensor(HUSK_BF16, {40, 20}),
          Tensor(HUSK_BF16, {16 + rest, 20}));
    check(Tensor(HUSK_BF16, {20, 40}), Tensor(HUSK_BF16, {40, 1 + rest}, {1, 0}),
          Tensor(HUSK_BF16, {20, 1 + rest}));
    check(Tensor(HUSK_BF16, {20, 32 + rest}), Tensor(HUSK_BF16, {32 + rest, 20}),
          Tensor(HUSK_BF16, {20, 20}));
  }
}

TEST_F(Amx, Strides) {
  const std::vector<int> orders[] = {{0, 1}, {1, 0}};
  for (auto& [m, n, k] : {std::array<int64_t, 3>{37, 41, 70}, {16, 20, 64}}) {
    for (int bits = 0; bits < 64; ++bits)
      check(Tensor(HUSK_BF16, {m, k}, orders[bits & 1], bits >> 3 & 1, 3),
            Tensor(HUSK_BF16, {k, n}, orders[bits >> 1 & 1], bits >> 4 & 1, 1),
            Tensor(HUSK_BF16, {m, n}, orders[bits >> 2 & 1], bits >> 5 & 1, 5));
  }
}

TEST_F(Amx, EmptySumsAreZero) {
  check(Tensor(HUSK_BF16, {40, 0}), Tensor(HUSK_BF16, {0, 40}), Tensor(HUSK_BF16, {40, 40}));
}

// Products of i8 against sums in i32, with and without a packed second operand.
class AmxInts : public HostDevice, public testing::WithParamInterface<int64_t> {};

TEST_P(AmxInts, EqualLoops) {
  const int64_t k = GetParam();
  const husk_op_context context = HUSK_OP_CONTEXT_INIT;
  host::Cancellation cancellation(context);
  std::minstd_rand random(static_cast<unsigned>(k));
  for (const auto& [m, n] : {std::pair{1, 1}, {5, 16}, {16, 40}, {33, 17}, {48, 32}, {100, 300}}) {
    std::vector<int8_t> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n));
    for (auto* values : {&a, &b})
      for (int8_t& value : *values) value = static_cast<int8_t>(random() >> 8);
    a[0] = b[0] = -128;
    std::vector<int32_t> expected(static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t d = 0; d < k; ++d)
        for (int64_t j = 0; j < n; ++j)
          expected[static_cast<size_t>(i * n + j)] += a[static_cast<size_t>(i * k + d)] *
                                                      b[static_cast<size_t>(d * n + j)];
    const host::ProductPacking packing = {
        HUSK_I8, k, n, {b.data(), n, 1, {HUSK_I8, 8}, {}}, &cancellation};
    std::vector<char> packed(static_cast<size_t>(host::product_pack_codes(packing, nullptr)));
    host::product_pack_codes(packing, packed.data());
    for (const char* copy :
         {static_cast<const char*>(nullptr), static_cast<const char*>(packed.data())}) {
      std::vector<int32_t> out(expected.size(), 7);
      const host::IntProduct p = {m,
                                  n,
                                  k,
                                  {a.data(), k, 1},
                                  {b.data(), n, 1},
                                  {copy, 0},
                                  out.data(),
                                  n,
                                  1,
                                  &cancellation,
                                  op_scratch.of(op("aten::mm"))};
      host::run_int_product_by<host::IntTileProducts<PlainTiles>>(p);
      EXPECT_EQ(out, expected) << m << " x " << k << " x " << n << (copy ? ", packed" : "");
      EXPECT_EQ(PlainTiles::configured, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Depths, AmxInts, testing::Values(1, 4, 63, 64, 65, 200, 1100));

// No tile is configured when the application is asked whether a call is to end.
TEST_F(Amx, CancelledProductsReleaseTiles) {
  husk_op_context context = HUSK_OP_CONTEXT_INIT;
  context.cancel = [](void*) {
    EXPECT_EQ(PlainTiles::configured, 0);
    return 1;
  };
  host::Cancellation cancellation(context);
  Tensor a(HUSK_BF16, {200, 1600}), b(HUSK_BF16, {1600, 40}), out(HUSK_BF16, {200, 40});
  host::Product p = {};
  p.dtype = HUSK_BF16;
  p.m = 200;
  p.n = 40;
  p.k = 1600;
  p.a = view(a);
  p.b = operand(b);
  p.out = out.bytes.data();
  p.out_row = 40;
  p.out_column = 1;
  p.cancellation = &cancellation;
  p.scratch = op_scratch.of(op("aten::mm"));
  host::run_amx<PlainTiles>(p);
  EXPECT_TRUE(cancellation.ended());
  EXPECT_EQ(PlainTiles::configured, 0);
}

}  // namespace
}  // namespace husk::host_test
