// Loops over elements (core/loop.h).
#include "core/loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace husk::host_test {
namespace {

class LoopOfACall : public ::testing::Test {
 protected:
  husk_op_context context = {};
  husk_error error = {};
  host::Cancellation cancellation{context};
  const host::Op row = {"test::loop", nullptr, ""};
  const host::Arguments args{row, &context, cancellation, nullptr, 0, &error};
};

// A loop does not require that the product of the sizes beside the zero fits an int64_t.
TEST_F(LoopOfACall, WithoutElementsIsMergedWithoutItsProduct) {
  const int64_t huge = int64_t{1} << 40;
  host::Loop<1> loop(args);
  loop.rank = 4;
  const int64_t sizes[] = {huge, huge, huge, 0}, strides[] = {0, 0, 0, 5};
  std::copy_n(sizes, 4, loop.sizes);
  std::copy_n(strides, 4, loop.strides[0]);
  loop.merge();
  EXPECT_EQ(loop.rank, 1);
  EXPECT_EQ(loop.sizes[0], 0);
  EXPECT_TRUE(each(loop, [](const int64_t(&)[1]) { ADD_FAILURE(); }));
}

// A row of two merged dimensions has the elements of both, in order.
TEST_F(LoopOfACall, MergesWhatAllOperandsWalkWithOneStride) {
  host::Loop<2> loop(args);
  loop.rank = 4;
  const int64_t sizes[] = {2, 1, 3, 4}, first[] = {12, 7, 4, 1}, second[] = {100, 9, 8, 2};
  std::copy_n(sizes, 4, loop.sizes);
  std::copy_n(first, 4, loop.strides[0]);
  std::copy_n(second, 4, loop.strides[1]);
  loop.merge();
  ASSERT_EQ(loop.rank, 2);
  EXPECT_EQ(loop.sizes[0], 2);
  EXPECT_EQ(loop.sizes[1], 12);
  std::vector<std::pair<int64_t, int64_t>> visited;
  EXPECT_TRUE(each(loop, [&](const int64_t(&at)[2]) { visited.emplace_back(at[0], at[1]); }));
  ASSERT_EQ(visited.size(), 24u);
  for (int64_t i = 0; i < 24; ++i)
    EXPECT_EQ(visited[i], std::make_pair(i, i / 12 * 100 + i % 12 * 2));
}

}  // namespace
}  // namespace husk::host_test
