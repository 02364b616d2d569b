#include "bench/inputs.h"

#include <algorithm>
#include <charconv>

#include "run/run_error.h"

namespace husk::bench_tool {

using run::exit_load;
using run::exit_usage;
using run::fail;

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = text.find(separator)) != text.npos; text.remove_prefix(end + 1))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

husk_value_info input_info(const husk_program* program, uint32_t function, uint32_t index) {
  husk_value_info info = HUSK_VALUE_INFO_INIT;
  husk_error error;
  run::check(husk_program_input(program, function, index, &info, &error), error, exit_load);
  return info;
}

// The smallest size that is not 0, and `more` above it as far as the range goes.
int64_t size_in_range(const int64_t* range, int64_t more) {
  const int64_t least = std::max<int64_t>(range[0], 1), most = std::max(least, range[1]);
  return more > most - least ? most : least + more;
}

// The SPEC of a random value.
std::string random_spec(const husk_value_info& info, const std::vector<int64_t>* sizes,
                        int64_t more) {
  switch (info.kind) {
    case HUSK_VALUE_INT: return "1";
    case HUSK_VALUE_FLOAT: return "0.5";
    case HUSK_VALUE_BOOL: return "true";
    default: break;
  }
  if (sizes && sizes->size() != static_cast<size_t>(info.rank)) {
    fail(exit_usage, "--shapes: {} sizes for {}, which is {}", sizes->size(), info.name,
         run::input_text(info));
  }
  std::string spec;
  for (int32_t d = 0; d < info.rank; ++d) {
    const int64_t size = sizes ? (*sizes)[static_cast<size_t>(d)]
                               : size_in_range(info.ranges + 2 * d, more);
    spec += fmt::format("{}x", size);
  }
  return fmt::format("{}{}=random", spec, husk_dtype_name(info.dtype));
}

}  // namespace

Shapes shapes_parse(const std::string& text) {
  Shapes shapes;
  for (const std::string_view entry : split(text, ',')) {
    const size_t equals = entry.rfind('=');
    if (equals == entry.npos || equals == 0)
      fail(exit_usage, "--shapes={}: write NAME=SIZExSIZE, as in x=8x64", text);
    std::vector<int64_t>& sizes = shapes[std::string(entry.substr(0, equals))];
    if (!sizes.empty()) fail(exit_usage, "--shapes={}: an input has two shapes", text);
    for (const std::string_view part : split(entry.substr(equals + 1), 'x')) {
      int64_t size = 0;
      const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), size);
      if (error != std::errc() || end != part.data() + part.size() || size < 0)
        fail(exit_usage, "--shapes={}: '{}' is not a size", text, part);
      sizes.push_back(size);
    }
  }
  return shapes;
}

std::vector<run::Value> inputs_make(const husk_program* program, uint32_t function,
                                    const run::TensorMap& file, const Shapes& shapes,
                                    const std::vector<std::string>& specs, int64_t more,
                                    uint64_t seed) {
  std::vector<std::string> all = specs;
  size_t used = 0, position = 0;
  const uint32_t count = husk_program_input_count(program, function);
  for (uint32_t i = 0; i < count; ++i) {
    const husk_value_info info = input_info(program, function, i);
    auto shape = shapes.find(info.name);
    if (shape == shapes.end()) shape = shapes.find(std::to_string(i));
    used += shape != shapes.end();
    if (shape != shapes.end() && info.kind != HUSK_VALUE_TENSOR)
      fail(exit_usage, "--shapes: {} is not a tensor", run::input_text(info));
    if (file.count(info.name) || file.count(std::to_string(i))) {
      if (shape != shapes.end())
        fail(exit_usage, "--shapes: {} has a value by --inputs already", run::input_text(info));
      continue;
    }
    // An input of kind none takes a SPEC only if that is "none".
    if (info.kind == HUSK_VALUE_NONE) {
      position += position < specs.size() && specs[position] == "none";
    } else if (position++ >= specs.size()) {
      all.push_back(random_spec(info, shape == shapes.end() ? nullptr : &shape->second, more));
    } else if (shape != shapes.end()) {
      fail(exit_usage, "--shapes: {} has a value by --input already", run::input_text(info));
    }
  }
  if (used < shapes.size()) {
    std::vector<std::string> inputs;
    for (uint32_t i = 0; i < count; ++i)
      inputs.push_back(run::input_text(input_info(program, function, i)));
    fail(exit_usage, "--shapes: a name is not that of an input; the inputs are: {}",
         fmt::join(inputs, "; "));
  }
  return run::inputs_collect(program, function, file, all, seed);
}

std::string inputs_text(const husk_program* program, uint32_t function,
                        const std::vector<run::Value>& inputs) {
  std::vector<std::string> texts;
  for (uint32_t i = 0; i < inputs.size(); ++i) {
    const char* name = input_info(program, function, i).name;
    if (const auto* tensor = std::get_if<run::Tensor>(&inputs[i]))
      texts.push_back(fmt::format("{} {}", name, run::type_text(tensor->dtype, tensor->sizes)));
    else if (const auto* number = std::get_if<int64_t>(&inputs[i]))
      texts.push_back(fmt::format("{} {}", name, *number));
    else if (const auto* real = std::get_if<double>(&inputs[i]))
      texts.push_back(fmt::format("{} {}", name, *real));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

bool sizes_vary(const husk_program* program, uint32_t function) {
  for (uint32_t i = 0; i < husk_program_input_count(program, function); ++i) {
    const husk_value_info info = input_info(program, function, i);
    for (int32_t d = 0; info.kind == HUSK_VALUE_TENSOR && d < info.rank; ++d)
      if (info.ranges[2 * d] != info.ranges[2 * d + 1]) return true;
  }
  return false;
}

}  // namespace husk::bench_tool
