// A device of the port: the driver's table, the primary context, the guard that makes the context
// current, and the port functions that are not about modules or graphs.
#pragma once

#include <pthread.h>

#include <husk/port_cuda.h>

#include "driver.h"
#include "error.h"
#include "nvtx.h"

namespace husk::cuda {

struct Device;
struct DeviceGroup;

// A caller's handle of a device. Each device has two: `plain`, and `entered`, for which the context
// is current already, between husk_port.enter and leave.
struct Handle {
  Device* device;
  bool entered;
};

// A library behind ops of the port, opened when the first program calls one of them.
struct OpLibrary {
  void* state;                                       // null if the library is not open
  void (*close)(const Device& device, void* state);  // the context is current
};
constexpr int kOpLibraries = 5;  // as many as ops/find_op.cpp lists

struct Device {
  Handle plain, entered;
  Driver driver;
  const husk_allocator* allocator;
  const husk_threads* threads;  // the application's; may be null
  husk_cuda_options options;
  NvtxLibrary nvtx;
  CUdevice device;
  CUcontext context;
  int32_t index;
  int major, minor;         // compute capability
  int shared_optin;         // largest shared memory of a block, bytes
  int integrated;           // 1 if device memory is host memory
  int registers_read_only;  // 1 if host memory that is mapped read-only can be registered
  CUstream private_stream;  // for work of the port itself: uploads of graphs, small batches, fills
  char name[128];
  pthread_mutex_t mutex;              // guards the members below
  OpLibrary libraries[kOpLibraries];  // in the order of ops/find_op.cpp
  DeviceGroup* group;                 // of ranks (ops/group.h); null if the device has joined none
  char finished[80];  // with check_each: the last work that is known to have finished, or ""
};

inline Device& as_device(void* handle) { return *static_cast<Handle*>(handle)->device; }
inline CUdeviceptr as_address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
inline CUstream as_stream(void* stream) { return static_cast<CUstream>(stream); }

// Makes the device's context current for the duration of one port function. The function must
// return `status` if it is an error.
class Current {
 public:
  Current(void* handle, husk_error* error);
  // For a function that gives something back and cannot fail. A second attempt follows a first one
  // that fails. If both fail, the device is lost, and the driver frees what it has with the
  // context.
  explicit Current(void* handle);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  husk_status status;

 private:
  const Handle& handle_;
};

// Holds a mutex as long as the object lives.
class Lock {
 public:
  explicit Lock(pthread_mutex_t* mutex) : mutex_(mutex) { pthread_mutex_lock(mutex_); }
  ~Lock() { pthread_mutex_unlock(mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t* mutex_;
};

// With check_each: waits for `stream`, unless it captures work. If work failed, the error names the
// work that the format describes and the last work that is known to have finished.
[[gnu::format(printf, 4, 5)]] husk_status check_work(Device& device, void* stream,
                                                     husk_error* error, const char* format, ...);

// Host memory from the engine's allocator. If there is none, allocate returns null and the error
// names `thing`.
void* allocate(const Device& device, size_t size, const char* thing, husk_error* error);
void release(const Device& device, void* memory);

// The functions of husk_port; husk/port.h says what each does.

// device.cpp
husk_status open(void* user, int32_t index, const husk_allocator* allocator,
                 const husk_threads* threads, void** device, husk_error* error);
void close(void* device);
void properties(void* device, husk_port_properties* out);
husk_status enter(void* device, void** entered, husk_error* error);
void leave(void* entered);

// arch_rank.cpp
int32_t arch_rank(void* device, const char* arch, int32_t format);
int32_t arch_rank_on(const char* device_arch, const char* arch, int32_t format);

// memory.cpp
husk_status memory_alloc(void* device, uint64_t size, void** memory, husk_error* error);
void memory_free(void* device, void* memory);
husk_status alloc_host_flag(void* device, volatile uint32_t** word, husk_error* error);
void free_host_flag(void* device, volatile uint32_t* word);
husk_status alloc_host(void* device, uint64_t size, void** memory, husk_error* error);
void free_host(void* device, void* memory);
husk_status upload(void* device, void* stream, void* to, const void* from, uint64_t size,
                   husk_error* error);
husk_status download(void* device, void* stream, void* to, const void* from, uint64_t size,
                     husk_error* error);
husk_status copy(void* device, void* stream, void* to, const void* from, uint64_t size,
                 husk_error* error);
husk_status fill(void* device, void* stream, void* to, uint64_t pattern, uint32_t width,
                 uint64_t count, husk_error* error);
husk_status stream_create(void* device, void** stream, husk_error* error);
void stream_destroy(void* device, void* stream);
husk_status stream_wait(void* device, void* stream, husk_error* error);

// capture.cpp
husk_status stream_capturing(void* device, void* stream, int32_t* capturing, husk_error* error);

// event.cpp
husk_status event_create(void* device, void** event, husk_error* error);
void event_destroy(void* device, void* event);
husk_status event_record(void* device, void* event, void* stream, husk_error* error);
husk_status event_elapsed(void* device, void* begin, void* end, uint64_t* nanoseconds,
                          husk_error* error);
husk_status event_wait(void* device, void* event, husk_error* error);

// upload_batch.cpp
husk_status upload_batch(void* device, const husk_upload* uploads, uint32_t count,
                         const husk_mapping* mapping, husk_error* error);
bool is_large(const Device& device, uint64_t bytes);  // true if pinned memory is worth its cost

// map.cpp
husk_status map(void* device, const void* memory, uint64_t size, void** address, husk_error* error);
void unmap(void* device, const void* memory, uint64_t size);

}  // namespace husk::cuda
