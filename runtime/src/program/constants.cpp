#include "program/constants.h"

#include <cstdlib>
#include <cstring>

#include "base/align.h"

namespace husk::runtime {

ConstantStore::~ConstantStore() {
  if (!engine_) return;
  const husk_port* port = engine_->port;
  for (void* memory : replaced_)
    if (memory) port->free(engine_->device, memory);
  if (mapped_) port->unmap(engine_->device, mapped_, mapped_bytes_);
  if (!shared_) return;
  stop_lending();
  husk_error ignored;
  port->stream_wait(engine_->device, nullptr, &ignored);  // a failed load may leave uploads under
                                                          // way
  for (ConstantMemory* allocation : {shared_, rest_}) {
    if (!allocation || !allocation->references.drop()) continue;
    port->free(engine_->device, allocation->memory);
    destroy(engine_->allocator, allocation);
  }
}

Status ConstantStore::load(Engine* engine, const Container* file, husk_error* error) {
  engine_ = engine;
  file_ = file;
  const uint32_t n = husk::count(file->program()->constants());
  HUSK_TRY(addresses_.allocate(engine->allocator, n, error));
  uint64_t total = 0;
  const uint8_t *begin = nullptr, *end = nullptr;  // the range of the file that has all constants
  for (uint32_t i = 0; i < n; ++i) {
    const uint64_t size = bytes(i);
    const uint8_t* data = file->blob(blob(i));
    addresses_[i] = const_cast<uint8_t*>(data);  // the verifier lets no step write to a constant
    if (size == 0) continue;
    if (total == 0 || data < begin) begin = data;
    if (total == 0 || data + size > end) end = data + size;
    total += align_up(size, kDeviceAlign);
  }
  if (total == 0 || engine->properties.host_memory) return Status::ok;
  const Status mapping = map(begin, static_cast<uint64_t>(end - begin), error);
  if (mapping != Status(HUSK_UNSUPPORTED)) return mapping;

  borrow(&total);
  if (total > 0) HUSK_TRY(bring(total, error));
  return lend(error);
}

// Makes the pages of the file visible to the device. Returns HUSK_UNSUPPORTED if the device wants
// constants in memory of its own.
Status ConstantStore::map(const uint8_t* begin, uint64_t size, husk_error* error) {
  if (!engine_->port->map) return Status(HUSK_UNSUPPORTED);
  void* start = nullptr;
  HUSK_TRY(to_status(engine_->port->map(engine_->device, begin, size, &start, error)));
  mapped_ = begin;
  mapped_bytes_ = size;
  for (uint8_t*& address : addresses_) address = static_cast<uint8_t*>(start) + (address - begin);
  return Status::ok;
}

int ConstantStore::compare_bytes(const void* a, const void* b) {
  const fb::Blob *x = static_cast<const Lent*>(a)->blob, *y = static_cast<const Lent*>(b)->blob;
  if (x->size() != y->size()) return x->size() < y->size() ? -1 : 1;
  return memcmp(x->hash().bytes()->Data(), y->hash().bytes()->Data(), 32);
}

// Returns the address of the same bytes in the shared allocation of this store, or null.
uint8_t* ConstantStore::find_shared(const fb::Blob* wanted) const {
  const Lent key = {wanted, nullptr};
  const auto* found = static_cast<const Lent*>(
      bsearch(&key, lent_.data(), lent_count_, sizeof(Lent), compare_bytes));
  return found ? found->address : nullptr;
}

// Uses the constants of another store, and subtracts their bytes from `missing`. A borrowed
// allocation stays as long as one program uses it, so it is borrowed only if at least half of its
// bytes and half of `missing` are common to both.
void ConstantStore::borrow(uint64_t* missing) {
  Lock lock(engine_->mutex);
  for (ConstantStore* lender = engine_->lenders; lender && !shared_;
       lender = lender->next_lender_) {
    if (lender->changed_) continue;
    uint64_t common = 0;
    for (uint32_t i = 0; i < count(); ++i)
      if (bytes(i) && lender->find_shared(blob(i))) common += align_up(bytes(i), kDeviceAlign);
    if (common * 2 < *missing || common * 2 < lender->shared_->bytes) continue;
    for (uint32_t i = 0; i < count(); ++i)
      if (uint8_t* address = bytes(i) ? lender->find_shared(blob(i)) : nullptr)
        addresses_[i] = address;
    *missing -= common;
    shared_ = lender->shared_;
    shared_->references.retain();
  }
}

// Lets other stores find the constants in the shared allocation.
Status ConstantStore::lend(husk_error* error) {
  HUSK_TRY(lent_.allocate(engine_->allocator, count(), error));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(shared_->memory);
  for (uint32_t i = 0; i < count(); ++i)
    if (bytes(i) && reinterpret_cast<uintptr_t>(addresses_[i]) - begin < shared_->bytes)
      lent_[lent_count_++] = {blob(i), addresses_[i]};
  qsort(lent_.data(), lent_count_, sizeof(Lent), compare_bytes);
  Lock lock(engine_->mutex);
  next_lender_ = engine_->lenders;
  engine_->lenders = this;
  return Status::ok;
}

void ConstantStore::stop_lending() {
  Lock lock(engine_->mutex);
  for (ConstantStore** at = &engine_->lenders; *at; at = &(*at)->next_lender_)
    if (*at == this) {
      *at = next_lender_;
      return;
    }
}

// Copies the constants that are still in the file to a new allocation of `total` bytes.
Status ConstantStore::bring(uint64_t total, husk_error* error) {
  Array<husk_upload> uploads;
  HUSK_TRY(uploads.allocate(engine_->allocator, count(), error));
  ConstantMemory* allocation = create<ConstantMemory>(engine_->allocator, error);
  if (!allocation) return to_status(HUSK_OUT_OF_MEMORY);
  allocation->bytes = total;
  (shared_ ? rest_ : shared_) = allocation;
  Status status = to_status(
      engine_->port->alloc(engine_->device, total, &allocation->memory, error));
  if (failed(status)) {
    allocation->memory = nullptr;
    prefix(error, "the constants, %llu bytes: ", static_cast<unsigned long long>(total));
    return status;
  }
  uint32_t used = 0;
  uint8_t* to = static_cast<uint8_t*>(allocation->memory);
  for (uint32_t i = 0; i < count(); ++i) {
    const uint64_t size = bytes(i);
    if (size == 0 || addresses_[i] != file_->blob(blob(i))) continue;
    uploads[used++] = {to, addresses_[i], size};
    addresses_[i] = to;
    to += align_up(size, kDeviceAlign);
  }
  return upload(uploads.data(), used, error);
}

// Waits for the uploads, because sessions run on streams of their own.
Status ConstantStore::upload(const husk_upload* uploads, uint32_t n, husk_error* error) {
  const husk_port* port = engine_->port;
  if (port->upload_batch) {
    const husk_mapping mapping = file_->mapping();
    return to_status(
        port->upload_batch(engine_->device, uploads, n, mapping.begin ? &mapping : nullptr, error));
  }
  for (uint32_t i = 0; i < n; ++i)
    HUSK_TRY(to_status(port->upload(engine_->device, nullptr, uploads[i].to, uploads[i].from,
                                    uploads[i].size, error)));
  return to_status(port->stream_wait(engine_->device, nullptr, error));
}

Status ConstantStore::stage(const husk_constant_update* updates, uint32_t n, Array<void*>* staged,
                            husk_error* error) {
  const husk_port* port = engine_->port;
  if (replaced_.size() == 0) HUSK_TRY(replaced_.allocate(engine_->allocator, count(), error));
  HUSK_TRY(staged->allocate(engine_->allocator, n, error));
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t constant = updates[i].constant;
    const uint64_t size = bytes(constant);
    if (size == 0) continue;
    void*& memory = (*staged)[i];
    Status status = to_status(port->alloc(engine_->device, size, &memory, error));
    if (failed(status)) {
      memory = nullptr;
      prefix(error, "the new value of constant '%s', %llu bytes: ",
             file_->program()->constants()->Get(constant)->name()->c_str(),
             static_cast<unsigned long long>(size));
      return status;
    }
    HUSK_TRY(
        to_status(port->upload(engine_->device, nullptr, memory, updates[i].bytes, size, error)));
  }
  return to_status(port->stream_wait(engine_->device, nullptr, error));
}

// Ends lending. Returns true if no other program uses the shared allocation, now or later, so that
// its bytes may be overwritten.
bool ConstantStore::claim() {
  Lock lock(engine_->mutex);
  changed_ = true;
  return shared_ && shared_->references.alone();
}

// A constant that lives in the mapped file or is shared is redirected to the new allocation, which
// cannot fail. Otherwise the bytes are copied in place, so that addresses inside graphs stay valid;
// that fails only if the device is lost.
Status ConstantStore::swap(const husk_constant_update* updates, uint32_t n, Array<void*>* staged,
                           husk_error* error) {
  const husk_port* port = engine_->port;
  const bool in_place = claim();
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t constant = updates[i].constant;
    void*& memory = (*staged)[i];
    if (!memory) continue;
    if (in_place) {
      HUSK_TRY(to_status(port->copy(engine_->device, nullptr, addresses_[constant], memory,
                                    bytes(constant), error)));
      continue;
    }
    void* old = replaced_[constant];
    replaced_[constant] = memory;
    addresses_[constant] = static_cast<uint8_t*>(memory);
    memory = old;
    ++version_;
  }
  return in_place ? to_status(port->stream_wait(engine_->device, nullptr, error)) : Status::ok;
}

}  // namespace husk::runtime
