#include "write/blobs.h"

#include <algorithm>

#include <husk/port.h>

#include "base/align.h"
#include "base/blake2b.h"
#include "ir/compile_error.h"
#include "ir/op_table.h"
#include "model/container.h"

namespace husk::compiler {
namespace {

int hex(char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; }

}  // namespace

std::vector<uint8_t> bytes_of_digits(std::string_view digits) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(hex(digits[i]) * 16 + hex(digits[i + 1])));
  return bytes;
}

Sink memory_sink(std::vector<uint8_t>& out) {
  return [&out](uint64_t at, std::span<const uint8_t> bytes) {
    if (out.size() < at + bytes.size()) out.resize(at + bytes.size());
    std::copy(bytes.begin(), bytes.end(), out.begin() + static_cast<ptrdiff_t>(at));
  };
}

void Content::each(const std::function<void(std::span<const uint8_t>)>& part) const {
  if (stream)
    stream->each(*tensor, part);
  else
    part(bytes);
}

fb::Blob Blobs::add(const Content& content, uint64_t align) {
  const uint64_t offset = align_up(end_, align);
  Blake2b hash;
  Digest digest;
  if (!content.stream) hash.update(content.bytes.data(), content.bytes.size());
  if (content.stream && content.size()) {
    fill_to(offset);
    uint64_t at = offset;
    content.each([&](std::span<const uint8_t> part) {
      hash.update(part.data(), part.size());
      sink_(base_ + at, part);
      at += part.size();
    });
  }
  hash.finish(digest.data());
  const auto known = row_of_hash_.find(digest);
  if (known != row_of_hash_.end() && known->second.offset() % align == 0) return known->second;
  fb::Hash bytes;
  memcpy(&bytes, digest.data(), digest.size());
  // A blob without bytes keeps offset 0, which lies inside every file.
  const fb::Blob row(content.size() ? offset : 0, content.size(), bytes);
  row_of_hash_.insert_or_assign(digest, row);
  if (content.size() == 0) return row;
  if (!content.stream) {
    fill_to(offset);
    sink_(base_ + offset, content.bytes);
  }
  end_ = offset + content.size();
  stored_bytes_ += content.size();
  return row;
}

// Writes zeros up to the place of the next blob. A stream may have left bytes there, those of a
// blob that an equal one stands for.
void Blobs::fill_to(uint64_t offset) {
  static constexpr uint8_t kZeros[kBlobAlign] = {};
  sink_(base_ + end_, {kZeros, static_cast<size_t>(offset - end_)});
}

Sources::Sources(const Program& program, const std::filesystem::path& root, TensorStream* stream)
    : root_(root), stream_(stream) {
  for (const Image& each : program.images) images_.push_back({image(each)});
  for (const Constant& each : program.constants) constants_.push_back(constant(each));
}

std::span<const uint8_t> Sources::file(const Place& place, const std::string& name) {
  std::unique_ptr<Mapping>& mapping = files_[name];
  if (!mapping) {
    std::string error;
    mapping = std::make_unique<Mapping>(root_ / name, error);
    if (!error.empty()) throw CompileError{place, error};
  }
  return mapping->bytes();
}

std::span<const uint8_t> Sources::keep(std::vector<uint8_t> bytes) {
  owned_.push_back(std::make_unique<std::vector<uint8_t>>(std::move(bytes)));
  return *owned_.back();
}

std::span<const uint8_t> Sources::image(const Image& image) {
  const std::span<const uint8_t> bytes = file(image.file.place, image.file.text);
  if (bytes.empty()) fail(image.file.place, "image '{}' is an empty file", image.name.text);
  if (image.format != HUSK_IMAGE_PTX) {
    constexpr uint8_t kElf[] = {0x7f, 'E', 'L', 'F'};
    const bool elf = bytes.size() >= 4 && memcmp(bytes.data(), kElf, 4) == 0;
    if (!elf)
      fail(image.file.place, "image '{}' is not in {} format: it does not begin with the ELF magic",
           image.name.text, image_format_name(image.format));
    return bytes;
  }
  if (bytes.back() == 0) return bytes;  // PTX ends with a NUL in the artifact
  std::vector<uint8_t> text(bytes.begin(), bytes.end());
  text.push_back(0);
  return keep(std::move(text));
}

Content Sources::constant(const Constant& c) {
  if (!c.folded_by.text.empty()) return {};
  if (c.in_file) return stored(c);
  return {keep(bytes_of_digits(c.bytes.text))};
}

const StoredTensors& Sources::tensors(const Place& place, const std::string& name) {
  if (is_stream(name)) return stream_->tensors();
  auto [tensors, inserted] = tensors_.try_emplace(name);
  if (inserted) {
    std::string error;
    tensors->second = read_safetensors(file(place, name), error);
    if (!error.empty()) fail(place, "{} {}", name, error);
  }
  return tensors->second;
}

Content Sources::stored(const Constant& c) {
  const Place place = c.bytes.place;
  const StoredTensors& all = tensors(place, c.file);
  const auto entry = all.find(c.tensor);
  if (entry == all.end()) fail(place, "{} has no tensor '{}'", c.file, c.tensor);
  const StoredTensor& tensor = entry->second;
  if (tensor.dtype != c.dtype)
    fail(place, "constant '{}' is {}, tensor '{}' of {} is {}", c.name.text, dtype_name(c.dtype),
         c.tensor, c.file, tensor.dtype_word);
  if (tensor.shape != c.dims)
    fail(place, "constant '{}' is [{}], tensor '{}' of {} is [{}]", c.name.text,
         fmt::join(c.dims, ", "), c.tensor, c.file, fmt::join(tensor.shape, ", "));
  if (is_stream(c.file)) return {{}, stream_, &tensor};
  return {tensor.bytes};
}

}  // namespace husk::compiler
