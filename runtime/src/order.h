// Which steps must come before which: from the accesses alone, and from the memory that a plan gives them.
#pragma once

#include "evaluate.h"
#include "memory.h"

namespace husk {

// What one argument of a step does to a buffer. The byte range holds for every shape that the signature allows.
struct Access {
  uint32_t step, buffer;
  uint32_t access;      // HUSK_ACCESS_* bits
  uint64_t low, high;   // bytes from the buffer's start; high is UINT64_MAX where there is no bound
};

// Where a plan put a buffer: bytes of the arena. Only for arena buffers.
struct Placement {
  uint64_t offset, size;
};

struct Edge {
  uint32_t from, to;
};

// A set of small numbers for each row.
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

// The accesses of a variant, in step order.
Status collect_accesses(const Code& code, const Interval* intervals, const husk_allocator& allocator,
                        Array<Access>* out, husk_error* error);

// The least set of edges, by position from the end: `ancestors` row t holds every step that t waits for, directly or not.
// Steps conflict where their byte ranges meet and one of them writes; with `placements` (one a buffer, indexed like the
// buffers; null: none) two arena buffers meet where their memory does.
struct Order {
  BitRows ancestors;
  List<Edge> edges;  // sorted by `to`; within it descending by `from`

  Status build(const Code& code, const Array<Access>& accesses, const Placement* placements,
               const husk_allocator& allocator, husk_error* error);
};

}  // namespace husk
