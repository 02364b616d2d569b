#include "memory.h"

#include <cstring>

#if HUSK_MIMALLOC
#include <mimalloc.h>
#else
#include <cstdlib>
#endif

namespace husk {
namespace {

#if HUSK_MIMALLOC
void* allocate(void*, size_t size, size_t align) { return mi_malloc_aligned(size, align); }
void release(void*, void* pointer) { mi_free(pointer); }
#else
void* allocate(void*, size_t size, size_t align) {
  void* pointer = nullptr;
  return posix_memalign(&pointer, align < sizeof(void*) ? sizeof(void*) : align, size) == 0 ? pointer : nullptr;
}
void release(void*, void* pointer) { free(pointer); }
#endif

constexpr husk_allocator kDefault = {nullptr, allocate, release};

}  // namespace

RawArray::~RawArray() { reset(); }

void RawArray::reset() {
  if (data_) allocator_->release(allocator_->user, data_);
  data_ = nullptr;
  size_ = 0;
}

Status RawArray::allocate(const husk_allocator& allocator, size_t size, size_t element, husk_error* error) {
  reset();
  if (size == 0) return Status::ok;
  size_t bytes = 0;
  if (__builtin_mul_overflow(size, element, &bytes)) bytes = SIZE_MAX;
  void* memory = bytes == SIZE_MAX ? nullptr : allocator.allocate(allocator.user, bytes, 16);
  if (!memory) return fail(error, HUSK_OUT_OF_MEMORY, "out of host memory: %zu bytes were asked for", bytes);
  memset(memory, 0, bytes);
  allocator_ = &allocator;
  data_ = memory;
  size_ = size;
  return Status::ok;
}

void RawArray::swap(RawArray& other) {
  const husk_allocator* allocator = allocator_;
  void* data = data_;
  const size_t size = size_;
  allocator_ = other.allocator_;
  data_ = other.data_;
  size_ = other.size_;
  other.allocator_ = allocator;
  other.data_ = data;
  other.size_ = size;
}

const husk_allocator* default_allocator() { return &kDefault; }

}  // namespace husk
