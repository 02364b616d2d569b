// Reads the safetensors format: 8 bytes with the length of a JSON header, the header, the data. The
// header states the dtype, the shape and the range [begin, end) in the data of each tensor
// (https://github.com/huggingface/safetensors, "Format").
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include <husk/types.h>

namespace husk::compiler {

struct StoredTensor {
  husk_dtype dtype = HUSK_DTYPE_NONE;  // NONE if Husk does not have the dtype
  std::string dtype_word;              // the name of the dtype in the file
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;     // in the data
  std::span<const uint8_t> bytes;  // points into the file
};

using StoredTensors = std::map<std::string, StoredTensor>;

// If the file is malformed, the result is empty and `error` is not. `file` must outlive the result.
StoredTensors read_safetensors(std::span<const uint8_t> file, std::string& error);
// Reads the JSON of a file whose data have `data_bytes`. The tensors have no `bytes`.
StoredTensors read_safetensors_header(std::span<const uint8_t> header, uint64_t data_bytes,
                                      std::string& error);

// Makes the JSON of a file's header.
class SafetensorsHeader {
 public:
  // Adds a tensor whose data begin at `begin`. Returns false if safetensors lacks the dtype.
  bool add(const std::string& name, husk_dtype dtype, const std::vector<int64_t>& shape,
           uint64_t begin);
  std::string text() const { return text_ + "}"; }

 private:
  std::string text_ = "{";
};

}  // namespace husk::compiler
