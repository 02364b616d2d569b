// Tensors in files: safetensors (https://github.com/huggingface/safetensors, "Format") and NumPy's .npy
// (numpy.lib.format). Failures (exit_usage) name the file and what is wrong with it.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "run/tensor.h"

namespace husk::run {

using TensorMap = std::map<std::string, Tensor>;

TensorMap safetensors_read(const std::string& path);
// In the given order; names must differ.
void safetensors_write(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors);

// Versions 1 to 3, little-endian, in C order.
Tensor npy_read(const std::string& path);

}  // namespace husk::run
