#include "program/shared_memory.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace husk::runtime {

SharedMemory::~SharedMemory() {
  if (!shared_) return;
  const husk_port* port = engine_->port;
  {
    Lock lock(engine_->mutex);
    for (SharedMemory** at = lenders_; *at; at = &(*at)->next_lender_)
      if (*at == this) {
        *at = next_lender_;
        break;
      }
  }
  husk_error ignored;
  // A failed load may leave uploads under way.
  port->stream_wait(engine_->device, nullptr, &ignored);
  for (Block* block : {shared_, rest_}) {
    if (!block || !block->references.drop()) continue;
    port->free(engine_->device, block->memory);
    destroy(engine_->allocator, block);
  }
}

Status SharedMemory::begin(Engine* engine, SharedMemory** lenders, size_t most, uint64_t align,
                           husk_error* error) {
  engine_ = engine;
  lenders_ = lenders;
  align_ = align;
  return pieces_.allocate(engine->allocator, most, error);
}

int SharedMemory::compare(const void* a, const void* b) {
  const auto *x = static_cast<const Piece*>(a), *y = static_cast<const Piece*>(b);
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return memcmp(x->hash, y->hash, 32);
}

SharedMemory::Piece* SharedMemory::find(const Piece& wanted) const {
  return static_cast<Piece*>(bsearch(&wanted, pieces_.data(), count_, sizeof(Piece), compare));
}

// A borrowed block stays as long as one object uses it, so it is borrowed only if at least half of
// its bytes and half of the bytes of this object are common to both.
uint64_t SharedMemory::borrow() {
  qsort(pieces_.data(), added_, sizeof(Piece), compare);
  uint64_t missing = 0;
  for (size_t i = 0; i < added_; ++i) {
    if (count_ > 0 && compare(&pieces_[count_ - 1], &pieces_[i]) == 0) continue;
    pieces_[count_++] = pieces_[i];
    missing += aligned(pieces_[i]);
  }
  has_repeats_ = count_ < added_;
  Lock lock(engine_->mutex);
  for (SharedMemory* lender = *lenders_; lender && !shared_; lender = lender->next_lender_) {
    if (lender->changed_) continue;
    uint64_t common = 0;
    for (size_t i = 0; i < count_; ++i)
      if (lender->find(pieces_[i])) common += aligned(pieces_[i]);
    if (common * 2 < missing || common * 2 < lender->shared_->bytes) continue;
    for (size_t i = 0; i < count_; ++i)
      if (const Piece* lent = lender->find(pieces_[i])) pieces_[i].address = lent->address;
    missing -= common;
    shared_ = lender->shared_;
    shared_->references.retain();
  }
  return missing;
}

Status SharedMemory::allocate(uint64_t bytes, husk_error* error) {
  if (bytes == 0) return Status::ok;
  Block* block = create<Block>(engine_->allocator, error);
  if (!block) return to_status(HUSK_OUT_OF_MEMORY);
  block->bytes = bytes;
  (shared_ ? rest_ : shared_) = block;
  const Status status = to_status(
      engine_->port->alloc(engine_->device, bytes, &block->memory, error));
  if (failed(status)) block->memory = nullptr;
  free_ = static_cast<uint8_t*>(block->memory);
  return status;
}

uint8_t* SharedMemory::find(const uint8_t* hash, uint64_t bytes, bool* is_new) {
  Piece* piece = find({hash, bytes, nullptr});
  *is_new = !piece->address;
  if (*is_new) {
    piece->address = free_;
    free_ += aligned(*piece);
  }
  return piece->address;
}

void SharedMemory::lend() {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(shared_->memory);
  size_t lent = 0;
  for (size_t i = 0; i < count_; ++i)
    if (reinterpret_cast<uintptr_t>(pieces_[i].address) - begin < shared_->bytes)
      pieces_[lent++] = pieces_[i];
  count_ = lent;
  Lock lock(engine_->mutex);
  next_lender_ = *lenders_;
  *lenders_ = this;
}

bool SharedMemory::claim() {
  if (!shared_) return false;
  Lock lock(engine_->mutex);
  changed_ = true;
  return !has_repeats_ && shared_->references.alone();
}

}  // namespace husk::runtime
