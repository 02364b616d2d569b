#include "model/container.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "base/align.h"
#include "base/blake2b.h"
#include "model/weights_row.h"

namespace husk {
namespace {

template <class T>
T load(const uint8_t* at) {
  T value;
  memcpy(&value, at, sizeof(value));
  return value;
}

Status no_artifact(husk_error* error) {
  return invalid_file(error, "not a Husk artifact: no header of 64 bytes with its magic");
}

Status unusable(const char* for_what, const char* path, husk_error* error) {
  return fail(error, HUSK_IO, "cannot %s '%s': %m", for_what, path);
}

// FlatBuffers may name one table many times, so that a small file may take long to walk: the number
// of tables, counted each time, is limited to what fits without that. A table and its place in a
// vector take at least kTableBytes. Only the root table has vectors of strings, and all other
// vectors are checked at once. Tables nest four deep.
constexpr uint32_t kTableBytes = 8, kMaxDepth = 8;

// Rows are read in place, so their addresses must be multiples of their alignment. FlatBuffers'
// verifier checks that for vectors of elements of up to 4 bytes. A missing vector is aligned.
template <class T>
bool is_aligned(const flatbuffers::Vector<T>* rows) {
  return !rows || reinterpret_cast<uintptr_t>(rows->Data()) % 8 == 0;
}

template <class T>
bool has_aligned_dims(const Tables<T>* rows) {
  for (uint32_t i = 0; i < count(rows); ++i)
    if (!is_aligned(rows->Get(i)->dims())) return false;
  return true;
}

// Returns whether the generated accessors of husk.fbs may be used on `bytes`.
bool is_well_formed(const void* bytes, size_t size) {
  if (size >= FLATBUFFERS_MAX_BUFFER_SIZE) return false;
  flatbuffers::Verifier verifier(static_cast<const uint8_t*>(bytes), size, kMaxDepth,
                                 static_cast<uint32_t>(size / kTableBytes));
  if (!fb::VerifyProgramBuffer(verifier)) return false;
  const fb::Program* program = fb::GetProgram(bytes);
  bool aligned = has_aligned_dims(program->constants()) && has_aligned_dims(program->states()) &&
                 is_aligned(program->packed());
  for (uint32_t i = 0; i < count(program->functions()); ++i) {
    const fb::Function* function = program->functions()->Get(i);
    aligned = aligned && has_aligned_dims(function->inputs()) &&
              has_aligned_dims(function->outputs());
  }
  return aligned;
}

// The bytes between two reports of a Progress.

bool has_digest(Blake2b& hash, const uint8_t* digest) {
  uint8_t computed[32];
  hash.finish(computed);
  return memcmp(computed, digest, sizeof(computed)) == 0;
}

}  // namespace

Container::~Container() {
  release_file();
  if (mapped_ && data_) munmap(const_cast<uint8_t*>(data_), size_);
  if (release_) release_(release_user_, data_);
}

Status Container::map(const char* path, husk_error* error) {
  // A FIFO or a device would block, here or in a later read.
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return unusable("open", path, error);
  struct stat info;
  void* data = MAP_FAILED;
  Status status = Status::ok;
  // Redundant: fstat() of an open file does not fail on the file systems of tests.
  if (fstat(file, &info) != 0)
    status = unusable("read", path, error);
  else if (!S_ISREG(info.st_mode))
    status = fail(error, HUSK_IO, "'%s' is not a regular file", path);
  else if (info.st_size < static_cast<off_t>(kHeaderBytes))
    status = no_artifact(error);
  else if ((data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, file,
                        0)) == MAP_FAILED)
    status = unusable("map", path, error);
  if (failed(status)) {
    close(file);
    return status;
  }
  file_ = file;
  data_ = static_cast<const uint8_t*>(data);
  size_ = static_cast<uint64_t>(info.st_size);
  mapped_ = true;
  return Status::ok;
}

void Container::release_file() {
  if (file_ >= 0) close(file_);
  file_ = -1;
}

void Container::evict(const uint8_t* begin, uint64_t size) const {
  if (!mapped_) return;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t first = align_up(static_cast<uint64_t>(begin - data_), page),
                 end = (static_cast<uint64_t>(begin - data_) + size) & ~(page - 1);
  if (first < end) madvise(const_cast<uint8_t*>(data_) + first, end - first, MADV_DONTNEED);
}

void Container::borrow(const void* data, uint64_t size, void (*release)(void*, const void*),
                       void* user) {
  data_ = static_cast<const uint8_t*>(data);
  size_ = size;
  release_ = release;
  release_user_ = user;
}

// Reads the artifact at `begin` of the file. Rows of ranks, which may stand at 0 in its place, have
// the same form.
Status Container::read_at(const husk_allocator& allocator, uint64_t limit, uint64_t begin,
                          husk_error* error) {
  uint8_t header[kHeaderBytes];
  const uint64_t size = size_ - begin;
  if (size < kHeaderBytes ||
      (memcpy(header, data_ + begin, kHeaderBytes), memcmp(header, kMagic, 8) != 0))
    return no_artifact(error);
  const unsigned major = load<uint16_t>(header + 8), minor = load<uint16_t>(header + 10);
  if (major != kMajor || minor < kOldestMinor || minor > kMinor)
    return fail(error, HUSK_UNSUPPORTED,
                "the artifact has format %u.%u, this library reads %u.%u to %u.%u: %s", major,
                minor, unsigned(kMajor), unsigned(kOldestMinor), unsigned(kMajor), unsigned(kMinor),
                major > kMajor || (major == kMajor && minor > kMinor) ? "update libhusk"
                                                                      : "export the model again");
  minor_ = minor;
  const uint64_t known = kWeightsFeature | (linked_ ? detail::kLinkedFeature : 0) |
                         (begin == 0 ? kRanksFeature : 0);
  features_ = load<uint64_t>(header + 24);
  if (const uint64_t unknown = features_ & ~known)
    return fail(error, HUSK_UNSUPPORTED,
                "the artifact needs features 0x%llx, unknown here: update libhusk",
                static_cast<unsigned long long>(unknown));
  const uint64_t metadata = load<uint32_t>(header + 12), file = load<uint64_t>(header + 16);
  if (size < file && features_ & kWeightsFeature)
    return invalid_file(error,
                        "the artifact's weights lie in a file beside it: open its path by "
                        "husk_weights_open");
  if (file != size)
    return invalid_file(
        error, "the artifact is %s: its header says %llu bytes, there are %llu; copy it again",
        size < file ? "truncated" : "too long", static_cast<unsigned long long>(file),
        static_cast<unsigned long long>(size));
  blob_base_ = begin + align_up(kHeaderBytes + metadata, kBlobAlign);
  if (kHeaderBytes + metadata > size)
    return invalid_file(error, "the metadata ends after the end of the file");
  if (limit && metadata > limit)
    return fail(error, HUSK_LIMIT,
                "the metadata have %llu bytes, husk_engine_options.max_metadata_bytes is %llu",
                static_cast<unsigned long long>(metadata), static_cast<unsigned long long>(limit));
  HUSK_TRY(metadata_.allocate(allocator, metadata / 8 + 1, error));
  memcpy(metadata_.data(), data_ + begin + kHeaderBytes, metadata);
  memcpy(hash_, header + 32, sizeof(hash_));
  Blake2b hash;
  hash.update(metadata_.data(), metadata);
  if (!has_digest(hash, hash_))
    return invalid_file(error,
                        "the metadata does not match its hash: the file was changed or damaged");
  metadata_bytes_ = metadata;
  return Status::ok;
}

Status Container::read(const husk_allocator& allocator, uint64_t limit, uint32_t rank,
                       husk_error* error) {
  HUSK_TRY(read_at(allocator, limit, 0, error));
  if (!(features_ & kRanksFeature)) return Status::ok;
  ranks_ = static_cast<uint32_t>(metadata_bytes_ / sizeof(RankRow));
  rank_ = rank < ranks_ ? rank : 0;
  RankRow row = {~uint64_t{0}, {}};
  if (ranks_ * sizeof(row) == metadata_bytes_ && ranks_)
    memcpy(&row, metadata_.data() + rank_ * (sizeof(row) / 8), sizeof(row));
  if (row.offset <= size_ && row.offset % kBlobAlign == 0) {
    uint8_t whole[sizeof(hash_)];
    memcpy(whole, hash_, sizeof(whole));
    HUSK_TRY(read_at(allocator, limit, row.offset, error));
    const bool is_right = memcmp(hash_, row.hash, sizeof(row.hash)) == 0;
    memcpy(hash_, whole, sizeof(whole));
    if (is_right) return Status::ok;
  }
  return invalid_file(error, "the row of rank %u does not fit the file", rank_);
}

Status Container::parse(husk_error* error) {
  if (!is_well_formed(metadata_.data(), metadata_bytes_))
    return invalid_file(error,
                        "the metadata is not a well-formed FlatBuffer of husk.fbs, or names its "
                        "tables too often");
  program_ = fb::GetProgram(metadata_.data());
  return Status::ok;
}

Status Progress::add(uint64_t bytes, husk_error* error) {
  done += bytes;
  if (!ended) ended = report && report(user, done, total) != 0;
  if (!ended) return Status::ok;
  return fail(error, HUSK_CANCELLED,
              "husk_engine_options.progress ended the open after %llu of %llu bytes of constants",
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(total));
}

const fb::Blob* Container::blob_of(uint32_t row) const {
  const uint32_t images = constant_row(0), packed = packed_row(0);
  if (row >= packed) return &program_->packed()->Get(row - packed)->blob();
  return row < images ? program_->images()->Get(row)->blob()
                      : program_->constants()->Get(row - images)->blob();
}

const char* Container::name_of(uint32_t row) const {
  const uint32_t images = constant_row(0);
  if (row >= packed_row(0)) return "of a constant";
  return (row < images ? program_->images()->Get(row)->name()
                       : program_->constants()->Get(row - images)->name())
      ->c_str();
}

Status Container::check_hash(uint32_t row, const uint8_t* bytes, Progress* progress,
                             husk_error* error) const {
  Blake2b hash;
  for (uint64_t left = blob_of(row)->size(); left > 0;) {
    const uint64_t part = left < kProgressBytes ? left : kProgressBytes;
    hash.update(bytes, part);
    bytes += part;
    left -= part;
    if (progress) HUSK_TRY(progress->add(part, error));
  }
  if (has_digest(hash, blob_of(row)->hash().bytes()->Data())) return Status::ok;
  return invalid_file(error, "%s '%s' does not match its hash: the file was changed or damaged",
                      row < constant_row(0) ? "image"
                      : row < packed_row(0) ? "constant"
                                            : "packed copy",
                      name_of(row));
}

}  // namespace husk
