// A device of the port: the driver's table, the primary context, and the guard that makes it current.
#ifndef HUSK_CUDA_DEVICE_H
#define HUSK_CUDA_DEVICE_H

#include <husk/port.h>

#include "driver.h"
#include "error.h"

namespace husk::cuda {

struct Device {
  Driver driver;
  const husk_allocator* allocator;
  CUdevice device;
  CUcontext context;
  int32_t index;
  int major, minor;           // compute capability
  int shared_optin;           // most shared memory of a block, bytes
  CUstream private_stream;    // for work that no caller waits for: uploads of graphs
  char name[128];
};

inline Device& as_device(void* device) { return *static_cast<Device*>(device); }
inline CUdeviceptr as_address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
inline CUstream as_stream(void* stream) { return static_cast<CUstream>(stream); }

// Makes the device's context current for one port function. `status` says whether it did.
class Current {
 public:
  Current(const Device& device, husk_error* error);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  husk_status status;

 private:
  const Device& device_;
};

// Host memory of the engine. allocate fills `error` with the thing that had no memory.
void* allocate(const Device& device, size_t size, const char* thing, husk_error* error);
void release(const Device& device, void* memory);

// For functions without an error of their own (free, destroy), whose failure nobody can act on.
struct Ignored {
  husk_error error;
};

husk_status open(void* user, int32_t index, const husk_allocator* allocator, const husk_threads* threads,
                 void** device, husk_error* error);
void close(void* device);
void properties(void* device, husk_port_properties* out);
int32_t fit(void* device, const char* arch, int32_t format);

husk_status memory_alloc(void* device, uint64_t size, void** memory, husk_error* error);
void memory_free(void* device, void* memory);
husk_status upload(void* device, void* stream, void* to, const void* from, uint64_t size, husk_error* error);
husk_status download(void* device, void* stream, void* to, const void* from, uint64_t size, husk_error* error);
husk_status copy(void* device, void* stream, void* to, const void* from, uint64_t size, husk_error* error);
husk_status fill(void* device, void* stream, void* to, uint64_t pattern, uint32_t width, uint64_t count,
                 husk_error* error);

husk_status stream_create(void* device, void** stream, husk_error* error);
void stream_destroy(void* device, void* stream);
husk_status stream_wait(void* device, void* stream, husk_error* error);

}  // namespace husk::cuda
#endif
