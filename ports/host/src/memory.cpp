// Device memory of the host port, aligned to kAlignment. It comes from the application's allocator,
// which aligns to at most 64 bytes. So each allocation is kLead bytes larger, the returned address
// is moved up to the alignment, and the word before it holds the address that the allocator
// returned.
#include <sys/mman.h>

#include <cstring>

#include "device.h"
#include "error.h"

namespace husk::host {

namespace {

constexpr uint64_t kAlignment = 256;
constexpr uint64_t kLead = kAlignment + sizeof(void*);

template <class T>
void fill_elements(void* to, uint64_t pattern, uint64_t count) {
  const T value = static_cast<T>(pattern);
  auto* bytes = static_cast<unsigned char*>(to);
  // memcpy, because the caller's address need not be aligned to the element size.
  for (uint64_t i = 0; i < count; ++i) memcpy(bytes + i * sizeof(T), &value, sizeof(T));
}

// Asks the system for large pages. Memory that is written for the first time has a fault for each
// page, which for small pages takes longer than the writing, and packed constants are read through
// more of them than the processor remembers.
void use_large_pages([[maybe_unused]] uintptr_t begin, [[maybe_unused]] uint64_t size) {
#if defined(MADV_HUGEPAGE)
  constexpr uintptr_t kLargePage = uintptr_t{1} << 21;
  const uintptr_t first = (begin + kLargePage - 1) & ~(kLargePage - 1),
                  end = (begin + static_cast<uintptr_t>(size)) & ~(kLargePage - 1);
  // Without large pages everything works, only slower.
  if (first < end) (void)madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#endif
}

}  // namespace

husk_status memory_alloc(void* handle, uint64_t size, void** memory, husk_error* error) {
  *memory = nullptr;
  auto* device = static_cast<Device*>(handle);
  void* base = size <= SIZE_MAX - kLead ? device->allocate(static_cast<size_t>(size + kLead), 64)
                                        : nullptr;
  if (!base) {
    return fail(error, HUSK_OUT_OF_MEMORY, "host memory: %llu bytes are not to be had",
                static_cast<unsigned long long>(size));
  }
  const uintptr_t address = (reinterpret_cast<uintptr_t>(base) + kLead) &
                            ~static_cast<uintptr_t>(kAlignment - 1);
  *memory = reinterpret_cast<void*>(address);
  memcpy(static_cast<unsigned char*>(*memory) - sizeof base, &base, sizeof base);
  use_large_pages(address, size);
  return HUSK_OK;
}

void memory_free(void* handle, void* memory) {
  if (!memory) return;
  void* base;
  memcpy(&base, static_cast<unsigned char*>(memory) - sizeof base, sizeof base);
  static_cast<Device*>(handle)->release(base);
}

husk_status memory_copy(void*, void*, void* to, const void* from, uint64_t size,
                        husk_error* error) {
  if (size == 0) return HUSK_OK;
  if (!to || !from) {
    return fail(error, HUSK_INVALID_ARGUMENT, "host copy of %llu bytes: the %s address is null",
                static_cast<unsigned long long>(size), to ? "source" : "destination");
  }
  memcpy(to, from, static_cast<size_t>(size));
  return HUSK_OK;
}

husk_status memory_fill(void*, void*, void* to, uint64_t pattern, uint32_t width, uint64_t count,
                        husk_error* error) {
  if (width != 1 && width != 2 && width != 4 && width != 8) {
    return fail(error, HUSK_INVALID_ARGUMENT,
                "host fill: elements of %u bytes; 1, 2, 4 and 8 are possible", width);
  }
  if (count == 0) return HUSK_OK;
  if (!to) return fail(error, HUSK_INVALID_ARGUMENT, "host fill: the address is null");
  switch (width) {
    case 1: memset(to, static_cast<int>(pattern & 0xff), static_cast<size_t>(count)); break;
    case 2: fill_elements<uint16_t>(to, pattern, count); break;
    case 4: fill_elements<uint32_t>(to, pattern, count); break;
    default: fill_elements<uint64_t>(to, pattern, count); break;
  }
  return HUSK_OK;
}

}  // namespace husk::host
