// Sizes of tensors in bytes and elements, at the limits of 64 bits.
#include "model/shape.h"

#include <gtest/gtest.h>

#include <vector>

namespace husk {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;

bool dense(husk_dtype dtype, const std::vector<int64_t>& sizes, uint64_t expected = 0) {
  uint64_t bytes = 0;
  const bool good = dense_bytes(dtype, sizes.data(), static_cast<uint32_t>(sizes.size()), &bytes);
  if (good) {
    EXPECT_EQ(bytes, expected);
  }
  return good;
}

TEST(Shape, BytesOfADenseTensor) {
  EXPECT_TRUE(dense(HUSK_F32, {}, 4));
  EXPECT_TRUE(dense(HUSK_F64, {3, 0, 5}, 0));
  EXPECT_TRUE(dense(HUSK_U8, {kHuge}, uint64_t{1} << 62));
  EXPECT_TRUE(dense(HUSK_U8, std::vector<int64_t>(16, 1), 1));
  EXPECT_FALSE(dense(HUSK_U8, std::vector<int64_t>(17, 1)));
  EXPECT_FALSE(dense(HUSK_DTYPE_NONE, {1}));
  EXPECT_FALSE(dense(HUSK_POINTER, {1}));
  EXPECT_FALSE(dense(HUSK_U8, {-1}));
  EXPECT_FALSE(dense(HUSK_U8, {-1, -1}));
  EXPECT_FALSE(dense(HUSK_U16, {kHuge, 2}));
}

bool extent(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
            uint64_t expected = 0, size_t element = 4) {
  uint64_t bytes = 0;
  const bool good = extent_bytes(sizes.data(), strides.data(), static_cast<uint32_t>(sizes.size()),
                                 element, &bytes);
  if (good) {
    EXPECT_EQ(bytes, expected);
  }
  return good;
}

TEST(Shape, BytesFromTheFirstToTheLastElement) {
  EXPECT_TRUE(extent({}, {}, 4));
  EXPECT_TRUE(extent({3, 4}, {10, 1}, 96));
  EXPECT_TRUE(extent({1, 0}, {kHuge, kHuge}, 0));
  EXPECT_TRUE(extent({0, 3}, {1, 1}, 0));
  EXPECT_FALSE(extent({3}, {-1}));
  EXPECT_FALSE(extent({1}, {-1}));
  EXPECT_FALSE(extent({-1}, {1}));
  EXPECT_FALSE(extent({-3}, {0}));
  EXPECT_FALSE(extent({5}, {kHuge}));                            // a product leaves int64,
  EXPECT_FALSE(extent({2, 2, 2}, {INT64_MAX, INT64_MAX, 2}));    // a sum of products,
  EXPECT_FALSE(extent({2, 2, 2}, {kHuge, kHuge - 1, 0}, 0, 1));  // the number of elements,
  EXPECT_FALSE(extent({2}, {kHuge}));                            // the bytes
}

TEST(Shape, ContiguousStrides) {
  const int64_t sizes[] = {2, 0, 3}, large[] = {2, kHuge, 2};
  int64_t strides[3];
  ASSERT_TRUE(contiguous_strides(sizes, 3, strides));
  EXPECT_EQ(strides[0], 3);
  EXPECT_EQ(strides[1], 3);
  EXPECT_EQ(strides[2], 1);
  EXPECT_FALSE(contiguous_strides(large, 3, strides));
}

TEST(Shape, ATensorHasAtMostTwoToThe62Elements) {
  const int64_t most[] = {kHuge, 0}, more[] = {kHuge, 0, 2}, wraps[] = {kHuge, 4, 1};
  const int64_t above[] = {kHuge + 1};
  int64_t elements = 0;
  EXPECT_TRUE(count_elements(most, 2, &elements));
  EXPECT_EQ(elements, kHuge);
  EXPECT_FALSE(count_elements(more, 3, &elements));
  EXPECT_FALSE(count_elements(wraps, 3, &elements));
  EXPECT_FALSE(count_elements(above, 1, &elements));
}

}  // namespace
}  // namespace husk
