#include "write/safetensors.h"

#include <fmt/format.h>

#include <cstring>

#include "ir/op_table.h"

#include <nlohmann/json.hpp>

namespace husk::compiler {
namespace {

using nlohmann::json;

struct DtypeWord {
  const char* word;
  husk_dtype dtype;
};
constexpr DtypeWord kWords[] = {
#define HUSK_SAFETENSORS(NAME, word) {#word, HUSK_##NAME},
#include <dtypes.def>
};

husk_dtype find_dtype(const std::string& word) {
  for (const DtypeWord& row : kWords)
    if (word == row.word) return row.dtype;
  return HUSK_DTYPE_NONE;
}

bool read_ints(const json& list, std::vector<int64_t>& out) {
  if (!list.is_array()) return false;
  for (const json& item : list) {
    if (!item.is_number_integer() ||
        (item.is_number_unsigned() && item.get<uint64_t>() > INT64_MAX))
      return false;
    out.push_back(item.get<int64_t>());
    if (out.back() < 0) return false;
  }
  return true;
}

// Reads one entry of the header. Returns an error text, or an empty string.
std::string read_entry(const json& entry, uint64_t data_bytes, StoredTensor& out) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry.contains("data_offsets"))
    return "has no dtype, shape or data_offsets";
  out.dtype_word = entry["dtype"].get<std::string>();
  out.dtype = find_dtype(out.dtype_word);
  std::vector<int64_t> range;
  if (!read_ints(entry["shape"], out.shape) || !read_ints(entry["data_offsets"], range) ||
      range.size() != 2)
    return "has an invalid shape or data_offsets";
  if (range[0] > range[1] || static_cast<uint64_t>(range[1]) > data_bytes)
    return fmt::format("ends at byte {} of {}: the file is truncated or damaged", range[1],
                       data_bytes);
  out.begin = static_cast<uint64_t>(range[0]);
  out.end = static_cast<uint64_t>(range[1]);
  if (out.dtype == HUSK_DTYPE_NONE) return "";
  int64_t bytes = dtype_bytes(out.dtype);
  for (int64_t size : out.shape)
    if (__builtin_mul_overflow(bytes, size, &bytes)) return "is larger than 2^63 bytes";
  return bytes == range[1] - range[0] ? "" : "does not have the bytes of its dtype and shape";
}

}  // namespace

StoredTensors read_safetensors_header(std::span<const uint8_t> header, uint64_t data_bytes,
                                      std::string& error) {
  error.clear();
  const json parsed = json::parse(header.begin(), header.end(), nullptr, false);
  if (!parsed.is_object()) {
    error = "has a header that is not a JSON object";
    return {};
  }
  StoredTensors tensors;
  for (const auto& [name, entry] : parsed.items()) {
    if (name == "__metadata__") continue;
    const std::string wrong = read_entry(entry, data_bytes, tensors[name]);
    if (wrong.empty()) continue;
    error = fmt::format("tensor '{}' {}", name, wrong);
    return {};
  }
  return tensors;
}

StoredTensors read_safetensors(std::span<const uint8_t> file, std::string& error) {
  uint64_t header = 0;
  if (file.size() >= 8)
    memcpy(&header, file.data(), 8);  // all supported platforms are little-endian
  if (file.size() < 8 || header > file.size() - 8) {
    error = "is not a safetensors file, or is truncated";
    return {};
  }
  const std::span<const uint8_t> data = file.subspan(8 + header);
  StoredTensors tensors = read_safetensors_header(file.subspan(8, header), data.size(), error);
  for (auto& [name, tensor] : tensors)
    tensor.bytes = data.subspan(tensor.begin, tensor.end - tensor.begin);
  return tensors;
}

bool SafetensorsHeader::add(const std::string& name, husk_dtype dtype,
                            const std::vector<int64_t>& shape, uint64_t begin) {
  const char* word = nullptr;
  for (const DtypeWord& row : kWords)
    if (row.dtype == dtype) word = row.word;
  if (!word) return false;
  uint64_t bytes = static_cast<uint64_t>(dtype_bytes(dtype));
  for (const int64_t size : shape) bytes *= static_cast<uint64_t>(size);
  text_ += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                       text_.size() > 1 ? "," : "", json(name).dump(), word, fmt::join(shape, ","),
                       begin, begin + bytes);
  return true;
}

}  // namespace husk::compiler
