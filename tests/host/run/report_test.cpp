// The comparison with expected tensors, and its tolerances.
#include "run/report.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace husk::run_test {
namespace {

run::Tensor of(husk_dtype dtype, std::vector<double> values) {
  run::Tensor t = run::tensor_make(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); i++) t.set_number(static_cast<int64_t>(i), values[i]);
  return t;
}

bool close(const run::Tensor& got, const run::Tensor& expected, double relative, double absolute) {
  return run::print_comparison({"output", "y", "0", got}, expected, {relative, absolute});
}

const double nan = std::numeric_limits<double>::quiet_NaN(),
             infinity = std::numeric_limits<double>::infinity();

TEST(RunReport, Tolerances) {
  EXPECT_TRUE(close(of(HUSK_F32, {1, 2}), of(HUSK_F32, {1, 2}), 0, 0));
  EXPECT_FALSE(close(of(HUSK_F32, {1, 2.5}), of(HUSK_F32, {1, 2}), 0, 0.4));
  EXPECT_TRUE(close(of(HUSK_F32, {1, 2.5}), of(HUSK_F32, {1, 2}), 0, 0.5));
  EXPECT_TRUE(close(of(HUSK_F32, {1, 2.5}), of(HUSK_F32, {1, 2}), 0.25, 0));
  EXPECT_FALSE(close(of(HUSK_F32, {1, 2.5}), of(HUSK_F32, {1, 2}), 0.2, 0));
}

TEST(RunReport, NotNumbers) {
  EXPECT_TRUE(close(of(HUSK_F64, {nan, infinity}), of(HUSK_F64, {nan, infinity}), 0, 0));
  EXPECT_FALSE(close(of(HUSK_F64, {nan}), of(HUSK_F64, {1}), 10, 10));
  EXPECT_FALSE(close(of(HUSK_F64, {1}), of(HUSK_F64, {nan}), 10, 10));
  EXPECT_FALSE(close(of(HUSK_F64, {1}), of(HUSK_F64, {infinity}), 10, 10));
  EXPECT_FALSE(close(of(HUSK_F64, {infinity}), of(HUSK_F64, {-infinity}), 10, infinity));
}

TEST(RunReport, TypesAndShapes) {
  EXPECT_FALSE(close(of(HUSK_F32, {1}), of(HUSK_F64, {1}), 1, 1));
  EXPECT_FALSE(close(of(HUSK_F32, {1}), of(HUSK_F32, {1, 1}), 1, 1));
  EXPECT_TRUE(close(of(HUSK_F32, {}), of(HUSK_F32, {}), 0, 0));
}

TEST(RunReport, NeighbouringLargeIntsDiffer) {
  run::Tensor a = of(HUSK_I64, {0}), b = a;
  const int64_t large = int64_t{1} << 60, next = large + 1;
  std::memcpy(a.bytes.data(), &large, sizeof large);
  std::memcpy(b.bytes.data(), &next, sizeof next);
  EXPECT_FALSE(close(a, b, 0, 0));
  EXPECT_TRUE(close(a, b, 0, 1));
}

TEST(RunReport, TheUsersTolerancesReplaceTheUsual) {
  EXPECT_GT(run::tolerance_for(HUSK_BF16, {}, {}).relative,
            run::tolerance_for(HUSK_F32, {}, {}).relative);
  EXPECT_EQ(run::tolerance_for(HUSK_I64, {}, {}).absolute, 0);
  EXPECT_EQ(run::tolerance_for(HUSK_F32, 0.5, {}).relative, 0.5);
  EXPECT_EQ(run::tolerance_for(HUSK_F32, {}, 0.5).absolute, 0.5);
}

}  // namespace
}  // namespace husk::run_test
