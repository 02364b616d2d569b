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

uint32_t Blobs::add(std::span<const uint8_t> bytes, uint64_t align) {
  Row row{bytes, {}, align, 0};
  Blake2b hash;
  hash.update(bytes.data(), bytes.size());
  hash.finish(row.hash.data());
  auto [entry, inserted] = row_of_hash_.try_emplace(row.hash, static_cast<uint32_t>(rows_.size()));
  if (inserted)
    rows_.push_back(row);
  else
    rows_[entry->second].align = std::max(rows_[entry->second].align, align);
  return entry->second;
}

void Blobs::assign_offsets() {
  for (Row& row : rows_) {
    if (row.bytes.empty()) continue;  // keeps offset 0, which lies inside every file
    row.offset = align_up(end_, row.align);
    end_ = row.offset + row.bytes.size();
  }
}

fb::Blob Blobs::row(uint32_t index) const {
  const Row& row = rows_[index];
  fb::Hash hash;
  memcpy(&hash, row.hash.data(), row.hash.size());
  return fb::Blob(row.offset, row.bytes.size(), hash);
}

void Blobs::write(const Sink& sink) const {
  static constexpr uint8_t kZeros[kBlobAlign] = {};
  uint64_t at = 0;
  for (const Row& row : rows_) {
    if (row.bytes.empty()) continue;
    sink({kZeros, static_cast<size_t>(row.offset - at)});
    sink(row.bytes);
    at = row.offset + row.bytes.size();
  }
}

Sources::Sources(const Program& program, const std::filesystem::path& root) : root_(root) {
  auto add = [&](std::span<const uint8_t> bytes, uint64_t align, uint64_t& total) {
    const uint32_t row = blobs_.add(bytes, align);
    const bool is_new = std::find(images_.begin(), images_.end(), row) == images_.end() &&
                        std::find(constants_.begin(), constants_.end(), row) == constants_.end();
    if (is_new) total += bytes.size();
    return row;
  };
  for (const Image& i : program.images) images_.push_back(add(image(i), kImageAlign, image_bytes_));
  for (const Constant& c : program.constants)
    constants_.push_back(add(constant(c), kBlobAlign, constant_bytes_));
  blobs_.assign_offsets();
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

std::span<const uint8_t> Sources::constant(const Constant& c) {
  if (!c.folded_by.text.empty()) return {};
  if (c.in_file) return stored(c);
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < c.bytes.text.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(hex(c.bytes.text[i]) * 16 + hex(c.bytes.text[i + 1])));
  return keep(std::move(bytes));
}

std::span<const uint8_t> Sources::stored(const Constant& c) {
  const Place place = c.bytes.place;
  auto [tensors, inserted] = tensors_.try_emplace(c.file);
  if (inserted) {
    std::string error;
    tensors->second = read_safetensors(file(place, c.file), error);
    if (!error.empty()) fail(place, "{} {}", c.file, error);
  }
  const auto entry = tensors->second.find(c.tensor);
  if (entry == tensors->second.end()) fail(place, "{} has no tensor '{}'", c.file, c.tensor);
  const StoredTensor& tensor = entry->second;
  if (tensor.dtype != c.dtype)
    fail(place, "constant '{}' is {}, tensor '{}' of {} is {}", c.name.text, dtype_name(c.dtype),
         c.tensor, c.file, tensor.dtype_word);
  if (tensor.shape != c.dims)
    fail(place, "constant '{}' is [{}], tensor '{}' of {} is [{}]", c.name.text,
         fmt::join(c.dims, ", "), c.tensor, c.file, fmt::join(tensor.shape, ", "));
  return tensor.bytes;
}

}  // namespace husk::compiler
