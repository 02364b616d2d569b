// Sorting that ends if the call is to end.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/loop.h"

namespace husk::host {
namespace {

constexpr int64_t kSortBlock = int64_t{1} << 20;  // elements that are sorted without a question
constexpr int64_t kSortWork = 16;                 // the work of sorting a block, for each element

// Sorts elements in n log n steps (introsort). No two of them are equal. If the call is to end,
// their order is undefined. Ranges of at most `block` elements are left to std::sort.
template <class Iterator, class Less>
void sort_range(Cancellation& cancellation, Iterator begin, int64_t count, Less less,
                int64_t block = kSortBlock) {
  int splits_left = 2 * (63 - __builtin_clzll(static_cast<uint64_t>(count | 1)));
  for (; count > block; --splits_left) {
    if (splits_left == 0) {
      each_index(cancellation, count,
                 [&](int64_t i) { std::push_heap(begin, begin + i + 1, less); });
      each_index(cancellation, count,
                 [&](int64_t i) { std::pop_heap(begin, begin + (count - i), less); });
      return;
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
      sort_range(cancellation, begin, below, less, block);
      begin = begin + below;
      count -= below;
    } else {
      sort_range(cancellation, begin + below, count - below, less, block);
      count = below;
    }
  }
  if (!cancellation.ends(kSortWork * count)) std::sort(begin, begin + count, less);
}

}  // namespace
}  // namespace husk::host
