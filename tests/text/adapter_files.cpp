#include "adapter_files.h"

#include "base/halves.h"
#include "language_model.h"

namespace husk::test {

namespace {

std::string bytes_of(const Tensor& tensor) {
  std::string result;
  for (const float number : tensor.numbers) {
    const uint16_t half = tensor.type == "F16" ? to_half(number) : to_bfloat16(number);
    const void* from = tensor.type == "F32" ? static_cast<const void*>(&number) : &half;
    result.append(static_cast<const char*>(from), tensor.type == "F32" ? 4 : 2);
  }
  return result;
}

}  // namespace

std::string with_header(const std::string& header, const std::string& data) {
  std::string result;
  for (uint64_t size = header.size(), i = 0; i < 8; ++i) {
    result += static_cast<char>(size >> 8 * i & 0xFF);
  }
  return result + header + data;
}

std::string safetensors(const Tensors& tensors) {
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::string bytes = bytes_of(tensor);
    header[name] = {{"dtype", tensor.type},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  }
  return with_header(header.dump(), data);
}

Adapter::Adapter(int seed, int64_t rank, const std::string& type) {
  uint32_t state = static_cast<uint32_t>(seed);
  const auto add = [&](const std::string& name, int64_t rows, int64_t columns) {
    Tensor tensor{{rows, columns}, {}, type};
    for (int64_t i = 0; i < rows * columns; ++i) {
      state = state * 1664525 + 1013904223;
      tensor.numbers.push_back(static_cast<float>(state >> 28) - 7);
    }
    tensors[name + ".weight"] = tensor;
  };
  config["r"] = rank;
  add(first_layer + ".lora_A", rank, LM_INPUTS);
  add(first_layer + ".lora_B", LM_OUTPUTS, rank);
  add(second_layer + ".lora_A", rank, LM_OTHER_INPUTS);
  add(second_layer + ".lora_B", LM_OTHER_OUTPUTS, rank);
}

int32_t Adapter::salt(float scale, float other_scale) const {
  const auto product = [&](const std::string& name, float factor) {
    const auto a = tensors.find(name + ".lora_A.weight");
    const auto b = tensors.find(name + ".lora_B.weight");
    std::vector<float> result(LM_INPUTS * LM_OUTPUTS);
    if (a == tensors.end()) return result;
    const auto inputs = static_cast<size_t>(a->second.shape[1]);
    const auto outputs = static_cast<size_t>(b->second.shape[0]);
    const auto rank = static_cast<size_t>(a->second.shape[0]);
    for (size_t o = 0; o < outputs; ++o) {
      for (size_t i = 0; i < inputs; ++i) {
        for (size_t k = 0; k < rank; ++k) {
          result[o * inputs + i] += factor * b->second.numbers[o * rank + k] *
                                    a->second.numbers[k * inputs + i];
        }
      }
    }
    return result;
  };
  return lm_salt(product(first_layer, scale).data(), product(second_layer, other_scale).data());
}

int32_t Adapter::salt() const {
  const auto scale = config["lora_alpha"].get<float>() / config["r"].get<float>();
  return salt(scale, scale);
}

}  // namespace husk::test
