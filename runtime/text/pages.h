// Pages of the keys and values of sequences: which ones a slot has, in the order of its tokens, and
// how many slots have each page. Slots whose sequences begin alike share pages. Page 0 belongs to
// no slot.
#pragma once

#include "text/list.h"

namespace husk::text {

class Pages {
 public:
  // `count` pages of `size` positions each, for slots of up to `columns` pages. All memory is
  // allocated here.
  Status open(int64_t count, int64_t size, int64_t slots, int64_t columns, husk_error* error);
  // Whether the file has pages.
  bool exist() const { return size_ > 0; }
  int64_t count() const { return count_; }
  int64_t size() const { return size_; }
  int64_t used_count() const { return count_ - static_cast<int64_t>(free_.size()); }

  // The pages of a slot, and how many it has.
  const int32_t* of(size_t slot) const { return table_.data() + slot * columns_; }
  int64_t count_of(size_t slot) const { return counts_[slot]; }
  // The positions for which a slot has pages.
  int64_t room(size_t slot) const { return counts_[slot] * size_; }
  // How many pages have so many positions.
  int64_t pages_of(int64_t positions) const { return (positions + size_ - 1) / size_; }
  // Whether another slot has the page of a position, too.
  bool is_shared(size_t slot, int64_t position) const {
    return holders_[static_cast<size_t>(of(slot)[position / size_])] > 1;
  }

  // Adds a page to a slot. Returns false if none is free.
  bool add(size_t slot);
  // Leaves a slot the pages of its first `positions` alone.
  void keep(size_t slot, int64_t positions);
  // Gives the slot `to` the first `pages` pages of `from` instead of its own ones there.
  void share(size_t from, size_t to, int64_t pages);

  // Counts different pages: after `begin_count`, each call of `count_first` adds the first `pages`
  // pages of a slot, and returns how many were not counted before.
  void begin_count();
  int64_t count_first(size_t slot, int64_t pages);

 private:
  void release(int32_t page);

  int64_t count_ = 0, size_ = 0;
  size_t columns_ = 0;
  List<int32_t> table_;    // `columns_` pages of each slot, of which the first counts_ count
  List<int64_t> counts_;   // of pages, by slot
  List<int32_t> holders_;  // how many slots have a page
  List<int32_t> free_;     // pages that no slot has
  List<uint8_t> counted_;  // whether `count_first` has seen a page
};

}  // namespace husk::text
