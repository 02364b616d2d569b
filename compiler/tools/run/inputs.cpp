#include "run/inputs.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include <husk/detail/dtype.h>

#include "run/run_error.h"

namespace husk::run {

namespace {

template <class T>
std::optional<T> number_from(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_float(husk_dtype dtype) { return detail::element_kind(dtype) >= detail::DtypeKind::Float; }

// Fills a tensor with random floats in [-1, 1), ints from 0 to 9, or bools.
void fill_random(Tensor& tensor, size_t position, uint64_t seed) {
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15 + position + 1);
  const int64_t count = tensor.number_count();
  for (int64_t i = 0; i < count; i++) {
    // The distributions of the standard library are not used, since they differ between libraries.
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;  // [0, 1)
    if (tensor.dtype == HUSK_BOOL)
      tensor.set_number(i, unit < 0.5);
    else
      tensor.set_number(i, is_float(tensor.dtype) ? 2 * unit - 1 : std::floor(10 * unit));
  }
}

void fill_iota(Tensor& tensor) {
  const int64_t count = tensor.number_count();
  for (int64_t i = 0; i < count; i++) tensor.set_number(i, static_cast<double>(i));
}

// A tensor of zeros from a type such as "2x3xf32" or "f32".
Tensor tensor_of_type(const std::string& spec, std::string_view type) {
  std::vector<int64_t> sizes;
  for (size_t cross; (cross = type.find('x')) != type.npos; type.remove_prefix(cross + 1)) {
    const auto size = number_from<int64_t>(type.substr(0, cross));
    if (!size) fail(exit_usage, "--input={}: {} is not a size", spec, type.substr(0, cross));
    sizes.push_back(*size);
  }
  const husk_dtype dtype = dtype_from_name(type);
  if (dtype == HUSK_DTYPE_NONE) fail(exit_usage, "--input={}: {} is not a dtype", spec, type);
  return tensor_make(dtype, std::move(sizes));
}

Value tensor_from_spec(const std::string& spec, size_t equals, size_t position, uint64_t seed) {
  Tensor tensor = tensor_of_type(spec, std::string_view(spec).substr(0, equals));
  const std::string content = spec.substr(equals + 1);
  if (content == "random") {
    fill_random(tensor, position, seed);
  } else if (content == "iota") {
    fill_iota(tensor);
  } else if (content.starts_with("@")) {
    Tensor read = npy_read(content.substr(1));
    if (read.dtype != tensor.dtype || read.sizes != tensor.sizes)
      fail(exit_usage, "--input={}: the file holds {}", spec, type_text(read.dtype, read.sizes));
    return read;
  } else if (content != "zeros") {
    fail(exit_usage, "--input={}: {} is unknown: write random, zeros, iota or @file.npy", spec,
         content);
  }
  return tensor;
}

// Converts a tensor of a file to a value of the kind of the input.
Value value_from_tensor(const husk_value_info& info, const Tensor& tensor) {
  if (info.kind == HUSK_VALUE_TENSOR) return tensor;
  if (info.kind == HUSK_VALUE_NONE) return std::monostate();
  if (tensor.count() != 1) {
    fail(exit_usage, "input {} is one number, the file has {}", info.name,
         type_text(tensor.dtype, tensor.sizes));
  }
  if (info.kind == HUSK_VALUE_FLOAT) return tensor.number(0);
  return tensor.integer(0);
}

Value value_checked(const husk_value_info& info, Value value, const std::string& spec) {
  const bool tensor = std::holds_alternative<Tensor>(value);
  if (tensor == (info.kind == HUSK_VALUE_TENSOR)) {
    if (info.kind == HUSK_VALUE_FLOAT && std::holds_alternative<int64_t>(value))
      return static_cast<double>(std::get<int64_t>(value));
    if (info.kind == HUSK_VALUE_FLOAT || tensor || std::holds_alternative<int64_t>(value))
      return value;
  }
  fail(exit_usage, "--input={}: the input is {}", spec, input_text(info));
}

}  // namespace

std::string input_text(const husk_value_info& info) {
  switch (info.kind) {
    case HUSK_VALUE_TENSOR: break;
    case HUSK_VALUE_INT: return fmt::format("{}: int", info.name);
    case HUSK_VALUE_FLOAT: return fmt::format("{}: float", info.name);
    case HUSK_VALUE_BOOL: return fmt::format("{}: bool", info.name);
    default: return fmt::format("{}: none", info.name);
  }
  std::vector<std::string> dims;
  for (int32_t d = 0; d < info.rank && info.ranges; d++) {
    const int64_t least = info.ranges[2 * d], most = info.ranges[2 * d + 1];
    if (least == most)
      dims.push_back(fmt::format("{}", least));
    else if (most == std::numeric_limits<int64_t>::max())
      dims.push_back(fmt::format("{}..inf", least));
    else
      dims.push_back(fmt::format("{}..{}", least, most));
  }
  return fmt::format("{}: {}[{}]", info.name, husk_dtype_name(info.dtype), fmt::join(dims, ", "));
}

Value value_from_spec(const std::string& spec, size_t position, uint64_t seed) {
  if (spec == "none") return std::monostate();
  if (spec == "true" || spec == "false") return static_cast<int64_t>(spec == "true");
  if (const auto value = number_from<int64_t>(spec)) return *value;
  if (const auto value = number_from<double>(spec)) return *value;
  if (spec.starts_with("@")) return npy_read(spec.substr(1));
  const size_t equals = spec.find('=');
  if (equals == spec.npos) {
    fail(exit_usage, "--input={}: neither a number nor none nor SHAPExDTYPE=CONTENT nor @file.npy",
         spec);
  }
  return tensor_from_spec(spec, equals, position, seed);
}

std::vector<Value> inputs_collect(const husk_program* program, uint32_t function,
                                  const TensorMap& file, const std::vector<std::string>& specs,
                                  uint64_t seed) {
  std::vector<Value> values;
  size_t next = 0;
  const uint32_t count = husk_program_input_count(program, function);
  for (uint32_t i = 0; i < count; i++) {
    husk_value_info info = HUSK_VALUE_INFO_INIT;
    husk_error error;
    check(husk_program_input(program, function, i, &info, &error), error, exit_load);
    auto tensor = file.find(info.name);
    if (tensor == file.end()) tensor = file.find(std::to_string(i));
    if (tensor != file.end()) {
      values.push_back(value_from_tensor(info, tensor->second));
    } else if (info.kind == HUSK_VALUE_NONE) {  // a SPEC is optional
      values.emplace_back();
      next += next < specs.size() && specs[next] == "none";
    } else if (next < specs.size()) {
      values.push_back(value_checked(info, value_from_spec(specs[next], next, seed), specs[next]));
      next++;
    } else {
      fail(exit_usage, "input {} ({}) has no value: use --inputs or --input", i, input_text(info));
    }
  }
  if (next < specs.size()) {
    fail(exit_usage, "--input={}: all {} inputs of the function have a value already", specs[next],
         count);
  }
  return values;
}

}  // namespace husk::run
