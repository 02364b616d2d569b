#include "text/pages.h"

namespace husk::text {

Status Pages::open(int64_t count, int64_t size, int64_t slots, int64_t columns, husk_error* error) {
  const auto all = static_cast<size_t>(count);
  columns_ = static_cast<size_t>(columns);
  HUSK_TRY(table_.resize(static_cast<size_t>(slots) * columns_, error));
  HUSK_TRY(counts_.resize(static_cast<size_t>(slots), error));
  HUSK_TRY(holders_.resize(all + 1, error));
  HUSK_TRY(counted_.resize(all + 1, error));
  HUSK_TRY(free_.reserve(all, error));
  for (int64_t page = count; page >= 1; --page) {
    HUSK_TRY(free_.push(static_cast<int32_t>(page), error));
  }
  count_ = count;
  size_ = size;
  return Status::ok;
}

bool Pages::add(size_t slot) {
  if (free_.empty()) return false;
  const int32_t page = free_[free_.size() - 1];
  free_.shrink(free_.size() - 1);
  holders_[static_cast<size_t>(page)] = 1;
  table_[slot * columns_ + static_cast<size_t>(counts_[slot]++)] = page;
  return true;
}

void Pages::release(int32_t page) {
  if (--holders_[static_cast<size_t>(page)] > 0) return;
  (void)free_.push(page, nullptr);  // has room for all pages
}

void Pages::keep(size_t slot, int64_t positions) {
  for (const int64_t kept = pages_of(positions); counts_[slot] > kept;) {
    release(of(slot)[--counts_[slot]]);
  }
}

void Pages::share(size_t from, size_t to, int64_t pages) {
  for (int64_t i = 0; i < pages; ++i) {
    const int32_t page = of(from)[i];
    int32_t& own = table_[to * columns_ + static_cast<size_t>(i)];
    ++holders_[static_cast<size_t>(page)];
    if (i < counts_[to]) {
      release(own);
    } else {
      ++counts_[to];
    }
    own = page;
  }
}

void Pages::begin_count() { memset(counted_.data(), 0, counted_.size()); }

int64_t Pages::count_first(size_t slot, int64_t pages) {
  int64_t found = 0;
  for (int64_t i = 0; i < pages && i < counts_[slot]; ++i) {
    uint8_t& counted = counted_[static_cast<size_t>(of(slot)[i])];
    found += counted == 0;
    counted = 1;
  }
  return found;
}

}  // namespace husk::text
