// The blobs of an artifact (images and constants): their bytes, hashes and offsets.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ir/tree.h"
#include "model/rows.h"
#include "write/mapping.h"
#include "write/safetensors.h"

namespace husk::compiler {

using Sink = std::function<void(std::span<const uint8_t>)>;

// The blobs of one artifact. Equal blobs are stored once. Offsets count from the blob base.
class Blobs {
 public:
  // Adds and hashes a blob. `bytes` must outlive this object. Returns the row of the blob.
  uint32_t add(std::span<const uint8_t> bytes, uint64_t align);
  // Assigns the offsets. No blob may be added after this call.
  void assign_offsets();

  fb::Blob row(uint32_t index) const;
  uint64_t bytes(uint32_t index) const { return rows_[index].bytes.size(); }
  uint64_t end() const { return end_; }
  // Writes all blobs in order, with zeros between them.
  void write(const Sink& sink) const;

 private:
  struct Row {
    std::span<const uint8_t> bytes;
    std::array<uint8_t, 32> hash;
    uint64_t align;
    uint64_t offset;
  };

  std::vector<Row> rows_;
  std::map<std::array<uint8_t, 32>, uint32_t> row_of_hash_;
  uint64_t end_ = 0;
};

// Reads the images and constants of a program. Paths are relative to a folder. Throws CompileError
// if a file is missing or differs from its description in the text.
class Sources {
 public:
  Sources(const Program& program, const std::filesystem::path& root);

  const Blobs& blobs() const { return blobs_; }
  fb::Blob image(size_t i) const { return blobs_.row(images_[i]); }
  fb::Blob constant(size_t i) const { return blobs_.row(constants_[i]); }
  uint64_t image_bytes() const { return image_bytes_; }
  uint64_t constant_bytes() const { return constant_bytes_; }

 private:
  std::span<const uint8_t> file(const Place& place, const std::string& name);
  std::span<const uint8_t> keep(std::vector<uint8_t> bytes);
  std::span<const uint8_t> image(const Image& image);
  std::span<const uint8_t> constant(const Constant& constant);
  std::span<const uint8_t> stored(const Constant& constant);

  std::filesystem::path root_;
  std::map<std::string, std::unique_ptr<Mapping>> files_;
  std::map<std::string, StoredTensors> tensors_;
  std::vector<std::unique_ptr<std::vector<uint8_t>>> owned_;  // bytes that are not in a mapped file
  Blobs blobs_;
  std::vector<uint32_t> images_, constants_;
  uint64_t image_bytes_ = 0, constant_bytes_ = 0;
};

}  // namespace husk::compiler
