// Reads the safetensors format: 8 bytes with the length of a JSON header, the header, the data. The header names each
// tensor's dtype, shape and [begin, end) within the data (https://github.com/huggingface/safetensors, "Format").
#pragma once

#include <husk/types.h>

#include <map>
#include <span>
#include <string>
#include <vector>

namespace husk::compiler {

struct StoredTensor {
  husk_dtype dtype = HUSK_DTYPE_NONE;   // HUSK_DTYPE_NONE for one that Husk does not have
  std::string dtype_word;               // as the file has it
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;       // of the file's
};

using StoredTensors = std::map<std::string, StoredTensor>;

// On failure the result is empty and `error` says why. `file` must outlive the result.
StoredTensors read_safetensors(std::span<const uint8_t> file, std::string& error);

}  // namespace husk::compiler
