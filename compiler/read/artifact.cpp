#include "read/artifact.h"

#include <fmt/format.h>

#include "model/verify.h"
#include "weights/joined_file.h"

namespace husk::compiler {

std::string hexadecimal(const uint8_t* bytes, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += fmt::format("{:02x}", bytes[i]);
  return out;
}

bool Artifact::verify(std::string& error, uint32_t rank) {
  husk_error record = {};
  Status status = file_.read(*default_allocator(), 0, rank, &record);
  if (!failed(status)) status = file_.parse(&record);
  if (!failed(status)) status = husk::verify(file_, *default_allocator(), &record);
  if (failed(status)) error = record.text;
  return !failed(status);
}

std::unique_ptr<Artifact> Artifact::open(const std::filesystem::path& path, std::string& error,
                                         bool needs_weights, uint32_t rank) {
  error.clear();
  auto artifact = std::make_unique<Artifact>();
  husk_error record = {};
  Status status = Status::ok;
  if (weights::lie_beside(path.c_str())) {
    weights::JoinedFile file;
    status = weights::join(path.c_str(), nullptr, !needs_weights, &file, &record);
    artifact->weights_ = file.name;
    if (!failed(status))
      artifact->file_.borrow(
          file.data, file.size,
          [](void* size, const void* data) {
            weights::unmap(data, reinterpret_cast<uintptr_t>(size));
          },
          reinterpret_cast<void*>(file.size));
  } else {
    status = artifact->file_.map(path.c_str(), &record);
  }
  if (failed(status)) {
    error = record.text;
    return nullptr;
  }
  return artifact->verify(error, rank) ? std::move(artifact) : nullptr;
}

std::unique_ptr<Artifact> Artifact::view(std::span<const uint8_t> bytes, std::string& error) {
  error.clear();
  auto artifact = std::make_unique<Artifact>();
  artifact->file_.borrow(bytes.data(), bytes.size(), nullptr, nullptr);
  return artifact->verify(error, 0) ? std::move(artifact) : nullptr;
}

std::string Artifact::content_hash() const { return hexadecimal(file_.content_hash(), 32); }

std::string Artifact::check_blobs() const {
  husk_error record = {};
  for (uint32_t row = 0; row < file_.blob_rows(); ++row)
    if (file_.same_bytes[row] == row &&
        failed(file_.check_hash(row, file_.blob(file_.blob_of(row)), nullptr, &record)))
      return record.text;
  return "";
}

}  // namespace husk::compiler
