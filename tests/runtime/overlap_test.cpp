// Overlap of tensors, against sets of bytes.
#include "model/overlap.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "model/shape.h"
#include "session/range_set.h"

namespace husk {
namespace {

struct Strided {
  uintptr_t address = 0;
  std::vector<int64_t> sizes, strides;
  size_t width = 4;

  Elements elements() const {
    return {address, sizes.data(), strides.data(), static_cast<uint32_t>(sizes.size()), width};
  }
  // The address of each element.
  std::vector<uintptr_t> places() const {
    std::vector<uintptr_t> out = {address};
    for (size_t d = 0; d < sizes.size(); ++d) {
      std::vector<uintptr_t> next;
      for (const uintptr_t place : out)
        for (int64_t i = 0; i < sizes[d]; ++i)
          next.push_back(place + static_cast<uintptr_t>(i * strides[d]) * width);
      out = next;
    }
    return out;
  }
  std::set<uintptr_t> bytes() const {
    std::set<uintptr_t> out;
    for (const uintptr_t place : places())
      for (size_t i = 0; i < width; ++i) out.insert(place + i);
    return out;
  }
};

bool share_bytes(const Strided& a, const Strided& b) {
  const std::set<uintptr_t> bytes = b.bytes();
  for (const uintptr_t byte : a.bytes())
    if (bytes.count(byte)) return true;
  return false;
}

class Random {
 public:
  explicit Random(unsigned seed) : random_(seed) {}
  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  Strided tensor() {
    Strided t;
    t.address = static_cast<uintptr_t>(1000 + pick(0, 60));
    t.width = size_t{1} << pick(0, 3);
    const int64_t rank = pick(0, 4);
    for (int64_t d = 0; d < rank; ++d) {
      t.sizes.push_back(pick(0, 9) ? pick(1, 4) : 0);
      t.strides.push_back(pick(0, 12));
    }
    return t;
  }

 private:
  std::mt19937 random_;
};

bool overlap(const Elements& a, const Elements& b) {
  uint64_t work = kMaxSearches;
  return husk::overlap(a, b, &work);
}

TEST(Overlap, AgreesWithSetsOfBytes) {
  Random random(1);
  int shared = 0, apart_in_one_range = 0;
  for (int i = 0; i < 20000; ++i) {
    const Strided a = random.tensor(), b = random.tensor();
    const bool expected = share_bytes(a, b);
    ASSERT_EQ(overlap(a.elements(), b.elements()), expected) << "case " << i;
    ASSERT_EQ(overlap(b.elements(), a.elements()), expected) << "case " << i;
    shared += expected;
    const std::set<uintptr_t> x = a.bytes(), y = b.bytes();
    apart_in_one_range += !expected && !x.empty() && !y.empty() && *x.begin() <= *y.rbegin() &&
                          *y.begin() <= *x.rbegin();
  }
  EXPECT_GT(shared, 1000);
  EXPECT_GT(apart_in_one_range, 1000);  // address ranges alone would refuse these
}

TEST(Overlap, NestedDimensionsHaveNoElementTwice) {
  Random random(2);
  int nested = 0;
  for (int i = 0; i < 20000; ++i) {
    const Strided t = random.tensor();
    if (!has_nested_dimensions(t.elements())) continue;
    const std::vector<uintptr_t> places = t.places();
    ASSERT_EQ(std::set<uintptr_t>(places.begin(), places.end()).size(), places.size()) << i;
    ++nested;
  }
  EXPECT_GT(nested, 1000);
}

TEST(Overlap, ColumnsOfOneMatrix) {
  const int64_t rows = 1000000, row = 768;
  const Strided left = {4096, {rows, 256}, {row, 1}};
  const Strided middle = {4096 + 256 * 4, {rows, 256}, {row, 1}};
  const Strided wide = {4096 + 256 * 4, {rows, 513}, {row, 1}};
  EXPECT_FALSE(overlap(left.elements(), middle.elements()));
  EXPECT_TRUE(overlap(left.elements(), left.elements()));
  EXPECT_TRUE(overlap(wide.elements(), left.elements()));  // its last column is the next row's
                                                           // first
  EXPECT_TRUE(has_nested_dimensions(left.elements()));
}

// The argument that an op may write may be another argument only with the same elements in the same
// order.
TEST(Overlap, SameElements) {
  const Strided t = {4096, {2, 3, 1}, {3, 1, 7}};
  EXPECT_TRUE(same_elements(t.elements(), t.elements()));
  EXPECT_TRUE(same_elements(t.elements(), Strided{4096, {2, 3, 1}, {3, 1, 9}}.elements()));
  const Strided others[] = {{4100, {2, 3, 1}, {3, 1, 7}},       {4096, {2, 3}, {3, 1}},
                            {4096, {2, 3, 1, 1}, {3, 1, 7, 1}}, {4096, {2, 3, 1}, {3, 1, 7}, 8},
                            {4096, {2, 2, 1}, {3, 1, 7}},       {4096, {2, 3, 1}, {4, 1, 7}}};
  for (const Strided& other : others) {
    EXPECT_FALSE(same_elements(t.elements(), other.elements())) << &other - others;
    EXPECT_FALSE(same_elements(other.elements(), t.elements())) << &other - others;
  }
}

// The search has a limit, and then it says "overlap". These tensors have no byte in common.
TEST(Overlap, GivesUp) {
  std::mt19937 random(1);
  int gave_up = 0;
  for (int i = 0; i < 70; ++i) {
    Strided a = {4096, {}, {}, 1}, b = {0, {}, {}, 1};
    for (Strided* t : {&a, &b})
      for (int d = 0; d < 8; ++d) {
        t->sizes.push_back(3);
        t->strides.push_back(static_cast<int64_t>(random() % 1000000) + 1);
      }
    b.address = 4096 + random() % 2000000;
    gave_up += overlap(a.elements(), b.elements()) && !share_bytes(a, b);
  }
  EXPECT_GT(gave_up, 0);
}

// Searches share a budget; without the rest of it, what is not found out counts as an overlap.
TEST(Overlap, SearchesHaveABudgetTogether) {
  const Strided even = {4096, {1 << 20, 8}, {16, 2}}, odd = {4100, {1 << 20, 8}, {16, 2}},
                elsewhere = {128 << 20, {8}, {2}};
  uint64_t work = 100, searches = 0;
  while (!husk::overlap(even.elements(), odd.elements(), &work)) ASSERT_LT(++searches, 101u);
  EXPECT_GT(searches, 1u);
  EXPECT_EQ(work, 0u);
  EXPECT_TRUE(husk::overlap(even.elements(), odd.elements(), &work));
  EXPECT_FALSE(husk::overlap(even.elements(), elsewhere.elements(), &work)) << "needs no search";
}

// Even and odd elements, halves of complex numbers, and steps without a common pattern: the search
// must end soon, and may say "overlap" only if it gave up.
TEST(Overlap, EndsSoon) {
  const Strided even = {4096, {1 << 30}, {2}}, odd = {4100, {1 << 30}, {2}};
  EXPECT_FALSE(overlap(even.elements(), odd.elements()));
  const Strided blocks = {4096, {1 << 20, 1 << 10}, {4096, 4}};
  const Strided between = {4096 + 8, {1 << 20, 1 << 10}, {4096, 4}};
  EXPECT_FALSE(overlap(blocks.elements(), between.elements()));
  Random random(3);
  for (int i = 0; i < 200; ++i) {
    Strided a = {4096, {}, {}}, b = {5096, {}, {}};
    for (Strided* t : {&a, &b})
      for (int d = 0; d < 16; ++d) {
        t->sizes.push_back(random.pick(2, 9));
        t->strides.push_back(random.pick(1, int64_t{1} << random.pick(1, 50)) & ~int64_t{1});
      }
    (void)overlap(a.elements(), b.elements());
  }
}

TEST(Overlap, TheSameElements) {
  const Strided a = {64, {3, 1}, {1, 7}}, b = {64, {3, 1}, {1, 9}}, c = {64, {3, 1}, {2, 7}};
  EXPECT_TRUE(same_elements(a.elements(), b.elements()));  // one row has no second stride
  EXPECT_FALSE(same_elements(a.elements(), c.elements()));
}

TEST(Overlap, CountsElements) {
  int64_t n;
  const int64_t fits[] = {0, int64_t{1} << 31, int64_t{1} << 31}, more[] = {int64_t{1} << 62, 0, 2};
  EXPECT_TRUE(count_elements(fits, 3, &n));
  EXPECT_EQ(n, int64_t{1} << 62);
  EXPECT_FALSE(count_elements(more, 3, &n));
}

// Ranges that may have bytes in common, against a search through all of them.
TEST(RangeSet, FindsARangeThatMeetsAnother) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    constexpr uint32_t kIndices = 70;
    const auto n = static_cast<uint32_t>(random.pick(0, kIndices));
    const int64_t span = random.pick(1, 2000), longest = random.pick(1, 60);
    runtime::RangeSet set;
    husk_error error;
    ASSERT_FALSE(failed(set.reserve(*default_allocator(), kIndices, &error)));
    for (int fill = 0; fill < 2; ++fill) {  // the second time after clear()
      set.clear();
      std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
      for (uint32_t i = 0; i < n; ++i) {
        const auto begin = static_cast<uintptr_t>(random.pick(100, 100 + span));
        const uintptr_t end = begin + static_cast<uintptr_t>(random.pick(1, longest));
        const uint32_t found = set.find(begin, end);
        bool any = false;
        for (const auto& range : ranges) any = any || (range.first < end && begin < range.second);
        ASSERT_EQ(found != kNone, any);
        if (any) {
          ASSERT_LT(found, ranges.size());
          EXPECT_TRUE(ranges[found].first < end && begin < ranges[found].second);
        }
        set.add(i, begin, end);
        ranges.emplace_back(begin, end);
      }
    }
  }
}

}  // namespace
}  // namespace husk
