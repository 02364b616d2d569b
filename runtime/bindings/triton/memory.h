// Host memory that grows.
#ifndef HUSK_BINDINGS_TRITON_MEMORY_H
#define HUSK_BINDINGS_TRITON_MEMORY_H

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace husk::triton {

// A block of memory. Its size is that of a request, so there may be no memory for it; the standard
// containers would end the server then.
class Memory {
 public:
  // Makes the block at least `bytes` large; its content is lost if it grows. Returns the block, at
  // an address that suits every kernel, or null if there is no memory.
  uint8_t* reserve(uint64_t bytes) {
    if (data_ && bytes <= size_) return data_.get();
    data_.reset();
    size_ = 0;
    if (bytes > UINT64_MAX - 2 * kAlign) return nullptr;
    const uint64_t rounded = (bytes + kAlign) / kAlign * kAlign;
    data_.reset(static_cast<uint8_t*>(aligned_alloc(kAlign, rounded)));
    if (data_) size_ = rounded;
    return data_.get();
  }
  uint8_t* data() const { return data_.get(); }
  // Returns a large block to the system, so that one large request does not take memory for ever.
  void trim() {
    constexpr uint64_t kKept = 16 << 20;
    if (size_ <= kKept) return;
    data_.reset();
    size_ = 0;
  }

 private:
  static constexpr uint64_t kAlign = 4096;  // the largest that an artifact may ask for
  struct Free {
    void operator()(uint8_t* memory) const { free(memory); }
  };
  std::unique_ptr<uint8_t, Free> data_;
  uint64_t size_ = 0;
};

}  // namespace husk::triton

#endif
