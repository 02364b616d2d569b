// The file as bytes: header, metadata, blobs (FORMAT.md, "Header").
#pragma once

#include <husk/detail/linked.h>
#include <husk/port.h>

#include "base/memory.h"
#include "model/rows.h"

namespace husk {

constexpr uint8_t kMagic[8] = {'H', 'U', 'S', 'K', '\r', '\n', 0x1a, '\n'};
// The version that writers write, and the oldest minor version that is read.
constexpr uint16_t kMajor = 0, kMinor = 7, kOldestMinor = 2;
constexpr uint64_t kProgressBytes = 4 << 20;  // between two reports
constexpr uint64_t kHeaderBytes = 64, kBlobAlign = 4096, kImageAlign = 64;

// The bit of the header's feature bits which says that the file holds the artifacts of all ranks
// (FORMAT.md, "All ranks in one file"). Rows take the place of the metadata, one for each rank.
constexpr uint64_t kRanksFeature = 4;
struct RankRow {
  uint64_t offset;   // where the artifact begins, in bytes from the begin of the file
  uint8_t hash[32];  // of its metadata
};
static_assert(sizeof(RankRow) == 40);

// How many bytes of constants have been compared with their hashes, copied to the device or laid
// out for ops, and whom to tell.
struct Progress {
  int32_t (*report)(void* user, uint64_t done, uint64_t total);  // husk_engine_options.progress
  void* user;
  uint64_t done, total;
  bool ended = false;  // the application said so

  // Reports `bytes` more. Fails with HUSK_CANCELLED if the application says so.
  Status add(uint64_t bytes, husk_error* error);
};

// Bytes of a file, mapped or borrowed, with a private copy of the metadata.
class Container {
 public:
  Container() = default;
  Container(const Container&) = delete;
  Container& operator=(const Container&) = delete;
  ~Container();

  Status map(const char* path, husk_error* error);
  // The destructor calls `release` (may be null), unless drop() was called.
  void borrow(const void* data, uint64_t size, void (*release)(void*, const void*), void* user);
  void drop() { release_ = nullptr; }
  // Says that the bytes are part of an object file, with this table.
  void set_linked(const detail::LinkedTable* table) { linked_ = table; }
  // The table of the object file; null if the bytes are a file.
  const detail::LinkedTable* linked() const { return linked_; }
  // The launches that the object file has code for.
  Rows<detail::LinkedLaunches> linked_launches() const {
    // Only the port knows whether images of another table are in use, and refuses them.
    if (!linked_ || linked_->magic != detail::kLinkedMagic) return {};
    return {linked_->launches, static_cast<uint32_t>(linked_->launches_count)};
  }

  // Checks the header and the hash of the metadata (rule 1), and keeps a copy of the metadata.
  // Metadata of more than `limit` bytes fail with HUSK_LIMIT; 0 is no limit. Of a file of all ranks
  // it reads the artifact of `rank`, or the first one if there is no such rank.
  Status read(const husk_allocator& allocator, uint64_t limit, uint32_t rank, husk_error* error);
  // Parses the metadata after read() (rule 2).
  Status parse(husk_error* error);

  const fb::Program* program() const { return program_; }
  // The content hash of the whole file, which may be one of all ranks.
  const uint8_t* content_hash() const { return hash_; }
  // The ranks of a file of all ranks, and the one that was read; 0 of 0 for another file.
  uint32_t ranks() const { return ranks_; }
  uint32_t rank() const { return rank_; }
  // The minor version of the file; the major version is kMajor.
  uint32_t minor() const { return minor_; }
  uint64_t size() const { return size_; }
  const uint8_t* metadata() const { return reinterpret_cast<const uint8_t*>(metadata_.data()); }
  uint64_t metadata_bytes() const { return metadata_bytes_; }
  uint64_t blob_bytes() const { return size_ > blob_base_ ? size_ - blob_base_ : 0; }
  // The mapped file, which is open until release_file(); `begin` is null if the bytes are borrowed.
  husk_mapping mapping() const {
    return {sizeof(husk_mapping), file_, file_ < 0 ? nullptr : data_, size_};
  }
  void release_file();
  // Lets the system take the memory of these bytes, if they are mapped. They can still be read: the
  // system brings them back from the file.
  void evict(const uint8_t* begin, uint64_t size) const;
  // The bytes of a blob, which must be verified.
  const uint8_t* blob(const fb::Blob* blob) const { return data_ + blob_base_ + blob->offset(); }
  // Rows with a blob have numbers: the images first, then the constants, then the packed copies.
  uint32_t blob_rows() const { return packed_row(count(program_->packed())); }
  uint32_t constant_row(uint32_t constant) const { return count(program_->images()) + constant; }
  uint32_t packed_row(uint32_t copy) const {
    return constant_row(count(program_->constants())) + copy;
  }
  const fb::Blob* blob_of(uint32_t row) const;
  const char* name_of(uint32_t row) const;
  // By row: a row with the same bytes, which is its own for just one of them. Rows without bytes
  // have their own number. verify() writes it.
  Array<uint32_t> same_bytes;
  // The functions that the application calls, and the constants whose bytes the file has. Those
  // that are folded, and the functions that fold them, come after these. verify() writes both.
  uint32_t entry_points = 0, stored_constants = 0;
  // Compares the bytes of a row's blob, which begin at `bytes`, with its hash. `progress` may be
  // null.
  Status check_hash(uint32_t row, const uint8_t* bytes, Progress* progress,
                    husk_error* error) const;

 private:
  Status read_at(const husk_allocator& allocator, uint64_t limit, uint64_t begin,
                 husk_error* error);

  const uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
  bool mapped_ = false;
  int file_ = -1;
  void (*release_)(void*, const void*) = nullptr;
  void* release_user_ = nullptr;
  const detail::LinkedTable* linked_ = nullptr;
  Array<uint64_t> metadata_;  // words, because rows are aligned to 8 bytes
  uint64_t metadata_bytes_ = 0;
  uint8_t hash_[32] = {};
  uint32_t minor_ = 0;
  uint32_t ranks_ = 0, rank_ = 0;
  uint64_t features_ = 0;
  uint64_t blob_base_ = 0;  // from the begin of the file
  const fb::Program* program_ = nullptr;
};

}  // namespace husk
