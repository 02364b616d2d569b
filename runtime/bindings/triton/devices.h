// The devices that models run on: the CPU and the GPUs, each with an engine of Husk.
#ifndef HUSK_BINDINGS_TRITON_DEVICES_H
#define HUSK_BINDINGS_TRITON_DEVICES_H

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <husk/husk.h>

#include "error.h"

namespace husk::triton {

// A device and its engine, which all models there share.
struct Device {
  static constexpr int32_t kCpu = -1;

  husk_engine* engine = nullptr;
  int32_t gpu = kCpu;  // the number of the GPU
  uint64_t memory_bytes = 0;
  bool is_rank = false;  // one of several, on which a model runs at once

  bool is_gpu() const { return gpu != kCpu; }
  // "the CPU" or "GPU 0".
  std::string name() const;
  DLDevice dlpack() const { return {is_gpu() ? kDLCUDA : kDLCPU, is_gpu() ? gpu : 0}; }
  // The kind of the device's own memory, and its number there.
  TRITONSERVER_MemoryType memory_type() const {
    return is_gpu() ? TRITONSERVER_MEMORY_GPU : TRITONSERVER_MEMORY_CPU;
  }
  int64_t memory_id() const { return is_gpu() ? gpu : 0; }
  [[nodiscard]] Error upload(void* stream, void* to, const void* from, uint64_t bytes) const;
  [[nodiscard]] Error download(void* stream, void* to, const void* from, uint64_t bytes) const;
};

// A rank of a group, which opens one with an id that all have in common.
struct Group {
  const husk_group_id* id;
  uint32_t rank, world, timeout_ms;
};

// A block of memory of a device, whose size a request decides.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  ~DeviceMemory() { reset(); }
  // Makes the block at least `bytes` large; its content is lost if it grows. No work uses it.
  [[nodiscard]] Error reserve(const Device& device, uint64_t bytes, void** data);
  // Returns a large block to the device. No work uses it.
  void trim();

 private:
  void reset();

  husk_engine* engine_ = nullptr;
  void* data_ = nullptr;
  uint64_t size_ = 0;
};

// A stream of a device; that of the CPU is null.
class DeviceStream {
 public:
  DeviceStream() = default;
  DeviceStream(const DeviceStream&) = delete;
  ~DeviceStream() { husk_engine_stream_destroy(engine_, stream_); }
  [[nodiscard]] Error create(const Device& device);
  void* get() const { return stream_; }

 private:
  husk_engine* engine_ = nullptr;
  void* stream_ = nullptr;
};

// The engines, which are created when a model needs them: versions of a model share equal
// constants, and all models share the threads of large kernels. Several threads may call.
class Devices {
 public:
  Devices() = default;
  Devices(const Devices&) = delete;
  ~Devices();
  // Reads the command line, and opens the CPU.
  [[nodiscard]] Error create(TRITONBACKEND_Backend* handle);
  [[nodiscard]] Error open(int32_t gpu, Device* device);
  // Opens a rank with an engine of its own, which the caller releases. Waits for the other ranks.
  [[nodiscard]] Error open_rank(int32_t gpu, const Group& group, Device* device) const;
  // Makes the id of a group of ranks.
  [[nodiscard]] static Error create_group(int32_t gpu, husk_group_id* id);

 private:
  Error create_engine(const Group* group, Device* device) const;

  husk_threads threads_ = {};
  std::mutex mutex_;
  std::vector<Device> devices_;
};

}  // namespace husk::triton

#endif
