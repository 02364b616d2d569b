// Adapters (LoRA) for the language model for tests, as files of PEFT.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace husk::test {

// The two layers that an adapter of the model changes.
inline const std::string first_layer = "base_model.model.layer",
                         second_layer = "base_model.model.other";

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> numbers;
  std::string type = "F32";
};
using Tensors = std::map<std::string, Tensor>;

// A safetensors file with this header and data, and one of tensors.
std::string with_header(const std::string& header, const std::string& data);
std::string safetensors(const Tensors& tensors);

// An adapter of both layers. Numbers are small integers, whose products every type has exactly.
struct Adapter {
  Tensors tensors;
  nlohmann::json config = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 4}, {"bias", "none"}};

  explicit Adapter(int seed, int64_t rank = 2, const std::string& type = "F32");

  std::string weights() const { return safetensors(tensors); }
  // The number that the model has of the adapter, with scales of the two layers.
  int32_t salt(float scale, float other_scale) const;
  // With the scale lora_alpha / r.
  int32_t salt() const;
};

}  // namespace husk::test
