#include "run/files.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

#include <husk/husk.h>

#include "run/run_error.h"

#include <nlohmann/json.hpp>

namespace husk::run {

namespace {

struct Name {
  const char* text;
  husk_dtype dtype;
};

constexpr Name safetensors_names[] = {
#define HUSK_SAFETENSORS(NAME, word) {#word, HUSK_##NAME},
#include <dtypes.def>
};

constexpr Name npy_names[] = {
#define HUSK_NUMPY(NAME, name, npy, format) {#npy, HUSK_##NAME},
#include <dtypes.def>
};

template <size_t N>
husk_dtype dtype_of(const Name (&names)[N], const std::string& text) {
  for (const Name& name : names)
    if (text == name.text) return name.dtype;
  return HUSK_DTYPE_NONE;
}

constexpr size_t kMaxNpyRank = 64;  // the most dimensions of an array of NumPy

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File file_open(const std::string& path, const char* mode) {
  File file(std::fopen(path.c_str(), mode), std::fclose);
  if (!file) fail(exit_usage, "{}: {}", path, std::strerror(errno));
  return file;
}

std::vector<unsigned char> file_read(const std::string& path) {
  const File file = file_open(path, "rb");
  std::vector<unsigned char> bytes;
  unsigned char chunk[1 << 16];
  while (const size_t size = std::fread(chunk, 1, sizeof chunk, file.get()))
    bytes.insert(bytes.end(), chunk, chunk + size);
  if (std::ferror(file.get())) fail(exit_usage, "{}: {}", path, std::strerror(errno));
  return bytes;
}

// Reads one entry of a safetensors header. `data` points to the `size` bytes after the header.
Tensor safetensors_entry(const std::string& path, const std::string& name,
                         const nlohmann::json& entry, const unsigned char* data, size_t size) {
  const auto dtype_name = entry.at("dtype").get<std::string>();
  const husk_dtype dtype = dtype_of(safetensors_names, dtype_name);
  if (dtype == HUSK_DTYPE_NONE)
    fail(exit_usage, "{}: tensor {} has dtype {}", path, name, dtype_name);
  const auto offsets = entry.at("data_offsets").get<std::vector<uint64_t>>();
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > size)
    fail(exit_usage, "{}: tensor {} lies outside the file", path, name);
  const auto sizes = entry.at("shape").get<std::vector<int64_t>>();
  Tensor tensor{dtype, sizes, {data + offsets[0], data + offsets[1]}};
  int64_t expected = static_cast<int64_t>(husk_dtype_size(dtype));
  for (int64_t dim : sizes) {
    if (dim < 0 || __builtin_mul_overflow(expected, dim, &expected)) expected = -1;
    if (expected < 0) break;
  }
  if (expected != static_cast<int64_t>(tensor.bytes.size())) {
    fail(exit_usage, "{}: tensor {} is {}, but has {} bytes", path, name, type_text(dtype, sizes),
         tensor.bytes.size());
  }
  return tensor;
}

// The header of an .npy file, which is a Python dict on one line: {'descr': '<f4', ...}.
class NpyHeader {
 public:
  NpyHeader(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  // The characters of the value of a key between `open` and `close`.
  std::string_view between(std::string_view key, char open, char close) const {
    const std::string_view rest = value(key);
    const size_t end = rest.find(close, 1);
    if (rest.empty() || rest[0] != open || end == std::string_view::npos) refuse();
    return rest.substr(1, end - 1);
  }
  bool is_true(std::string_view key) const {
    const std::string_view rest = value(key);
    const bool yes = rest.substr(0, 4) == "True";
    if (!yes && rest.substr(0, 5) != "False") refuse();
    return yes;
  }
  [[noreturn]] void refuse() const {
    fail(exit_usage, "{}: its header is not understood: {}", path_, start_of(text_));
  }
  // A text of any length, cut for an error message.
  static std::string start_of(std::string_view text) {
    constexpr size_t kMost = 200;
    return std::string(text.substr(0, kMost)) + (text.size() > kMost ? "..." : "");
  }

 private:
  // The text that follows "'key': ".
  std::string_view value(std::string_view key) const {
    const std::string quoted = "'" + std::string(key) + "':";
    const size_t at = text_.find(quoted);
    if (at == std::string_view::npos) refuse();
    std::string_view rest = text_.substr(at + quoted.size());
    while (!rest.empty() && rest[0] == ' ') rest.remove_prefix(1);
    return rest;
  }

  const std::string& path_;
  const std::string_view text_;
};

// The numbers of a shape such as "2, 3,".
std::vector<int64_t> npy_sizes(const std::string& path, const NpyHeader& header) {
  const std::string_view shape = header.between("shape", '(', ')');
  std::vector<int64_t> sizes;
  const char* at = shape.data();
  const char* const end = at + shape.size();
  while (at < end) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    int64_t size = 0;
    const auto [stop, error] = std::from_chars(at, end, size);
    if (error == std::errc::result_out_of_range || sizes.size() == kMaxNpyRank)
      fail(exit_usage, "{}: its shape ({}) is too large", path, NpyHeader::start_of(shape));
    if (error != std::errc() || size < 0) header.refuse();
    sizes.push_back(size);
    at = stop;
  }
  return sizes;
}

}  // namespace

TensorMap safetensors_read(const std::string& path) {
  const std::vector<unsigned char> bytes = file_read(path);
  uint64_t length = 0;
  if (bytes.size() < sizeof length) fail(exit_usage, "{}: too short for safetensors", path);
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > bytes.size() - sizeof length)
    fail(exit_usage, "{}: not a safetensors file: its header leaves the file", path);
  const unsigned char* data = bytes.data() + sizeof length + length;
  try {
    const auto header = nlohmann::json::parse(bytes.data() + sizeof length, data);
    TensorMap tensors;
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      tensors[name] = safetensors_entry(path, name, entry, data,
                                        bytes.size() - sizeof length - length);
    }
    return tensors;
  } catch (const nlohmann::json::exception& error) {
    fail(exit_usage, "{}: its safetensors header is not understood: {}", path, error.what());
  }
}

void safetensors_write(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors) {
  nlohmann::ordered_json header;
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const char* dtype = nullptr;
    for (const Name& known : safetensors_names)
      if (known.dtype == tensor.dtype) dtype = known.text;
    if (!dtype) {
      fail(exit_usage, "{}: safetensors has no dtype for {}", path,
           type_text(tensor.dtype, tensor.sizes));
    }
    const uint64_t end = offset + tensor.bytes.size();
    header[name] = {{"dtype", dtype}, {"shape", tensor.sizes}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.is_null() ? "{}" : header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins at a multiple of 8
  const uint64_t length = text.size();
  File file = file_open(path, "wb");
  bool good = std::fwrite(&length, sizeof length, 1, file.get()) == 1;
  good &= std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  for (const auto& [name, tensor] : tensors) {
    good &= std::fwrite(tensor.bytes.data(), 1, tensor.bytes.size(), file.get()) ==
            tensor.bytes.size();
  }
  if (std::fclose(file.release()) != 0 || !good)
    fail(exit_usage, "{}: {}", path, std::strerror(errno));
}

Tensor npy_read(const std::string& path) {
  const std::vector<unsigned char> bytes = file_read(path);
  if (bytes.size() < 12 || std::memcmp(bytes.data(), "\x93NUMPY", 6) != 0)
    fail(exit_usage, "{}: no .npy file", path);
  const size_t major = bytes[6], start = major == 1 ? 10 : 12;
  const size_t length = bytes[8] | bytes[9] << 8 |
                        (major == 1 ? 0u : bytes[10] << 16 | unsigned{bytes[11]} << 24);
  if (major < 1 || major > 3 || length > bytes.size() - start)
    fail(exit_usage, "{}: .npy version {} with a header of {} bytes", path, major, length);
  const NpyHeader header(
      path, std::string_view(reinterpret_cast<const char*>(bytes.data()) + start, length));
  const std::string type(header.between("descr", '\'', '\''));
  const husk_dtype dtype = type.empty() ? HUSK_DTYPE_NONE : dtype_of(npy_names, type.substr(1));
  if (dtype == HUSK_DTYPE_NONE || type[0] == '>')
    fail(exit_usage, "{}: element type {}; little-endian bools, ints, floats are read", path,
         NpyHeader::start_of(type));
  if (header.is_true("fortran_order"))
    fail(exit_usage, "{}: in Fortran order; save numpy.ascontiguousarray of it", path);
  const std::vector<int64_t> sizes = npy_sizes(path, header);
  Tensor tensor{
      dtype, sizes, {bytes.begin() + static_cast<ptrdiff_t>(start + length), bytes.end()}};
  int64_t expected = static_cast<int64_t>(husk_dtype_size(dtype));
  for (int64_t size : sizes)
    if (__builtin_mul_overflow(expected, size, &expected))
      fail(exit_usage, "{}: its shape {} is too large", path, type_text(dtype, sizes));
  if (expected != static_cast<int64_t>(tensor.bytes.size())) {
    fail(exit_usage, "{}: {} bytes of data for {}", path, tensor.bytes.size(),
         type_text(dtype, sizes));
  }
  return tensor;
}

}  // namespace husk::run
