#include "program/constants.h"

namespace husk::runtime {

ConstantStore::~ConstantStore() {
  if (!engine_) return;
  const husk_port* port = engine_->port;
  for (void* memory : replaced_)
    if (memory) port->free(engine_->device, memory);
  if (mapped_) port->unmap(engine_->device, mapped_, mapped_bytes_);
}

Status ConstantStore::load(Engine* engine, const Container* file, uint64_t* memory,
                           husk_error* error) {
  engine_ = engine;
  file_ = file;
  const uint32_t all = husk::count(file->program()->constants());
  HUSK_TRY(addresses_.allocate(engine->allocator, all, error));
  const uint8_t *begin = nullptr, *end = nullptr;  // the range of the file that has all constants
  for (uint32_t i = 0; i < count(); ++i) {
    const uint64_t size = bytes(i);
    const uint8_t* data = file->blob(blob(i));
    addresses_[i] = const_cast<uint8_t*>(data);  // the verifier lets no step write to a constant
    if (size == 0) continue;
    if (!begin || data < begin) begin = data;
    if (data + size > end) end = data + size;
  }
  if (!begin || engine->properties.host_memory) return Status::ok;
  const Status mapping = map(begin, static_cast<uint64_t>(end - begin), error);
  return mapping == Status(HUSK_UNSUPPORTED) ? bring(memory, error) : mapping;
}

// Makes the pages of the file visible to the device. Returns HUSK_UNSUPPORTED if the device wants
// constants in memory of its own.
Status ConstantStore::map(const uint8_t* begin, uint64_t size, husk_error* error) {
  if (!engine_->port->map) return Status(HUSK_UNSUPPORTED);
  void* start = nullptr;
  HUSK_TRY(to_status(engine_->port->map(engine_->device, begin, size, &start, error)));
  mapped_ = begin;
  mapped_bytes_ = size;
  for (uint32_t i = 0; i < count(); ++i)
    addresses_[i] = static_cast<uint8_t*>(start) + (addresses_[i] - begin);
  return Status::ok;
}

// Copies the constants to memory of the device.
Status ConstantStore::bring(uint64_t* memory, husk_error* error) {
  Array<husk_upload> uploads;
  HUSK_TRY(uploads.allocate(engine_->allocator, count(), error));
  HUSK_TRY(memory_.begin(engine_, &engine_->lent_constants, count(), kDeviceAlign, error));
  for (uint32_t i = 0; i < count(); ++i)
    if (bytes(i)) memory_.add(hash(i), bytes(i));
  const uint64_t missing = memory_.borrow();
  HUSK_TRY(engine_->count_memory(missing, memory, error));
  Status status = memory_.allocate(missing, error);
  if (failed(status)) {
    prefix(error, "the constants, %llu bytes: ", static_cast<unsigned long long>(missing));
    return status;
  }
  uint32_t used = 0;
  for (uint32_t i = 0; i < count(); ++i) {
    if (!bytes(i)) continue;
    bool is_new = false;
    uint8_t* to = memory_.find(hash(i), bytes(i), &is_new);
    if (is_new) uploads[used++] = {to, addresses_[i], bytes(i)};
    addresses_[i] = to;
  }
  if (used) HUSK_TRY(upload(uploads.data(), used, error));
  memory_.lend();
  return Status::ok;
}

// Copies the pieces to the device, and reports to the application between parts of them. The parts
// of a port that copies by batches are large, since it may start threads for each.
Status ConstantStore::upload(husk_upload* uploads, uint32_t n, husk_error* error) {
  constexpr uint64_t kBatchBytes = 1 << 30;
  const husk_engine_options& options = engine_->options;
  Progress progress = {options.progress, options.progress_user, 0, 0};
  for (uint32_t i = 0; i < n; ++i) progress.total += uploads[i].size;
  const uint64_t most = !progress.report              ? progress.total
                        : engine_->port->upload_batch ? kBatchBytes
                                                      : kProgressBytes;
  HUSK_TRY(progress.add(0, error));
  for (uint32_t first = 0; first < n;) {
    uint32_t end = first;
    uint64_t bytes = 0;
    while (end < n && (end == first || bytes < most)) bytes += uploads[end++].size;
    // The rest of the last piece belongs to the next part.
    husk_upload& last = uploads[end - 1];
    const uint64_t rest = bytes > most ? bytes - most : 0;
    last.size -= rest;
    HUSK_TRY(upload_part(uploads + first, end - first, error));
    HUSK_TRY(progress.add(bytes - rest, error));
    first = end;
    if (rest == 0) continue;
    first = end - 1;
    last = {static_cast<uint8_t*>(last.to) + last.size,
            static_cast<const uint8_t*>(last.from) + last.size, rest};
  }
  return Status::ok;
}

// Waits for the uploads, because sessions run on streams of their own.
Status ConstantStore::upload_part(const husk_upload* uploads, uint32_t n, husk_error* error) {
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

Status ConstantStore::stage(const husk_constant_part* updates, uint32_t n, Array<void*>* staged,
                            husk_error* error) {
  const husk_port* port = engine_->port;
  if (replaced_.size() == 0) HUSK_TRY(replaced_.allocate(engine_->allocator, count(), error));
  HUSK_TRY(staged->allocate(engine_->allocator, n, error));
  for (uint32_t i = 0; i < n; ++i) {
    const husk_constant_part& part = updates[i];
    const uint64_t size = bytes(part.constant);
    if (size == 0) continue;
    uint32_t first = 0;  // the first part of the same constant
    while (updates[first].constant != part.constant) ++first;
    void*& memory = (*staged)[first];
    if (first == i) {
      Status status = to_status(port->alloc(engine_->device, size, &memory, error));
      if (failed(status)) {
        memory = nullptr;
        prefix(error, "the new value of constant '%s', %llu bytes: ",
               file_->program()->constants()->Get(part.constant)->name()->c_str(),
               static_cast<unsigned long long>(size));
        return status;
      }
      if (part.size < size)
        HUSK_TRY(to_status(
            port->copy(engine_->device, nullptr, memory, addresses_[part.constant], size, error)));
    }
    HUSK_TRY(to_status(port->upload(engine_->device, nullptr,
                                    static_cast<uint8_t*>(memory) + part.offset, part.bytes,
                                    part.size, error)));
  }
  return to_status(port->stream_wait(engine_->device, nullptr, error));
}

// A constant that lives in the mapped file or is shared, with another constant or another program,
// is redirected to the new allocation, which cannot fail. Otherwise the bytes are copied in place,
// so that addresses inside graphs stay valid; that fails only if the device is lost.
Status ConstantStore::swap(const husk_constant_part* updates, uint32_t n, Array<void*>* staged,
                           husk_error* error) {
  const husk_port* port = engine_->port;
  const bool in_place = memory_.claim();
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
