// A device of the port: the driver's table, the primary context, and the guard that makes it current.
#ifndef HUSK_CUDA_DEVICE_H
#define HUSK_CUDA_DEVICE_H

#include <husk/port_cuda.h>

#include <pthread.h>

#include "driver.h"
#include "error.h"
#include "ranges.h"

namespace husk::cuda {

struct Device;
struct Products;

// What a caller holds: the device, and whether its context is current already (enter).
struct Handle {
  Device* device;
  bool entered;
};

struct Device {
  Handle plain, entered;
  Driver driver;
  const husk_allocator* allocator;
  const husk_threads* threads;   // the caller's; may be null
  husk_cuda_options options;
  Ranges ranges;
  CUdevice device;
  CUcontext context;
  int32_t index;
  int major, minor;           // compute capability
  int shared_optin;           // most shared memory of a block, bytes
  int integrated;             // device memory is host memory
  int registers_read_only;    // takes host memory that it may only read
  CUstream private_stream;    // for work that no caller waits for: uploads of graphs
  char name[128];
  pthread_mutex_t mutex;      // guards the next two
  Products* products;         // null until a program calls one
  char finished[80];          // with check_each: the last work that was waited for; empty before
};

inline Device& as_device(void* handle) { return *static_cast<Handle*>(handle)->device; }
inline CUdeviceptr as_address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
inline CUstream as_stream(void* stream) { return static_cast<CUstream>(stream); }

// Makes the device's context current for one port function. `status` says whether it did.
class Current {
 public:
  Current(void* handle, husk_error* error);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  husk_status status;

 private:
  const Handle& handle_;
};

// A range of a profile, as long as the object lives.
class Range {
 public:
  Range(const Device& device, const char* name) : ranges_(device.ranges) {
    if (ranges_.push) ranges_.push(name);
  }
  ~Range() {
    if (ranges_.pop) ranges_.pop();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  const Ranges& ranges_;
};

// With check_each: waits for `stream`, and says what went wrong in the work that the format names, and what was done before it.
[[gnu::format(printf, 4, 5)]] husk_status check_work(Device& device, void* stream, husk_error* error,
                                                     const char* format, ...);

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
husk_status enter(void* device, void** entered, husk_error* error);
void leave(void* entered);

husk_status memory_alloc(void* device, uint64_t size, void** memory, husk_error* error);
void memory_free(void* device, void* memory);
husk_status share(void* device, volatile uint32_t** word, husk_error* error);
void unshare(void* device, volatile uint32_t* word);
husk_status upload(void* device, void* stream, void* to, const void* from, uint64_t size, husk_error* error);
husk_status download(void* device, void* stream, void* to, const void* from, uint64_t size, husk_error* error);
husk_status copy(void* device, void* stream, void* to, const void* from, uint64_t size, husk_error* error);
husk_status fill(void* device, void* stream, void* to, uint64_t pattern, uint32_t width, uint64_t count,
                 husk_error* error);

// load.cpp
husk_status load(void* device, const husk_load* loads, uint32_t count, const husk_mapping* mapping, husk_error* error);
bool is_large(const Device& device, uint64_t bytes);   // whether pinned memory is worth its cost
husk_status map(void* device, const void* memory, uint64_t size, void** address, husk_error* error);
void unmap(void* device, const void* memory, uint64_t size);

husk_status stream_create(void* device, void** stream, husk_error* error);
void stream_destroy(void* device, void* stream);
husk_status stream_wait(void* device, void* stream, husk_error* error);

}  // namespace husk::cuda
#endif
