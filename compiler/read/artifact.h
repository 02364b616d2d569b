// Reads an artifact for tools.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/container.h"

namespace husk::compiler {

// A verified artifact, mapped from a file or borrowed from memory. The tools of the compiler read
// artifacts only by this class; programs that run them use husk_program_open.
class Artifact {
 public:
  // Open a file, or view bytes in memory, which must outlive the artifact. If the runtime's
  // verifier refuses the artifact, the result is null and `error` is the verifier's text. Weights
  // that lie beside the file may be missing, unless `needs_weights`. Of a file of all ranks, the
  // artifact of `rank` is opened, or the first one if there is no such rank.
  static std::unique_ptr<Artifact> open(const std::filesystem::path& path, std::string& error,
                                        bool needs_weights = false, uint32_t rank = 0);
  static std::unique_ptr<Artifact> view(std::span<const uint8_t> bytes, std::string& error);

  const fb::Program& program() const { return *file_.program(); }
  // The number of ranks that the file has artifacts for; 0 if it is one artifact.
  uint32_t ranks() const { return file_.ranks(); }
  const uint8_t* hash() const { return file_.content_hash(); }  // the content hash, 32 bytes
  std::string content_hash() const;                             // hexadecimal
  uint32_t minor() const { return file_.minor(); }
  uint64_t size() const { return file_.size(); }
  // The name of the file of weights beside the artifact; empty if it has them inside.
  const std::string& weights() const { return weights_; }
  uint64_t metadata_bytes() const { return file_.metadata_bytes(); }
  // Bytes from the blob base to the end of the file, including padding.
  uint64_t blob_bytes() const { return file_.blob_bytes(); }
  // The metadata as they are in the file, and the bytes of one of their blobs.
  std::span<const uint8_t> metadata() const {
    return {file_.metadata(), static_cast<size_t>(file_.metadata_bytes())};
  }
  std::span<const uint8_t> bytes(const fb::Blob& blob) const {
    return {file_.blob(&blob), static_cast<size_t>(blob.size())};
  }
  // Compares every blob with its hash. Returns an error text, which is empty if all blobs match.
  std::string check_blobs() const;

 private:
  bool verify(std::string& error, uint32_t rank);

  Container file_;
  std::string weights_;
};

// The hexadecimal digits of `count` bytes.
std::string hexadecimal(const uint8_t* bytes, size_t count);

}  // namespace husk::compiler
