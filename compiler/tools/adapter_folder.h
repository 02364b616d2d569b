// Adapters (LoRA) in folders of PEFT, for the tools of language models.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include <husk/generate.h>

#include "run/run_error.h"

namespace husk::tools {

inline std::string file_content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string result((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
  if (file) return result;
  run::fail(run::exit_usage,
            "{}: cannot be read: give a folder with adapter_config.json and "
            "adapter_model.safetensors",
            path);
}

// Sets an adapter from a folder. Throws exit_usage if a file is not there, else exit_load.
inline void set_adapter(husk_generator* generator, uint32_t adapter, const std::string& folder) {
  const std::string config = file_content(folder + "/adapter_config.json");
  const std::string weights = file_content(folder + "/adapter_model.safetensors");
  husk_error error;
  if (husk_generator_set_adapter(generator, adapter, weights.data(), weights.size(), config.data(),
                                 config.size(), &error) != HUSK_OK) {
    run::fail(run::exit_load, "{}: {}", folder, error.text);
  }
}

}  // namespace husk::tools
