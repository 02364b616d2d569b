#include "write/tensor_stream.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ir/compile_error.h"

namespace husk::compiler {
namespace {

constexpr uint64_t kPart = 1 << 20;
// The limit of the safetensors format.
constexpr uint64_t kMaxHeader = 100'000'000;

}  // namespace

const StoredTensors& TensorStream::tensors() {
  if (has_header_) return tensors_;
  uint64_t bytes = 0;
  uint8_t length[sizeof(bytes)];
  read(length);
  memcpy(&bytes, length, sizeof(bytes));  // all supported platforms are little-endian
  if (bytes > kMaxHeader) fail({}, "{} is not a safetensors file", name_);
  std::vector<uint8_t> header(bytes);
  read(header);
  std::string error;
  tensors_ = read_safetensors_header(header, INT64_MAX, error);
  if (!error.empty()) fail({}, "{} {}", name_, error);
  has_header_ = true;
  return tensors_;
}

void TensorStream::each(const StoredTensor& tensor,
                        const std::function<void(std::span<const uint8_t>)>& part) {
  if (tensor.begin < at_)
    fail({}, "{} is read once: its tensors must be in the order of the constants of the program",
         name_);
  buffer_.resize(kPart);
  while (at_ < tensor.end) {
    const uint64_t stop = at_ < tensor.begin ? tensor.begin : tensor.end;
    const std::span<uint8_t> bytes(buffer_.data(), std::min(stop - at_, kPart));
    read(bytes);
    if (at_ >= tensor.begin) part(bytes);
    at_ += bytes.size();
  }
}

void TensorStream::read(std::span<uint8_t> out) {
  while (!out.empty()) {
    const ssize_t n = ::read(file_, out.data(), out.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail({}, "cannot read {}: {}", name_, strerror(errno));
    if (n == 0)
      fail({}, "{} ends too early: the program that writes it to the pipe has failed", name_);
    out = out.subspan(static_cast<size_t>(n));
  }
}

}  // namespace husk::compiler
