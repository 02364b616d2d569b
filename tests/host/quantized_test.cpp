// husk::linear_quantized, husk::linear_rounded, husk::grouped_linear_quantized, aten::_int_mm and
// husk::convolution_int8 with each set of features of this CPU, packed and not, against loops in
// double and in i64. tests/torch/ops has more formats and shapes.
#include <random>

#include "correct_calls.h"
#include "host_device.h"

namespace husk::host_test {
namespace {

class Quantized : public HostDevice {
 protected:
  // Calls an op whose arguments of these numbers are packed, in memory of their exact size.
  void run(const Call& call, const std::vector<uint32_t>& numbers) {
    const husk_op& row = op(call.name);
    husk_op_context context = context_of(row);
    const auto count = static_cast<uint32_t>(call.args.size());
    std::vector<std::vector<unsigned char>> copies(call.args.size());
    std::vector<const void*> packed(call.args.size());
    for (const uint32_t number : numbers) {
      husk_packing packing = HUSK_PACKING_INIT;
      packing.argument = number;
      ASSERT_EQ(row.pack(&context, call.args.data(), count, &packing, &error), HUSK_OK)
          << error.text;
      if (packing.bytes == 0) continue;
      copies[number].resize(packing.bytes);
      packing.data = copies[number].data();
      ASSERT_EQ(row.pack(&context, call.args.data(), count, &packing, &error), HUSK_OK)
          << error.text;
      packed[number] = copies[number].data();
    }
    context.packed = packed.data();
    ASSERT_EQ(row.call(&context, call.args.data(), count, &error), HUSK_OK) << error.text;
  }

  // Whether this argument of a call is packed.
  bool packs(const Call& call, uint32_t number) {
    const husk_op& row = op(call.name);
    husk_op_context context = context_of(row);
    husk_packing packing = HUSK_PACKING_INIT;
    packing.argument = number;
    EXPECT_EQ(row.pack(&context, call.args.data(), static_cast<uint32_t>(call.args.size()),
                       &packing, &error),
              HUSK_OK)
        << error.text;
    return packing.bytes > 0;
  }

  std::mt19937 random{1};
};

template <class T>
T* elements(Call& call, size_t argument) {
  return static_cast<T*>(call.args[argument].data);
}

TEST_F(Quantized, Linear) {
  constexpr int64_t kN = 21;
  struct Depth {
    int bits;
    int64_t k, group;
  };
  // One row is multiplied as ints if groups are multiples of 32.
  constexpr Depth kDepths[] = {
      {4, 48, 16}, {8, 48, 16}, {4, 1120, 32}, {8, 1120, 32}, {4, 192, 64}};
  for (const CpuSet& set : sets()) {
    use(set);
    for (const Depth& depth : kDepths) {
      const int bits = depth.bits;
      const int64_t k = depth.k, group = depth.group, groups = k / group;
      for (const int64_t m : {int64_t{1}, int64_t{3}, int64_t{7}, int64_t{15}}) {
        Call call("husk::linear_quantized");
        call.f32({m, k})
            .tensor(bits == 4 ? HUSK_U8 : HUSK_I8, {kN, bits == 4 ? k / 2 : k})
            .f32({kN, groups})
            .tensor(HUSK_I8, {kN, groups})
            .none(3)
            .text("none")
            .number(bits)
            .number(group)
            .f32({m, kN});
        auto *a = elements<float>(call, 0), *scales = elements<float>(call, 2);
        auto* codes = elements<uint8_t>(call, 1);
        auto* zeros = elements<int8_t>(call, 3);
        std::uniform_real_distribution<float> floats(-1, 1);
        std::uniform_int_distribution<int> bytes(0, 255);
        for (int64_t i = 0; i < m * k; ++i) a[i] = floats(random);
        for (int64_t i = 0; i < kN * k * bits / 8; ++i)
          codes[i] = static_cast<uint8_t>(bytes(random));
        for (int64_t i = 0; i < kN * groups; ++i) {
          scales[i] = floats(random);
          zeros[i] = static_cast<int8_t>(bytes(random) % 8);
        }
        const auto number = [&](int64_t j, int64_t i) {
          const int code = bits == 4 ? (codes[j * k / 2 + i / 2] >> (i % 2 * 4) & 15) - 8
                                     : static_cast<int8_t>(codes[j * k + i]);
          const int64_t at = j * groups + i / group;
          return (code - zeros[at]) * static_cast<double>(scales[at]);
        };
        for (const bool packed : {false, true}) {
          run(call, packed ? std::vector<uint32_t>{1, 2, 3} : std::vector<uint32_t>{});
          const float* out = elements<float>(call, call.args.size() - 1);
          for (int64_t r = 0; r < m; ++r) {
            for (int64_t j = 0; j < kN; ++j) {
              double sum = 0, size = 0;
              for (int64_t i = 0; i < k; ++i) {
                sum += a[r * k + i] * number(j, i);
                size += std::fabs(a[r * k + i] * number(j, i));
              }
              ASSERT_NEAR(out[r * kN + j], sum, size * 1e-6)
                  << set.name << ": " << bits << " bits, " << k << " deep, " << m
                  << " rows, packed: " << packed;
            }
          }
        }
      }
    }
  }
}

// The number that element i of a row is rounded to.
double rounded(const float* row, int64_t i) {
  float largest = 0;
  for (int64_t e = i / 32 * 32; e < i / 32 * 32 + 32; ++e)
    largest = std::max(largest, std::fabs(row[e]));
  const float factor = 127 / largest, step = largest / 127;
  return std::nearbyint(static_cast<double>(row[i]) * factor) * step;
}

TEST_F(Quantized, RoundedRows) {
  constexpr int64_t kN = 37, kK = 96;
  struct Format {
    int32_t dtype;
    int bits;
  };
  for (const CpuSet& set : sets()) {
    use(set);
    for (const Format format : {Format{HUSK_U8, 4}, Format{HUSK_I8, 8}, Format{HUSK_U8, 8}}) {
      for (const int64_t m : {int64_t{1}, int64_t{3}, int64_t{9}}) {
        Call call("husk::linear_rounded");
        call.f32({m, kK})
            .tensor(format.dtype, {kN, kK * format.bits / 8})
            .f32({kN, 1})
            .tensor(HUSK_I8, {kN, 1})
            .none(3)
            .text("none")
            .number(format.bits)
            .number(kK)
            .f32({m, kN});
        auto *a = elements<float>(call, 0), *scales = elements<float>(call, 2);
        auto* codes = elements<uint8_t>(call, 1);
        auto* zeros = elements<int8_t>(call, 3);
        std::uniform_real_distribution<float> floats(-1, 1);
        std::uniform_int_distribution<int> bytes(0, 255);
        for (int64_t i = 0; i < m * kK; ++i) a[i] = floats(random);
        for (int64_t i = 0; i < kN * kK * format.bits / 8; ++i)
          codes[i] = static_cast<uint8_t>(bytes(random));
        for (int64_t i = 0; i < kN; ++i) {
          scales[i] = floats(random);
          zeros[i] = static_cast<int8_t>(i % 5);
        }
        const auto number = [&](int64_t j, int64_t i) {
          const int64_t at = j * kK + i;
          const int code = format.bits == 4          ? (codes[at / 2] >> (i % 2 * 4) & 15) - 8
                           : format.dtype == HUSK_I8 ? static_cast<int8_t>(codes[at])
                                                     : codes[at];
          return (code - zeros[j]) * static_cast<double>(scales[j]);
        };
        run(call, {1, 2, 3});
        const float* out = elements<float>(call, call.args.size() - 1);
        // Codes that are not packed are not multiplied with rounded rows.
        const bool rounds = packs(call, 1);
        for (int64_t r = 0; r < m; ++r) {
          for (int64_t j = 0; j < kN; ++j) {
            double sum = 0, size = 0;
            for (int64_t i = 0; i < kK; ++i) {
              const double left = rounds ? rounded(a + r * kK, i) : a[r * kK + i];
              sum += left * number(j, i);
              size += std::fabs(left) * (std::fabs(number(j, i)) + 4 * std::fabs(scales[j]));
            }
            ASSERT_NEAR(out[r * kN + j], sum, size * 1e-6)
                << set.name << ": " << format.bits << " bits, " << m << " rows";
          }
        }
      }
    }
  }
}

TEST_F(Quantized, Stacks) {
  constexpr int64_t kExperts = 3, kN = 21, kK = 48, kM = 7;
  for (const CpuSet& set : sets()) {
    use(set);
    for (const bool are_ends : {false, true}) {
      Call call("husk::grouped_linear_quantized");
      call.f32({kM, kK}).tensor(HUSK_I8, {kExperts, kN, kK}).f32({kExperts, kN, 1}).none(2);
      if (are_ends)
        call.i64({kExperts}).none();
      else
        call.none().i64({kM});
      call.number(8).number(kK).f32({kM, kN});
      auto *a = elements<float>(call, 0), *scales = elements<float>(call, 2);
      auto* codes = elements<int8_t>(call, 1);
      auto* groups = elements<int64_t>(call, are_ends ? 5 : 6);
      const int64_t ends[kExperts] = {2, 2, 6}, experts[kM] = {2, 0, -1, 2, 0, 2, -3};
      for (int64_t i = 0; i < (are_ends ? kExperts : kM); ++i)
        groups[i] = are_ends ? ends[i] : experts[i];
      std::uniform_real_distribution<float> floats(-1, 1);
      std::uniform_int_distribution<int> bytes(-128, 127);
      for (int64_t i = 0; i < kM * kK; ++i) a[i] = floats(random);
      for (int64_t i = 0; i < kExperts * kN * kK; ++i)
        codes[i] = static_cast<int8_t>(bytes(random));
      for (int64_t i = 0; i < kExperts * kN; ++i) scales[i] = floats(random);
      for (const bool packed : {false, true}) {
        run(call, packed ? std::vector<uint32_t>{1, 2} : std::vector<uint32_t>{});
        const float* out = elements<float>(call, call.args.size() - 1);
        for (int64_t r = 0; r < kM; ++r) {
          int64_t expert = (experts[r] + kExperts) % kExperts;
          if (are_ends) expert = r < ends[0] ? 0 : r < ends[2] ? 2 : -1;
          for (int64_t j = 0; j < kN; ++j) {
            double sum = 0, size = 0;
            for (int64_t i = 0; expert >= 0 && i < kK; ++i) {
              const int64_t row = expert * kN + j;
              const double product = static_cast<double>(a[r * kK + i]) * codes[row * kK + i] *
                                     scales[row];
              sum += product;
              size += std::fabs(product);
            }
            ASSERT_NEAR(out[r * kN + j], sum, size * 1e-6)
                << set.name << ": row " << r << ", packed: " << packed;
          }
        }
      }
    }
  }
}

TEST_F(Quantized, StacksOfFloats) {
  constexpr int64_t kExperts = 4, kK = 48, kM = 40;
  for (const CpuSet& set : sets()) {
    use(set);
    for (const int64_t n : {1, 21, 64, 270, 300}) {
      Call call("husk::grouped_product");
      call.f32({kM, kK}).f32({kExperts, kK, n}).i64({kExperts}).f32({kM, n});
      auto *a = elements<float>(call, 0), *b = elements<float>(call, 1);
      auto* ends = elements<int64_t>(call, 2);
      const int64_t all[][kExperts] = {{3, 3, 30, kM}, {0, 0, 0, 5}, {kM, kM, kM, kM}, {}};
      std::uniform_real_distribution<float> floats(-1, 1);
      for (int64_t i = 0; i < kM * kK; ++i) a[i] = floats(random);
      for (int64_t i = 0; i < kExperts * kK * n; ++i) b[i] = floats(random);
      for (const auto& given : all) {
        std::copy(given, given + kExperts, ends);
        run(call, {});
        const float* out = elements<float>(call, 3);
        int64_t expert = 0;
        for (int64_t r = 0; r < kM; ++r) {
          while (expert < kExperts && r >= given[expert]) ++expert;
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t i = 0; expert < kExperts && i < kK; ++i)
              sum += static_cast<double>(a[r * kK + i]) * b[(expert * kK + i) * n + j];
            ASSERT_NEAR(out[r * n + j], sum, 2e-5)
                << set.name << ": row " << r << ", column " << j << " of " << n;
          }
        }
      }
    }
  }
}

TEST_F(Quantized, ProductsOfInts) {
  constexpr int64_t kN = 37, kK = 71;
  for (const CpuSet& set : sets()) {
    use(set);
    for (const int64_t m : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{9}}) {
      for (const bool in_columns : {false, true}) {
        Call call("aten::_int_mm");
        call.tensor(HUSK_I8, {m, kK});
        if (in_columns)
          call.tensor(HUSK_I8, {kN, kK}).transposed();
        else
          call.tensor(HUSK_I8, {kK, kN});
        call.tensor(HUSK_I32, {m, kN});
        const int64_t row = in_columns ? 1 : kN, column = in_columns ? kK : 1;
        auto *a = elements<int8_t>(call, 0), *b = elements<int8_t>(call, 1);
        std::uniform_int_distribution<int> bytes(-128, 127);
        for (int64_t i = 0; i < m * kK; ++i)
          a[i] = static_cast<int8_t>(i < kK ? -128 : bytes(random));
        for (int64_t i = 0; i < kK; ++i)
          for (int64_t j = 0; j < kN; ++j)
            b[i * row + j * column] = static_cast<int8_t>(j == 0 ? -128 : bytes(random));
        for (const bool packed : {false, true}) {
          run(call, packed ? std::vector<uint32_t>{1} : std::vector<uint32_t>{});
          const int32_t* out = elements<int32_t>(call, 2);
          for (int64_t r = 0; r < m; ++r) {
            for (int64_t j = 0; j < kN; ++j) {
              int64_t sum = 0;
              for (int64_t i = 0; i < kK; ++i) sum += a[r * kK + i] * b[i * row + j * column];
              ASSERT_EQ(out[r * kN + j], sum)
                  << set.name << ": " << m << " rows, packed: " << packed
                  << ", columns are adjacent: " << in_columns;
            }
          }
        }
      }
    }
  }
}

// All numbers are multiples of powers of 2, so that codes are exact, and ties are among them.
TEST_F(Quantized, ConvolutionsOfCodes) {
  struct Shape {
    int64_t in, out, groups, height, width, rows, columns, stride, padding;
  };
  constexpr int32_t kInputZero = 9, kOutZero = 50, kLeast = 3, kMost = 120;
  for (const Shape& s : {Shape{70, 70, 70, 6, 9, 3, 3, 1, 1}, Shape{36, 36, 36, 9, 8, 5, 5, 2, 2},
                         Shape{24, 24, 24, 5, 40, 1, 7, 1, 3}, Shape{24, 41, 1, 5, 3, 1, 1, 1, 0},
                         Shape{3, 20, 1, 9, 8, 3, 3, 2, 1}}) {
    const int64_t down = (s.height + 2 * s.padding - s.rows) / s.stride + 1,
                  across = (s.width + 2 * s.padding - s.columns) / s.stride + 1,
                  depth = s.in / s.groups, taps = s.rows * s.columns;
    for (const CpuSet& set : sets()) {
      use(set);
      for (const int32_t in : {HUSK_U8, HUSK_I8}) {
        for (const int32_t out_type : {HUSK_U8, HUSK_I8}) {
          Call call("husk::convolution_int8");
          call.tensor(in, {1, s.in, s.height, s.width})
              .channels_last()
              .tensor(HUSK_I8, {s.out, depth, s.rows, s.columns})
              .f32({s.out})
              .f32({s.out})
              .list({s.stride, s.stride})
              .list({s.padding, s.padding})
              .list({1, 1})
              .number(s.groups)
              .real(0.5)
              .number(kInputZero)
              .none(2)
              .none()
              .real(1)
              .number(0)
              .text("none")
              .real(1024)
              .number(kOutZero)
              .number(kLeast)
              .number(kMost)
              .number(out_type)
              .tensor(out_type, {1, s.out, down, across})
              .channels_last();
          auto *x = elements<uint8_t>(call, 0), *weight = elements<uint8_t>(call, 1);
          auto *scales = elements<float>(call, 2), *bias = elements<float>(call, 3);
          std::uniform_int_distribution<int> bytes(0, 255);
          for (int64_t i = 0; i < s.in * s.height * s.width; ++i)
            x[i] = static_cast<uint8_t>(bytes(random));
          for (int64_t i = 0; i < s.out * depth * taps; ++i)
            weight[i] = static_cast<uint8_t>(bytes(random));
          for (int64_t o = 0; o < s.out; ++o) {
            scales[o] = o % 2 == 0 ? 0.25f : 1.f;
            bias[o] = static_cast<float>(bytes(random)) * 8 - 512;
          }
          const auto sum_at = [&](int64_t o, int64_t y, int64_t x_at) {
            int64_t sum = 0;
            for (int64_t tap = 0; tap < taps; ++tap) {
              const int64_t row = y * s.stride - s.padding + tap / s.columns,
                            column = x_at * s.stride - s.padding + tap % s.columns;
              if (row < 0 || row >= s.height || column < 0 || column >= s.width) continue;
              for (int64_t i = 0; i < depth; ++i) {
                const int64_t channel = o / (s.out / s.groups) * depth + i;
                const uint8_t byte = x[(row * s.width + column) * s.in + channel];
                const int code = in == HUSK_U8 ? byte : static_cast<int8_t>(byte);
                sum += (code - kInputZero) *
                       static_cast<int8_t>(weight[(o * depth + i) * taps + tap]);
              }
            }
            return sum;
          };
          for (const bool packed : {false, true}) {
            run(call, packed ? std::vector<uint32_t>{1} : std::vector<uint32_t>{});
            const auto* out = elements<uint8_t>(call, call.args.size() - 1);
            for (int64_t o = 0; o < s.out; ++o) {
              for (int64_t i = 0; i < down * across; ++i) {
                const double v = (static_cast<double>(sum_at(o, i / across, i % across)) / 2 *
                                      static_cast<double>(scales[o]) +
                                  static_cast<double>(bias[o])) /
                                 1024;
                const double code = std::nearbyint(v) + kOutZero;
                const uint8_t byte = out[i * s.out + o];
                ASSERT_EQ(out_type == HUSK_U8 ? byte : static_cast<int8_t>(byte),
                          static_cast<int>(std::min<double>(std::max<double>(code, kLeast), kMost)))
                    << set.name << ": channel " << o << ", position " << i << ", " << s.rows
                    << " x " << s.columns << ", packed: " << packed;
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace husk::host_test
