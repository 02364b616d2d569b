// A safetensors file that comes through a pipe: its tensors are read once, in their order.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "write/safetensors.h"

namespace husk::compiler {

// Functions throw a CompileError if the stream cannot be read, ends too early or is malformed.
class TensorStream {
 public:
  // Reads from `file`, a descriptor that stays open.
  TensorStream(int file, std::string name) : file_(file), name_(std::move(name)) {}
  TensorStream(const TensorStream&) = delete;
  TensorStream& operator=(const TensorStream&) = delete;

  const std::string& name() const { return name_; }
  // The tensors, whose `bytes` are empty. The first call reads the header.
  const StoredTensors& tensors();
  // Calls `part` with the bytes of a tensor, in order. No tensor behind it may have been read.
  void each(const StoredTensor& tensor, const std::function<void(std::span<const uint8_t>)>& part);

 private:
  void read(std::span<uint8_t> out);

  int file_;
  std::string name_;
  StoredTensors tensors_;
  std::vector<uint8_t> buffer_;
  bool has_header_ = false;
  uint64_t at_ = 0;  // of the next byte in the data
};

}  // namespace husk::compiler
