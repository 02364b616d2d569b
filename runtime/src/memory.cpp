#include "memory.h"

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

const husk_allocator* default_allocator() { return &kDefault; }

}  // namespace husk
