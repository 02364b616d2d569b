// The lack of memory in a tool is a message. mimalloc as a library of C calls abort() where `new`
// should throw, and before main() nothing can catch.
#include "out_of_memory.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

namespace husk::tools {

bool out_of_memory_throws = false;

}  // namespace husk::tools

#if !HUSK_SANITIZED

namespace {

constexpr int kFailure = 1;

void* refuse() {
  if (husk::tools::out_of_memory_throws) throw std::bad_alloc();
  const char* name = program_invocation_short_name;
  if (write(2, name, std::strlen(name)) < 0 || write(2, ": out of memory\n", 16) < 0) abort();
  _exit(kFailure);
}

}  // namespace

// `malloc` is the one of the process, that is mimalloc's if the tool is linked with it.
void* operator new(size_t bytes) {
  void* memory = std::malloc(bytes ? bytes : 1);
  return memory ? memory : refuse();
}
void* operator new[](size_t bytes) { return operator new(bytes); }
void* operator new(size_t bytes, std::align_val_t align) {
  const auto multiple = static_cast<size_t>(align);
  void* memory = std::aligned_alloc(multiple, (bytes + multiple - 1) / multiple * multiple);
  return memory ? memory : refuse();
}
void* operator new[](size_t bytes, std::align_val_t align) { return operator new(bytes, align); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

#endif
