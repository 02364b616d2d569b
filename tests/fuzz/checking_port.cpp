#include "checking_port.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include <husk/detail/dtype.h>

#include "../stub_port.h"

namespace husk::fuzz {
namespace {

// Allocations by end address, with their begin. The first end after an address belongs to the only
// allocation that may contain the address.
std::map<uintptr_t, uintptr_t>& allocated() {
  static std::map<uintptr_t, uintptr_t> memory;
  return memory;
}
std::map<uintptr_t, uintptr_t>& announced() {
  static std::map<uintptr_t, uintptr_t> memory;
  return memory;
}

bool holds(const std::map<uintptr_t, uintptr_t>& memory, uintptr_t at, size_t size) {
  auto row = memory.lower_bound(at + size);
  return row != memory.end() && row->second <= at;
}

void check(const void* pointer, size_t size, const char* what) {
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  if (size == 0 || holds(allocated(), at, size) || holds(announced(), at, size)) return;
  std::fprintf(stderr, "%s: %zu bytes at %p are not in known memory\n", what, size, pointer);
  std::abort();
}

int open_devices;

husk_status refuse(husk_error* error, const char* text) {
  error->code = HUSK_OUT_OF_MEMORY;
  error->driver_code = 0;
  std::snprintf(error->text, sizeof(error->text), "%s", text);
  return HUSK_OUT_OF_MEMORY;
}

husk_status open(void*, int32_t, const husk_allocator*, const husk_threads*, void** out,
                 husk_error*) {
  ++open_devices;
  *out = &open_devices;
  return HUSK_OK;
}
void close(void*) { --open_devices; }

husk_status alloc(void*, uint64_t size, void** out, husk_error* error) {
  if (size > (64u << 20)) return refuse(error, "the checking port has 64 MiB");
  *out = std::aligned_alloc(256, (size + 256) / 256 * 256);
  if (!*out) return refuse(error, "out of memory");
  std::memset(*out, 0xA5, size);
  allocated()[reinterpret_cast<uintptr_t>(*out) + size] = reinterpret_cast<uintptr_t>(*out);
  return HUSK_OK;
}

void release(void*, void* memory) {
  if (!memory) return;
  for (auto row = allocated().begin(); row != allocated().end(); ++row)
    if (row->second == reinterpret_cast<uintptr_t>(memory)) {
      allocated().erase(row);
      std::free(memory);
      return;
    }
  std::fprintf(stderr, "free of %p, which was not given out\n", memory);
  std::abort();
}

husk_status upload(void*, void*, void* to, const void* from, uint64_t size, husk_error*) {
  check(to, size, "upload");
  std::memcpy(to, from, size);
  return HUSK_OK;
}
husk_status download(void*, void*, void* to, const void* from, uint64_t size, husk_error*) {
  check(from, size, "download");
  std::memcpy(to, from, size);
  return HUSK_OK;
}
husk_status copy(void*, void*, void* to, const void* from, uint64_t size, husk_error*) {
  check(to, size, "copy to");
  check(from, size, "copy from");
  std::memmove(to, from, size);
  return HUSK_OK;
}
husk_status fill(void*, void*, void* to, uint64_t pattern, uint32_t width, uint64_t count,
                 husk_error*) {
  check(to, width * count, "fill");
  for (uint64_t i = 0; i < count; ++i)
    std::memcpy(static_cast<char*>(to) + i * width, &pattern, width);
  return HUSK_OK;
}

// A kernel stores the types of its parameters. A module owns its kernels.
struct Kernel {
  std::vector<uint8_t> params;
};
struct Module {
  std::vector<Kernel*> kernels;
};

husk_status module_load(void*, const husk_port_image*, void** out, husk_error*) {
  *out = new Module;
  return HUSK_OK;
}
void module_unload(void*, void* module) {
  for (Kernel* kernel : static_cast<Module*>(module)->kernels) delete kernel;
  delete static_cast<Module*>(module);
}
husk_status kernel_get(void*, void* module, const husk_port_kernel* desc, void** out, husk_error*) {
  auto* kernel = new Kernel{std::vector<uint8_t>(desc->params, desc->params + desc->param_count)};
  static_cast<Module*>(module)->kernels.push_back(kernel);
  *out = kernel;
  return HUSK_OK;
}

// Checks that each view begins in known memory. The port does not learn the extents of views.
husk_status launch(void*, void*, void* kernel, const husk_launch* launch, husk_error*) {
  const auto& params = static_cast<Kernel*>(kernel)->params;
  for (size_t i = 0; i < params.size(); ++i) {
    uint64_t value = 0;
    std::memcpy(&value, launch->params[i], params[i] == HUSK_POINTER ? 8 : 1);
    if (params[i] != HUSK_POINTER || value == 0) continue;
    if (!holds(allocated(), value, 0) && !holds(announced(), value, 0))
      check(reinterpret_cast<void*>(value), 1, "launch");
  }
  for (uint32_t size : launch->grid)
    if (size == 0) std::abort();
  return HUSK_OK;
}

constexpr husk_port kPort = [] {
  husk_port port = test::stub_port();
  test::use_memory<alloc, release>(port);
  port.open = open;
  port.close = close;
  port.upload = upload;
  port.download = download;
  port.copy = copy;
  port.fill = fill;
  port.module_load = module_load;
  port.module_unload = module_unload;
  port.kernel_get = kernel_get;
  port.launch = launch;
  return port;
}();

constexpr husk_port kPortBesideHost = [] {
  husk_port port = kPort;
  port.name = "cuda";
  port.properties = [](void* device, husk_port_properties* out) {
    kPort.properties(device, out);
    out->dl_device_type = 2;
  };
  port.alloc_host = alloc;
  port.free_host = release;
  return port;
}();

// Calls `visit` with the address of each element. Returns false if there are too many elements.
template <class Visit>
bool walk(const husk_op_arg& tensor, size_t width, Visit visit) {
  int64_t elements = 1;
  for (int32_t d = 0; d < tensor.rank; ++d)
    if (__builtin_mul_overflow(elements, tensor.sizes[d], &elements)) return false;
  if (elements > 100000) return false;
  for (int64_t e = 0; e < elements; ++e) {
    int64_t at = 0, rest = e;
    for (int32_t d = tensor.rank; d-- > 0;) {
      at += rest % tensor.sizes[d] * tensor.strides[d];
      rest /= tensor.sizes[d];
    }
    visit(static_cast<char*>(tensor.data) + at * static_cast<int64_t>(width));
  }
  return true;
}

husk_status touch(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                  husk_error* error) {
  volatile char sink = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const husk_op_arg& arg = args[i];
    switch (arg.kind) {
      case HUSK_ARG_INTS:
        for (int64_t n = 0; n < arg.count; ++n) sink = static_cast<char>(arg.sizes[n]);
        break;
      case HUSK_ARG_FLOATS:
        for (int64_t n = 0; n < arg.count; ++n) sink = static_cast<char>(arg.floats[n] > 0);
        break;
      case HUSK_ARG_STRING: sink = static_cast<char>(std::strlen(arg.string)); break;
      case HUSK_ARG_TENSORS:
        touch(context, arg.tensors, static_cast<uint32_t>(arg.count), error);
        break;
      case HUSK_ARG_RESULT:
        if (arg.dtype == HUSK_F64)
          *static_cast<double*>(arg.data) = 2.5;
        else
          *static_cast<int64_t*>(arg.data) = 3;
        break;
      case HUSK_ARG_TENSOR: {
        const size_t width = detail::element_bytes(arg.dtype);
        walk(arg, width, [&](char* at) {
          check(at, width, "op");
          if (arg.access & HUSK_ACCESS_READ) sink = *at;
          if (arg.access & HUSK_ACCESS_WRITE) std::memset(at, sink, width);
        });
        break;
      }
    }
  }
  return HUSK_OK;
}

}  // namespace

const husk_port* checking_port() { return &kPort; }
const husk_port* checking_port_beside_host() { return &kPortBesideHost; }
husk_op touching_op(const char* name) {
  return {sizeof(husk_op), 0, name, touch, nullptr, nullptr, nullptr, nullptr, 0, 0, 0, 0};
}
void announce(const void* memory, size_t size) {
  announced()[reinterpret_cast<uintptr_t>(memory) + size] = reinterpret_cast<uintptr_t>(memory);
}
void forget() { announced().clear(); }
size_t live() { return allocated().size() + static_cast<size_t>(open_devices); }

}  // namespace husk::fuzz
