// The order between steps that their accesses need, with or without the memory of a plan.
#pragma once

#include "base/memory.h"
#include "model/interval.h"

namespace husk {

// The access of one argument of a step to a buffer. The byte range is right for every shape that
// the signature allows.
struct Access {
  uint32_t step, buffer;
  uint32_t access;     // HUSK_ACCESS_* bits
  uint64_t low, high;  // bytes from the buffer's start; high is UINT64_MAX without a bound
};

// The bytes of the arena that a plan gives to a buffer.
struct Placement {
  uint64_t offset, size;
};

struct Edge {
  uint32_t from, to;
};

// Rows of bits: one set of small numbers per row.
class BitRows {
 public:
  Status allocate(const husk_allocator& allocator, size_t rows, size_t bits, husk_error* error) {
    words_ = (bits + 63) / 64;
    return data_.allocate(allocator, rows * words_, error);
  }
  size_t words() const { return words_; }
  uint64_t* row(size_t r) { return data_.data() + r * words_; }
  const uint64_t* row(size_t r) const { return data_.data() + r * words_; }
  void set(size_t r, size_t bit) { row(r)[bit / 64] |= 1ull << (bit % 64); }
  bool test(size_t r, size_t bit) const { return row(r)[bit / 64] >> (bit % 64) & 1; }

 private:
  Array<uint64_t> data_;
  size_t words_ = 0;
};

// Collects the accesses of a variant, in the order of its steps.
Status collect_accesses(const Code& code, const Interval* intervals,
                        const husk_allocator& allocator, Array<Access>* out, husk_error* error);

// The most work, in units of about 1 ns, to find which steps may run at the same time. Programs
// with more run their steps one after the other.
constexpr uint64_t kMaxOrderWork = 1ull << 28;
constexpr uint32_t kMaxOrderedSteps = 1u << 14;  // ancestors take a bit for each pair

// The smallest set of edges that orders all conflicting steps. Two steps conflict if their byte
// ranges overlap and one of them writes.
struct Dependences {
  BitRows ancestors;  // row t has every step that step t waits for, directly or not
  List<Edge> edges;   // sorted by `to`; within it descending by `from`
  // Each step waits for the one before it, since the order would be too much work. There are no
  // ancestors then.
  bool is_chain = false;

  // If `placements` (by buffer) is not null, buffers of the arena overlap if their memory does.
  Status build(const Code& code, const Array<Access>& accesses, const Placement* placements,
               const husk_allocator& allocator, husk_error* error);
};

}  // namespace husk
