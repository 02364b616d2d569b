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

// Images in the channels-last format are walked in the order of their memory, unless they have few
// channels or one of them has another format.
TEST_F(LoopOfACall, EndsWithTheDimensionOfAdjacentElements) {
  const auto loop_of = [&](int64_t channels, int64_t channel_stride) {
    host::Loop<2> loop(args);
    loop.rank = 3;
    const int64_t sizes[] = {channels, 3, 4}, first[] = {1, 4 * channels, channels},
                  second[] = {channel_stride, 400, 100};
    std::copy_n(sizes, 3, loop.sizes);
    std::copy_n(first, 3, loop.strides[0]);
    std::copy_n(second, 3, loop.strides[1]);
    loop.end_with_adjacent();
    loop.merge();
    return loop;
  };
  const host::Loop<2> loop = loop_of(20, 1);
  ASSERT_EQ(loop.rank, 2);
  EXPECT_EQ(loop.sizes[0], 12);
  EXPECT_EQ(loop.sizes[1], 20);
  int64_t visited = 0;
  EXPECT_TRUE(each(loop, [&](const int64_t(&at)[2]) {
    EXPECT_EQ(at[0], visited);
    EXPECT_EQ(at[1], visited / 20 * 100 + visited % 20);
    ++visited;
  }));
  EXPECT_EQ(visited, 240);
  EXPECT_EQ(loop_of(20, 2).sizes[0], 20);
  EXPECT_EQ(loop_of(3, 1).sizes[0], 3);
}

}  // namespace
}  // namespace husk::host_test
