// Elements as numbers: every value of the small float types, rounding, and the ranges of ints.
#include "run/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include <husk/husk.h>

#include "run/run_error.h"

namespace husk::run_test {
namespace {

using run::Tensor;

Tensor element_of(husk_dtype dtype) { return run::tensor_make(dtype, {1}); }

double rounded(husk_dtype dtype, double value) {
  Tensor t = element_of(dtype);
  t.set_number(0, value);
  return t.number(0);
}

Tensor of_bits(husk_dtype dtype, uint32_t bits) {
  Tensor t = element_of(dtype);
  std::memcpy(t.bytes.data(), &bits, t.bytes.size());
  return t;
}

const husk_dtype small_floats[] = {HUSK_F16,    HUSK_BF16,       HUSK_F8E4M3FN,
                                   HUSK_F8E5M2, HUSK_F8E4M3FNUZ, HUSK_F8E5M2FNUZ};

TEST(RunTensor, EverySmallFloatRoundTrips) {
  for (husk_dtype dtype : small_floats) {
    const uint32_t count = 1u << (8 * husk_dtype_size(dtype));
    for (uint32_t bits = 0; bits < count; bits++) {
      const double value = of_bits(dtype, bits).number(0);
      Tensor again = element_of(dtype);
      again.set_number(0, value);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(again.number(0)));
      } else
        EXPECT_EQ(again.bytes, of_bits(dtype, bits).bytes) << husk_dtype_name(dtype) << " " << bits;
    }
  }
}

TEST(RunTensor, KnownSmallFloats) {
  EXPECT_EQ(of_bits(HUSK_F16, 0x3c00).number(0), 1);
  EXPECT_EQ(of_bits(HUSK_F16, 0x7bff).number(0), 65504);
  EXPECT_EQ(of_bits(HUSK_F16, 0x0001).number(0), 0x1p-24);
  EXPECT_TRUE(std::isinf(of_bits(HUSK_F16, 0xfc00).number(0)));
  EXPECT_EQ(of_bits(HUSK_BF16, 0xc040).number(0), -3);
  EXPECT_EQ(of_bits(HUSK_F8E4M3FN, 0x7e).number(0), 448);
  EXPECT_TRUE(std::isnan(of_bits(HUSK_F8E4M3FN, 0x7f).number(0)));
  EXPECT_TRUE(std::isnan(of_bits(HUSK_F8E4M3FN, 0xff).number(0)));
  EXPECT_EQ(of_bits(HUSK_F8E5M2, 0x7b).number(0), 57344);
  EXPECT_TRUE(std::isinf(of_bits(HUSK_F8E5M2, 0x7c).number(0)));
  EXPECT_EQ(of_bits(HUSK_F8E4M3FNUZ, 0x7f).number(0), 240);
  EXPECT_TRUE(std::isnan(of_bits(HUSK_F8E4M3FNUZ, 0x80).number(0)));
  EXPECT_EQ(of_bits(HUSK_F8E5M2FNUZ, 0x7f).number(0), 57344);
}

TEST(RunTensor, RoundsToNearestEven) {
  for (husk_dtype dtype : small_floats) {
    const uint32_t count = 1u << (8 * husk_dtype_size(dtype) - 1);
    for (uint32_t bits = 0; bits + 1 < count; bits++) {
      const double low = of_bits(dtype, bits).number(0), high = of_bits(dtype, bits + 1).number(0);
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      const double middle = (low + high) / 2;
      EXPECT_EQ(rounded(dtype, middle), bits % 2 ? high : low)
          << husk_dtype_name(dtype) << " " << bits;
      EXPECT_EQ(rounded(dtype, std::nextafter(middle, low)), low);
      EXPECT_EQ(rounded(dtype, std::nextafter(middle, high)), high);
    }
  }
}

TEST(RunTensor, IntsStopAtTheirEnds) {
  EXPECT_EQ(rounded(HUSK_U8, 300), 255);
  EXPECT_EQ(rounded(HUSK_I8, -1000), -128);
  EXPECT_EQ(rounded(HUSK_I32, std::numeric_limits<double>::quiet_NaN()), 0);
  EXPECT_EQ(rounded(HUSK_U16, 7.9), 7);
  Tensor t = element_of(HUSK_I64);
  t.set_number(0, 1e30);
  EXPECT_EQ(t.integer(0), std::numeric_limits<int64_t>::max());
}

TEST(RunTensor, LargeIntsAreExact) {
  const int64_t value = (int64_t{1} << 53) + 1;
  Tensor t = element_of(HUSK_I64);
  std::memcpy(t.bytes.data(), &value, sizeof value);
  EXPECT_EQ(t.integer(0), value);
}

TEST(RunTensor, Gathers) {
  Tensor from = run::tensor_make(HUSK_I16, {7});
  for (int i = 0; i < 7; i++) from.set_number(i, i);
  const Tensor t = run::tensor_gather(HUSK_I16, {2, 3}, {1, 2}, from.bytes);
  const double expected[] = {0, 2, 4, 1, 3, 5};
  for (int i = 0; i < 6; i++) EXPECT_EQ(t.number(i), expected[i]);
  EXPECT_EQ(run::tensor_gather(HUSK_I16, {}, {}, from.bytes).bytes.size(), 2u);
  EXPECT_TRUE(run::tensor_gather(HUSK_I16, {2, 0}, {1, 1}, {}).bytes.empty());
}

TEST(RunTensor, NamesDtypes) {
  EXPECT_EQ(run::dtype_from_name("bf16"), HUSK_BF16);
  EXPECT_EQ(run::dtype_from_name("float"), HUSK_DTYPE_NONE);
  EXPECT_EQ(run::type_text(HUSK_F32, {2, 3}), "f32[2, 3]");
}

TEST(RunTensor, RefusesSizes) {
  EXPECT_THROW(run::tensor_make(HUSK_F32, {2, -1}), run::RunError);
  EXPECT_THROW(run::tensor_make(HUSK_F32, {int64_t{1} << 40, int64_t{1} << 40}), run::RunError);
}

}  // namespace
}  // namespace husk::run_test
