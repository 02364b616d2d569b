#include "session/range_set.h"

#include "plan/planner.h"

namespace husk::runtime {

Status RangeSet::reserve(const husk_allocator& allocator, size_t n, husk_error* error) {
  HUSK_TRY(order_.allocate(allocator, n, error));
  return numbers_.allocate(allocator, 3 * n, error);
}

void RangeSet::add(uint32_t index, uintptr_t begin, uintptr_t end) {
  uint64_t *begins = numbers_.data(), *ends = begins + order_.size(), *reach = ends + order_.size();
  begins[index] = begin;
  ends[index] = end;
  order_[size_++] = index;
  const size_t group = size_ & (size_ - 1);  // where the last group begins
  sort(order_.data() + group, size_ - group, begins);
  uint64_t last = 0;
  for (size_t i = group; i < size_; ++i) {
    if (ends[order_[i]] > last) last = ends[order_[i]];
    reach[i] = last;
  }
}

uint32_t RangeSet::find(uintptr_t begin, uintptr_t end) const {
  const uint64_t *begins = numbers_.data(), *ends = begins + order_.size(),
                 *reach = ends + order_.size();
  for (size_t last = size_; last > 0; last &= last - 1) {
    const size_t group = last & (last - 1);
    size_t low = group, high = last;  // the first range that begins at `end` or later
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (begins[order_[middle]] < end)
        low = middle + 1;
      else
        high = middle;
    }
    if (low == group || reach[low - 1] <= begin) continue;
    while (ends[order_[low - 1]] <= begin) --low;
    return order_[low - 1];
  }
  return kNone;
}

}  // namespace husk::runtime
