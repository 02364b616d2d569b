// Reads an artifact for tools: mapped or borrowed, verified before anything is looked at.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "container.h"

namespace husk::compiler {

// The one place where the compiler's tools read a file. Not for running it: that is husk_program_open.
class Artifact {
 public:
  // Both fail with what the runtime's verifier says; the result is null then. `bytes` must outlive the artifact.
  static std::unique_ptr<Artifact> open(const std::filesystem::path& path, std::string& error);
  static std::unique_ptr<Artifact> view(std::span<const uint8_t> bytes, std::string& error);

  const fb::Program& program() const { return *file_.program(); }
  std::string content_hash() const;   // hexadecimal
  uint64_t size() const { return file_.size(); }
  uint64_t blob_bytes() const { return file_.blob_bytes(); }   // behind header and metadata, padding included
  // Compares every blob with its hash; empty if all match, else what does not.
  std::string check_blobs() const;

 private:
  bool verify(std::string& error);

  Container file_;
};

// Hexadecimal digits of `count` bytes.
std::string hexadecimal(const uint8_t* bytes, size_t count);

}  // namespace husk::compiler
