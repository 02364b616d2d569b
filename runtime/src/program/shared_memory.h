// Device memory whose content programs of an engine share.
#pragma once

#include "base/align.h"
#include "program/engine.h"

namespace husk::runtime {

// Pieces of device memory, each of which is known by the hash of its content. An object takes
// pieces from the memory of another one in the same list, has memory of its own for the others, and
// lends.
//
// Use: begin(), add() for each piece, borrow(), allocate(), find() for each piece, lend().
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  // Makes room for `most` pieces at multiples of `align`. `lenders` is a list of the engine.
  Status begin(Engine* engine, SharedMemory** lenders, size_t most, uint64_t align,
               husk_error* error);
  // Wants a piece. `hash` has 32 bytes, which must live as long as the object. Pieces with the same
  // hash and size are one.
  void add(const uint8_t* hash, uint64_t bytes) { pieces_[added_++] = {hash, bytes, nullptr}; }
  // Takes the pieces that another object of the list has. Returns the bytes of the others.
  uint64_t borrow();
  // Allocates the bytes that borrow() returned, if there are any.
  Status allocate(uint64_t bytes, husk_error* error);
  // Returns the address of a piece that was added. The first call for a piece that nobody lent
  // sets `*is_new`: its content is then to be written before lend().
  uint8_t* find(const uint8_t* hash, uint64_t bytes, bool* is_new);
  // Lets other objects take the pieces.
  void lend();
  // Ends lending. Returns true if each piece belongs to one add() of this object alone, now and
  // later, so that it may be overwritten.
  bool claim();

 private:
  struct Block {
    References references;
    void* memory = nullptr;
    uint64_t bytes = 0;
  };
  struct Piece {
    const uint8_t* hash;
    uint64_t bytes;
    uint8_t* address;
  };
  static int compare(const void* a, const void* b);
  Piece* find(const Piece& wanted) const;
  uint64_t aligned(const Piece& piece) const { return align_up(piece.bytes, align_); }

  Engine* engine_ = nullptr;
  // Objects of the list may share `shared_`; only this one uses `rest_`.
  Block *shared_ = nullptr, *rest_ = nullptr;
  // In the order of compare(); after lend() only those in `shared_`.
  Array<Piece> pieces_;
  size_t added_ = 0, count_ = 0;
  uint64_t align_ = 0;
  uint8_t* free_ = nullptr;  // where the next new piece goes
  SharedMemory** lenders_ = nullptr;
  SharedMemory* next_lender_ = nullptr;  // in `*lenders_`; guarded by the engine's mutex
  bool changed_ = false;                 // contents may have other hashes than their pieces
  bool has_repeats_ = false;             // a piece was added twice
};

}  // namespace husk::runtime
