// The rules of FORMAT.md, each of which is checked in one place. Indices, kinds and extents of a
// verified file need no further check. Facts that depend on the shapes of a run are checked by the
// run.
#pragma once

#include "model/container.h"
#include "model/shape.h"

namespace husk {

enum class ResultKind : uint8_t { unknown, none, integer, floating };

// The kinds of operands of a scalar op; ops.def explains them.
enum class Slot : uint8_t { unused, integer, floating, immediate, value, dim, text, nth };

// The words that the rows HUSK_SCALAR of ops.def have in their columns.
namespace columns {
constexpr auto None = ResultKind::none;
constexpr auto Int = ResultKind::integer;
constexpr auto Float = ResultKind::floating;
constexpr auto _ = Slot::unused;
constexpr auto I = Slot::integer;
constexpr auto F = Slot::floating;
constexpr auto Imm = Slot::immediate;
constexpr auto Value = Slot::value;
constexpr auto Dim = Slot::dim;
constexpr auto Text = Slot::text;
constexpr auto Nth = Slot::nth;
}  // namespace columns

// Returns the kind of a scalar op's register, or unknown if ops.def has no such code.
ResultKind result_kind(uint16_t op);

// Checks rules 3 to 12 for a container that was read, and writes its `same_bytes`.
Status verify(Container& container, const husk_allocator& allocator, husk_error* error);

// A set of small numbers. It is cleared without a walk over its memory, so that variants may share
// it.
class Marks {
 public:
  Status allocate(const husk_allocator& allocator, size_t numbers, husk_error* error) {
    return marked_in_.allocate(allocator, numbers, error);
  }
  void clear() { ++turn_; }
  // Adds a number. Returns false if the set has it already.
  bool add(size_t number) {
    const bool is_new = marked_in_[number] != turn_;
    marked_in_[number] = turn_;
    return is_new;
  }

 private:
  Array<uint32_t> marked_in_;  // by number: the last turn in which it was added
  uint32_t turn_ = 0;
};

// Checks rules 5 to 9 for one variant, and the part of rule 10 that is about variants. `marks` has
// room for the inputs, outputs, constants, states and placement_order of the variant together.
Status verify_variant(const Code& code, Marks& marks, husk_error* error);

}  // namespace husk
