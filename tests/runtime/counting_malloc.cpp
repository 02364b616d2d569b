// Counts every call of the C library's allocation functions in this program, to prove that a run
// makes none. Sanitizers replace these functions, so the count stays 0 under them.
#include "counting_malloc.h"

#include <cerrno>
#include <cstdlib>

namespace husk::test {
namespace {
thread_local uint64_t calls = 0;
}
uint64_t malloc_calls() { return calls; }
}  // namespace husk::test

#ifndef HUSK_SANITIZED
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t size) {
  ++husk::test::calls;
  return __libc_malloc(size);
}
void* calloc(size_t n, size_t size) {
  ++husk::test::calls;
  return __libc_calloc(n, size);
}
void* realloc(void* pointer, size_t size) {
  ++husk::test::calls;
  return __libc_realloc(pointer, size);
}
void* memalign(size_t align, size_t size) {
  ++husk::test::calls;
  return __libc_memalign(align, size);
}
void* aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void** out, size_t align, size_t size) {
  *out = memalign(align, size);
  return *out ? 0 : ENOMEM;
}
void free(void* pointer) { __libc_free(pointer); }
}
#endif
