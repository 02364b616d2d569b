#include "devices.h"

#include <utility>

#include <husk/ops.h>
#include <husk/port_host.h>
#include <husk/ports.h>

#include "config.h"

namespace husk::triton {
namespace {

void log_husk(void*, int32_t level, const char* text) {
  log(level == HUSK_LOG_WARNING ? TRITONSERVER_LOG_WARN : TRITONSERVER_LOG_INFO, text);
}

}  // namespace

std::string Device::name() const { return is_gpu() ? "GPU " + std::to_string(gpu) : "the CPU"; }

Error Device::upload(void* stream, void* to, const void* from, uint64_t bytes) const {
  husk_error error;
  if (husk_engine_upload(engine, stream, to, from, bytes, &error) != HUSK_OK) return fail(error);
  return nullptr;
}

Error Device::download(void* stream, void* to, const void* from, uint64_t bytes) const {
  husk_error error;
  if (husk_engine_download(engine, stream, to, from, bytes, &error) != HUSK_OK) return fail(error);
  return nullptr;
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : engine_(other.engine_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Error DeviceMemory::reserve(const Device& device, uint64_t bytes, void** data) {
  if (!data_ || bytes > size_) {
    reset();
    engine_ = device.engine;
    husk_error error;
    if (husk_engine_alloc(engine_, bytes, &data_, &error) != HUSK_OK) return fail(error);
    size_ = bytes;
  }
  *data = data_;
  return nullptr;
}

void DeviceMemory::trim() {
  constexpr uint64_t kKept = 64 << 20;
  if (size_ > kKept) reset();
}

void DeviceMemory::reset() {
  husk_engine_free(engine_, data_);
  data_ = nullptr;
  size_ = 0;
}

Error DeviceStream::create(const Device& device) {
  if (!device.is_gpu()) return nullptr;
  engine_ = device.engine;
  husk_error error;
  if (husk_engine_stream_create(engine_, &stream_, &error) != HUSK_OK) return fail(error);
  return nullptr;
}

Devices::~Devices() {
  for (const Device& device : devices_) husk_engine_release(device.engine);
  husk_host_threads_release(&threads_);
}

Error Devices::create(TRITONBACKEND_Backend* handle) {
  uint64_t threads = 1;
  HUSK_TRITON_TRY(read_command_line(handle, "threads", &threads));
  if (threads != 1) {
    if (threads > HUSK_HOST_THREADS_MAX)
      return fail(TRITONSERVER_ERROR_INVALID_ARG, "--backend-config=husk,threads is at most %d",
                  HUSK_HOST_THREADS_MAX);
    husk_error error;
    if (husk_host_threads_create(uint32_t(threads), nullptr, &threads_, &error) != HUSK_OK)
      return fail(error);
  }
  Device cpu;
  return open(Device::kCpu, &cpu);
}

Error Devices::open(int32_t gpu, Device* device) {
  std::lock_guard lock(mutex_);
  for (const Device& known : devices_) {
    if (known.gpu != gpu) continue;
    *device = known;
    return nullptr;
  }
  Device entry;
  entry.gpu = gpu;
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = husk_port_find(entry.is_gpu() ? "cuda" : "host");
  options.device_index = entry.is_gpu() ? gpu : 0;
  options.allow_host_images = 1;  // who writes to the model repository is trusted
  options.require_op_contracts = 1;
  options.log = log_husk;
  if (threads_.parallel) options.threads = &threads_;
  husk_error error;
  if (husk_engine_create(&options, &entry.engine, &error) != HUSK_OK) return fail(error);
  husk_port_properties properties = HUSK_PORT_PROPERTIES_INIT;
  if (husk_ops_add_all(entry.engine, &error) != HUSK_OK ||
      husk_engine_properties(entry.engine, &properties, &error) != HUSK_OK) {
    husk_engine_release(entry.engine);
    return fail(error);
  }
  entry.memory_bytes = properties.memory_bytes;
  devices_.push_back(entry);
  *device = entry;
  return nullptr;
}

}  // namespace husk::triton
