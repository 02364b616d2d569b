#include "empty_port.h"

#include <cstdlib>
#include <cstring>

#include "../stub_port.h"

namespace husk::bench {
namespace {

// Only address space is reserved, so that sizes may be those of a large model.
husk_status alloc(void*, uint64_t size, void** out, husk_error* error) {
  *out = size < (1ull << 40) ? std::aligned_alloc(256, (size + 255) / 256 * 256) : nullptr;
  if (*out || size == 0) return HUSK_OK;
  error->code = HUSK_OUT_OF_MEMORY;
  std::strcpy(error->text, "the empty port has no such memory");
  return HUSK_OUT_OF_MEMORY;
}
void release(void*, void* memory) { std::free(memory); }

husk_status upload(void*, void*, void* to, const void* from, uint64_t size, husk_error*) {
  std::memcpy(to, from, size);
  return HUSK_OK;
}
husk_status copy(void*, void*, void*, const void*, uint64_t, husk_error*) { return HUSK_OK; }
husk_status fill(void*, void*, void*, uint64_t, uint32_t, uint64_t, husk_error*) { return HUSK_OK; }
husk_status launch_list(void*, void*, const husk_listed_launch*, uint32_t, uint32_t*, husk_error*) {
  return HUSK_OK;
}

constexpr husk_port kPort = [] {
  husk_port port = test::stub_port();
  test::use_memory<alloc, release>(port);
  port.upload = port.download = upload;
  port.copy = copy;
  port.fill = fill;
  port.launch_list = launch_list;
  return port;
}();

}  // namespace

const husk_port* empty_port() { return &kPort; }

}  // namespace husk::bench
