#include "read/artifact.h"

#include <fmt/format.h>

#include "model/verify.h"

namespace husk::compiler {

std::string hexadecimal(const uint8_t* bytes, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += fmt::format("{:02x}", bytes[i]);
  return out;
}

bool Artifact::verify(std::string& error) {
  husk_error record = {};
  Status status = file_.read(*default_allocator(), 0, &record);
  if (!failed(status)) status = file_.parse(&record);
  if (!failed(status)) status = husk::verify(file_, *default_allocator(), &record);
  if (failed(status)) error = record.text;
  return !failed(status);
}

std::unique_ptr<Artifact> Artifact::open(const std::filesystem::path& path, std::string& error) {
  error.clear();
  auto artifact = std::make_unique<Artifact>();
  husk_error record = {};
  if (failed(artifact->file_.map(path.c_str(), &record))) {
    error = record.text;
    return nullptr;
  }
  return artifact->verify(error) ? std::move(artifact) : nullptr;
}

std::unique_ptr<Artifact> Artifact::view(std::span<const uint8_t> bytes, std::string& error) {
  error.clear();
  auto artifact = std::make_unique<Artifact>();
  artifact->file_.borrow(bytes.data(), bytes.size(), nullptr, nullptr);
  return artifact->verify(error) ? std::move(artifact) : nullptr;
}

std::string Artifact::content_hash() const { return hexadecimal(file_.content_hash(), 32); }

std::string Artifact::check_blobs() const {
  husk_error record = {};
  const fb::Program& p = program();
  for (uint32_t i = 0; i < count(p.images()); ++i) {
    const fb::Image* image = p.images()->Get(i);
    if (failed(file_.check_hash(image->blob(), "image", image->name()->c_str(), nullptr, &record)))
      return record.text;
  }
  for (uint32_t i = 0; i < count(p.constants()); ++i) {
    const fb::Constant* constant = p.constants()->Get(i);
    if (failed(file_.check_hash(constant->blob(), "constant", constant->name()->c_str(), nullptr,
                                &record)))
      return record.text;
  }
  return "";
}

}  // namespace husk::compiler
