// Sorting that ends if the call is to end. The elements lie in memory that another thread may
// change meanwhile: no step but that of a block on the stack relies on their order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "core/loop.h"

namespace husk::host {
namespace {

constexpr int64_t kSortBlock = 4096;  // elements that are sorted on the stack
constexpr int64_t kSortWork = 16;     // the work of sorting a block, for each element

// Sorts at most kSortBlock elements on the stack. std::sort leaves its memory if elements change.
template <class Iterator, class Less>
[[gnu::noinline]] void sort_copy(Iterator begin, int64_t count, Less less) {
  typename std::iterator_traits<Iterator>::value_type block[kSortBlock];
  for (int64_t i = 0; i < count; ++i) block[i] = begin[i];
  std::sort(block, block + count, less);
  for (int64_t i = 0; i < count; ++i) begin[i] = block[i];
}

// Moves larger children up until element `hole` of a heap of `count` elements has its place.
template <class Iterator, class Less>
void move_down(Iterator begin, int64_t hole, int64_t count, Less less) {
  const auto element = begin[hole];
  for (int64_t child = 2 * hole + 1; child < count; child = 2 * hole + 1) {
    if (child + 1 < count && less(begin[child], begin[child + 1])) ++child;
    if (!less(element, begin[child])) break;
    begin[hole] = begin[child];
    hole = child;
  }
  begin[hole] = element;
}

template <class Iterator, class Less>
void sort_heap(Cancellation& cancellation, Iterator begin, int64_t count, Less less) {
  each_index(cancellation, count / 2,
             [&](int64_t i) { move_down(begin, count / 2 - 1 - i, count, less); });
  each_index(cancellation, count - 1, [&](int64_t done) {
    const int64_t last = count - 1 - done;
    const auto largest = begin[0];
    begin[0] = begin[last];
    begin[last] = largest;
    move_down(begin, 0, last, less);
  });
}

// Sorts elements in n log n steps (introsort). No two of them are equal. If the call is to end,
// their order is undefined. sort_block(begin, count) sorts a range of at most `block` elements.
template <class Iterator, class Less, class SortBlock>
void sort_range(Cancellation& cancellation, Iterator begin, int64_t count, Less less, int64_t block,
                SortBlock sort_block) {
  int splits_left = 2 * (63 - __builtin_clzll(static_cast<uint64_t>(count | 1)));
  for (; count > block; --splits_left) {
    if (splits_left == 0) {
      return sort_heap(cancellation, begin, count, less);
    }
    const auto first = begin[0], middle = begin[count / 2], last = begin[count - 1];
    const auto low = less(first, middle) ? first : middle,
               high = less(first, middle) ? middle : first;
    const auto pivot = less(last, low) ? low : less(last, high) ? last : high;
    int64_t below = 0;  // the number of elements that are less than the pivot
    const bool split = each_index(cancellation, count, [&](int64_t i) {
      const auto value = begin[i];
      begin[i] = begin[below];
      begin[below] = value;
      below += less(value, pivot);
    });
    if (!split) return;
    // The smaller side is sorted in a call of its own, the larger one in the next turn.
    const bool left_is_smaller = below <= count - below;
    if (left_is_smaller) {
      sort_range(cancellation, begin, below, less, block, sort_block);
      begin = begin + below;
      count -= below;
    } else {
      sort_range(cancellation, begin + below, count - below, less, block, sort_block);
      count = below;
    }
  }
  if (!cancellation.ends(kSortWork * count)) sort_block(begin, count);
}
template <class Iterator, class Less>
void sort_range(Cancellation& cancellation, Iterator begin, int64_t count, Less less,
                int64_t block = kSortBlock) {
  sort_range(cancellation, begin, count, less, block,
             [&](Iterator first, int64_t length) { sort_copy(first, length, less); });
}

}  // namespace
}  // namespace husk::host
