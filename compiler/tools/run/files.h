// Tensors in files: safetensors (https://github.com/huggingface/safetensors, "Format") and NumPy's
// .npy (numpy.lib.format). Errors have the code exit_usage; their text names the file.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "run/tensor.h"

namespace husk::run {

using TensorMap = std::map<std::string, Tensor>;

TensorMap safetensors_read(const std::string& path);
// Writes the tensors in order. Their names must differ.
void safetensors_write(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors);

// Reads versions 1 to 3, little-endian, in C order.
Tensor npy_read(const std::string& path);

}  // namespace husk::run
