#include "base/memory.h"

#include <cstring>

#if HUSK_MIMALLOC
#include <mimalloc.h>
#else
#include <cstdlib>
#endif

namespace husk {
namespace {

#if HUSK_MIMALLOC
void* take(void*, size_t size, size_t align) { return mi_malloc_aligned(size, align); }
void release(void*, void* pointer) { mi_free(pointer); }
#else
void* take(void*, size_t size, size_t align) {
  void* pointer = nullptr;
  return posix_memalign(&pointer, align < sizeof(void*) ? sizeof(void*) : align, size) == 0
             ? pointer
             : nullptr;
}
void release(void*, void* pointer) { free(pointer); }
#endif

constexpr husk_allocator kDefault = {nullptr, take, release};

// Precedes the elements of an array, and keeps their alignment.
struct alignas(16) Origin {
  const husk_allocator* allocator;  // of the engine, which lives longer than every array
};

}  // namespace

void* allocate(const husk_allocator& allocator, size_t bytes, husk_error* error) {
  void* memory = bytes == SIZE_MAX ? nullptr : allocator.allocate(allocator.user, bytes, 16);
  if (!memory)
    (void)fail(error, HUSK_OUT_OF_MEMORY, "out of host memory: %zu bytes were asked for", bytes);
  return memory;
}

void RawArray::reset() {
  if (!data_) return;
  Origin* origin = static_cast<Origin*>(data_) - 1;
  origin->allocator->release(origin->allocator->user, origin);
  data_ = nullptr;
  size_ = 0;
}

Status RawArray::allocate(const husk_allocator& allocator, size_t size, size_t element,
                          husk_error* error) {
  reset();
  if (size == 0) return Status::ok;
  size_t bytes;
  if (__builtin_mul_overflow(size, element, &bytes) ||
      __builtin_add_overflow(bytes, sizeof(Origin), &bytes))
    bytes = SIZE_MAX;
  Origin* origin = static_cast<Origin*>(husk::allocate(allocator, bytes, error));
  if (!origin) return to_status(HUSK_OUT_OF_MEMORY);
  memset(origin, 0, bytes);
  origin->allocator = &allocator;
  data_ = origin + 1;
  size_ = size;
  return Status::ok;
}

void RawArray::swap(RawArray& other) {
  void* data = data_;
  const size_t size = size_;
  data_ = other.data_;
  size_ = other.size_;
  other.data_ = data;
  other.size_ = size;
}

Status RawArray::enlarge(const husk_allocator& allocator, size_t size, size_t element,
                         husk_error* error) {
  RawArray larger;
  HUSK_TRY(larger.allocate(allocator, size, element, error));
  if (size_) memcpy(larger.data_, data_, size_ * element);
  swap(larger);
  return Status::ok;
}

const husk_allocator* default_allocator() { return &kDefault; }

}  // namespace husk
