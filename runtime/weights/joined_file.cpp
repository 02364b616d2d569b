#include "weights/joined_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/align.h"
#include "base/blake2b.h"
#include "model/container.h"
#include "model/weights_row.h"

namespace husk::weights {
namespace {

// The most bytes of a header, which is the limit of the safetensors format.
constexpr uint64_t kMaxHeader = 100'000'000;
constexpr uint64_t kMaxBytes = uint64_t{1} << 62;

// A file that is open for reading. The destructor closes it.
struct File {
  ~File() {
    if (descriptor >= 0) close(descriptor);
  }

  // Returns true, and the size, if the file is a regular one. A FIFO or a device does not block.
  bool open(const char* path) {
    descriptor = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (descriptor < 0 || fstat(descriptor, &info) != 0) return false;
    size = static_cast<uint64_t>(info.st_size);
    if (S_ISREG(info.st_mode)) return true;
    errno = EINVAL;
    return false;
  }
  bool read(uint64_t at, void* out, size_t bytes) const {
    return pread(descriptor, out, bytes, static_cast<off_t>(at)) == static_cast<ssize_t>(bytes);
  }

  int descriptor = -1;
  uint64_t size = 0;
};

struct Header {
  uint8_t magic[8];
  uint16_t major, minor;
  uint32_t metadata_bytes;
  uint64_t file_bytes, features;
};
static_assert(sizeof(Header) == 32);

bool read_header(const File& file, Header* out) {
  return file.read(0, out, sizeof(*out)) && memcmp(out->magic, kMagic, sizeof(kMagic)) == 0;
}

const char* last_part(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

void write_name(const WeightsRow& row, char* out) {
  for (uint32_t i = 0; i < kWeightsNameBytes; ++i) out += sprintf(out, "%02x", row.hash[i]);
  strcpy(out, HUSK_WEIGHTS_ENDING);
}

// Opens the file `name` in the folder that `path` is in.
bool open_beside(const char* path, const char* name, File* out) {
  char beside[PATH_MAX];
  const int folder = static_cast<int>(last_part(path) - path);
  const int length = snprintf(beside, sizeof(beside), "%.*s%s", folder, path, name);
  if (length < 0 || static_cast<size_t>(length) >= sizeof(beside)) {
    errno = ENAMETOOLONG;
    return false;
  }
  return out->open(beside);
}

bool open_in(const char* folder, const char* name, File* out) {
  char path[PATH_MAX];
  const int length = snprintf(path, sizeof(path), "%s/", folder);
  if (length >= 0 && static_cast<size_t>(length) < sizeof(path))
    return open_beside(path, name, out);
  errno = ENAMETOOLONG;
  return false;
}

bool open_weights(const char* path, const char* folder, const char* name, File* out) {
  if (folder) return open_in(folder, name, out);
  if (open_beside(path, name, out)) return true;
  if (errno != ENOENT) return false;
  char target[PATH_MAX];
  const bool is_found = realpath(path, target) && open_beside(target, name, out);
  if (!is_found && errno == ENOTDIR) errno = ENOENT;
  return is_found;
}

// Compares the header of the weights, up to the first tensor, with its hash.
Status check_header(const File& weights, const WeightsRow& row, const char* name,
                    const char* artifact, husk_error* error) {
  uint64_t bytes = 0;
  Blake2b hash;
  bool is_right = weights.read(0, &bytes, sizeof(bytes)) && bytes <= kMaxHeader &&
                  bytes + sizeof(bytes) <= weights.size;
  bytes += sizeof(bytes);
  uint8_t part[4096], digest[32];
  for (uint64_t at = 0; is_right && at < bytes;) {
    const size_t size = bytes - at < sizeof(part) ? bytes - at : sizeof(part);
    is_right = weights.read(at, part, size);
    hash.update(part, size);
    at += size;
  }
  hash.finish(digest);
  if (is_right && memcmp(digest, row.header_hash, sizeof(row.header_hash)) == 0) return Status::ok;
  return invalid_file(error,
                      "the file %s is damaged, or not the weights of '%s': its header does not "
                      "match the artifact; copy it again",
                      name, artifact);
}

}  // namespace

bool lie_beside(const char* path) {
  File file;
  Header header;
  return file.open(path) && read_header(file, &header) && (header.features & kWeightsFeature) &&
         file.size < header.file_bytes;
}

Status join(const char* path, const char* folder, bool may_lack_weights, JoinedFile* out,
            husk_error* error) {
  const char* artifact = last_part(path);
  File file, weights;
  Header header;
  WeightsRow row;
  if (!file.open(path)) return fail(error, HUSK_IO, "cannot open '%s': %m", artifact);
  if (file.size < sizeof(row) || !read_header(file, &header) ||
      !file.read(file.size - sizeof(row), &row, sizeof(row)) || row.magic != kWeightsMagic)
    return invalid_file(error,
                        "the artifact '%s' is truncated: it does not end with the row of its "
                        "weights; copy it again",
                        artifact);
  const uint64_t begin = header.file_bytes - row.bytes;
  if (header.file_bytes > kMaxBytes || row.bytes > header.file_bytes || begin < file.size ||
      begin % kWeightsAlign != 0)
    return invalid_file(error,
                        "the artifact '%s' is damaged: its size and that of its weights differ; "
                        "copy it again",
                        artifact);
  write_name(row, out->name);
  out->size = header.file_bytes;
  const bool is_open = open_weights(path, folder, out->name, &weights);
  if (!is_open && errno == ENOENT && !may_lack_weights)
    return fail(error, HUSK_IO,
                folder ? "the weights of '%s' are missing: put the file %s into the folder of "
                         "weights that was given"
                       : "the weights of '%s' are missing: put the file %s beside it, or give the "
                         "folder that has it",
                artifact, out->name);
  if (!is_open && !may_lack_weights)
    return fail(error, HUSK_IO, "cannot open the weights of '%s', the file %s: %m", artifact,
                out->name);
  if (is_open && weights.size != row.bytes)
    return invalid_file(error,
                        "the weights of '%s', the file %s, have %llu bytes and not %llu: the file "
                        "is %s; copy it again",
                        artifact, out->name, static_cast<unsigned long long>(weights.size),
                        static_cast<unsigned long long>(row.bytes),
                        weights.size < row.bytes ? "truncated" : "another one");
  if (is_open) HUSK_TRY(check_header(weights, row, out->name, artifact, error));
  // The first mapping keeps the addresses together; what no file covers is zero.
  void* all = mmap(nullptr, out->size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                   0);
  if (all == MAP_FAILED) return fail(error, HUSK_IO, "cannot map '%s': %m", artifact);
  uint8_t* data = static_cast<uint8_t*>(all);
  const int how = MAP_PRIVATE | MAP_FIXED;
  if (mmap(data, file.size, PROT_READ, how, file.descriptor, 0) == MAP_FAILED ||
      (is_open && row.bytes &&
       mmap(data + begin, row.bytes, PROT_READ, how, weights.descriptor, 0) == MAP_FAILED)) {
    const Status status = fail(error, HUSK_IO, "cannot map '%s' and its weights: %m", artifact);
    unmap(data, out->size);
    return status;
  }
  out->data = data;
  return Status::ok;
}

void unmap(const void* data, uint64_t size) { munmap(const_cast<void*>(data), size); }

}  // namespace husk::weights
