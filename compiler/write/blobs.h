// The bytes that lie outside the metadata: where each comes from, its hash, its place in the file.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ir/tree.h"
#include "rows.h"
#include "write/mapping.h"
#include "write/safetensors.h"

namespace husk::compiler {

using Sink = std::function<void(std::span<const uint8_t>)>;

// Blobs of one artifact; equal ones are one. Offsets count from the blob base.
class Blobs {
 public:
  // `bytes` must live as long as this, and is hashed here. Returns the row of the blob.
  uint32_t add(std::span<const uint8_t> bytes, uint64_t align);
  // Gives every blob its offset; add() no more afterwards.
  void place();

  fb::Blob row(uint32_t index) const;
  uint64_t bytes(uint32_t index) const { return rows_[index].bytes.size(); }
  uint64_t end() const { return end_; }
  // All blobs in order, with the zeros between them.
  void write(const Sink& sink) const;

 private:
  struct Row {
    std::span<const uint8_t> bytes;
    std::array<uint8_t, 32> hash;
    uint64_t align;
    uint64_t offset;
  };

  std::vector<Row> rows_;
  std::map<std::array<uint8_t, 32>, uint32_t> known_;
  uint64_t end_ = 0;
};

// The images and constants of a program, found under a folder. Throws Failure where one is not there, or is not what
// the text says.
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
  std::vector<std::unique_ptr<std::vector<uint8_t>>> made_;
  Blobs blobs_;
  std::vector<uint32_t> images_, constants_;
  uint64_t image_bytes_ = 0, constant_bytes_ = 0;
};

}  // namespace husk::compiler
