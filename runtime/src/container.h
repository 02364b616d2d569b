// The file as bytes: header, metadata, blobs (FORMAT.md, "Header").
#pragma once

#include "memory.h"
#include "rows.h"

#include <husk/port.h>

namespace husk {

constexpr uint8_t kMagic[8] = {'H', 'U', 'S', 'K', '\r', '\n', 0x1a, '\n'};
constexpr uint16_t kMajor = 0, kMinor = 2;
constexpr uint64_t kHeaderBytes = 64, kBlobAlign = 4096, kImageAlign = 64;

// Bytes of a file, mapped or borrowed, with a private copy of the metadata.
class Container {
 public:
  Container() = default;
  Container(const Container&) = delete;
  Container& operator=(const Container&) = delete;
  ~Container();

  Status map(const char* path, husk_error* error);
  // Calls `release` (may be null) when the container goes, unless drop() came first.
  void borrow(const void* data, uint64_t size, void (*release)(void*, const void*), void* user);
  void drop() { release_ = nullptr; }

  // Checks header and metadata (rules 1 and 2) and keeps a copy of them.
  Status read(const husk_allocator& allocator, husk_error* error);

  const fb::Program* program() const { return program_; }
  const uint8_t* content_hash() const { return hash_; }
  uint64_t size() const { return size_; }
  uint64_t blob_bytes() const { return size_ > blob_base_ ? size_ - blob_base_ : 0; }
  // The file, open until release_file(); begin is null where the bytes are borrowed.
  husk_mapping mapping() const { return {file_ < 0 ? nullptr : data_, size_, file_, 0}; }
  void release_file();
  // Valid for blobs that were verified.
  const uint8_t* blob(const fb::Blob* blob) const { return data_ + blob_base_ + blob->offset(); }
  // Compares a blob with its hash; `what` and `name` are for the message.
  Status check_hash(const fb::Blob* blob, const char* what, const char* name, husk_error* error) const;

 private:
  const uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
  bool mapped_ = false;
  int file_ = -1;
  void (*release_)(void*, const void*) = nullptr;
  void* release_user_ = nullptr;
  Array<uint64_t> metadata_;  // words, for alignment
  uint8_t hash_[32] = {};
  uint64_t blob_base_ = 0;
  const fb::Program* program_ = nullptr;
};

}  // namespace husk
