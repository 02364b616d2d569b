// The blobs of an artifact (images and constants): their bytes, hashes and offsets.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ir/tree.h"
#include "model/rows.h"
#include "write/mapping.h"
#include "write/safetensors.h"
#include "write/tensor_stream.h"

namespace husk::compiler {

// Takes bytes and their offset. Later calls may write the same bytes again; bytes that no call
// writes are zero.
using Sink = std::function<void(uint64_t at, std::span<const uint8_t>)>;
// A sink that writes to `out`, which it enlarges.
Sink memory_sink(std::vector<uint8_t>& out);

// The bytes that hexadecimal digits stand for.
std::vector<uint8_t> bytes_of_digits(std::string_view digits);

// The bytes of a blob: in memory, or a tensor of a stream, which can be read once.
struct Content {
  std::span<const uint8_t> bytes;
  TensorStream* stream = nullptr;
  const StoredTensor* tensor = nullptr;  // of the stream

  uint64_t size() const { return stream ? tensor->end - tensor->begin : bytes.size(); }
  // Calls `part` with the bytes, in order.
  void each(const std::function<void(std::span<const uint8_t>)>& part) const;
};

// Places blobs one behind the other, hashes them and writes them, each as it is added. Equal blobs
// are stored once. Offsets count from the blob base.
class Blobs {
 public:
  // The first blob begins at `base`, the blob base, of what `sink` writes.
  Blobs(Sink sink, uint64_t base) : sink_(std::move(sink)), base_(base) {}

  // Returns the row of the blob.
  fb::Blob add(const Content& content, uint64_t align);
  // The end of the last blob in what `sink` has written, which must be cut there: the bytes behind
  // it belong to no blob.
  uint64_t file_bytes() const { return base_ + end_; }
  // The sum of the blobs, each counted once.
  uint64_t stored_bytes() const { return stored_bytes_; }

 private:
  using Digest = std::array<uint8_t, 32>;

  void fill_to(uint64_t offset);

  Sink sink_;
  uint64_t base_;
  std::map<Digest, fb::Blob> row_of_hash_;
  uint64_t end_ = 0, stored_bytes_ = 0;
};

// The images and constants of a program. Paths are relative to a folder, except for the name of
// `stream`, which may be null. Functions throw a CompileError if a file is missing or differs from
// its description in the text.
class Sources {
 public:
  Sources(const Program& program, const std::filesystem::path& root, TensorStream* stream);

  // By the number of the row. The constants of a stream must be read in this order.
  const std::vector<Content>& images() const { return images_; }
  const std::vector<Content>& constants() const { return constants_; }

 private:
  std::span<const uint8_t> file(const Place& place, const std::string& name);
  std::span<const uint8_t> keep(std::vector<uint8_t> bytes);
  std::span<const uint8_t> image(const Image& image);
  Content constant(const Constant& constant);
  Content stored(const Constant& constant);
  const StoredTensors& tensors(const Place& place, const std::string& name);
  bool is_stream(const std::string& name) const { return stream_ && stream_->name() == name; }

  std::filesystem::path root_;
  TensorStream* stream_;
  std::map<std::string, std::unique_ptr<Mapping>> files_;
  std::map<std::string, StoredTensors> tensors_;
  std::vector<std::unique_ptr<std::vector<uint8_t>>> owned_;  // bytes that are not in a mapped file
  std::vector<Content> images_, constants_;
};

}  // namespace husk::compiler
