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

const husk_port* port_of(int32_t gpu) {
  return husk_port_find(gpu == Device::kCpu ? "host" : "cuda");
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
  HUSK_TRITON_TRY(create_engine(nullptr, &entry));
  devices_.push_back(entry);
  *device = entry;
  return nullptr;
}

Error Devices::open_rank(int32_t gpu, const Group& group, Device* device) const {
  device->gpu = gpu;
  device->is_rank = true;
  return create_engine(&group, device);
}

Error Devices::create_group(int32_t gpu, husk_group_id* id) {
  husk_error error;
  if (husk_group_id_create(port_of(gpu), id, &error) != HUSK_OK) return fail(error);
  return nullptr;
}

Error Devices::create_engine(const Group* group, Device* device) const {
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = port_of(device->gpu);
  options.device_index = device->is_gpu() ? device->gpu : 0;
  options.allow_host_images = 1;  // who writes to the model repository is trusted
  options.require_op_contracts = 1;
  options.log = log_husk;
  // Ranks wait for each other within a kernel, so they do not share the threads.
  if (threads_.parallel && !group) options.threads = &threads_;
  if (group) {
    options.rank = group->rank;
    options.world = group->world;
    options.group = group->id;
    options.group_timeout_ms = group->timeout_ms;
  }
  husk_error error;
  if (husk_engine_create(&options, &device->engine, &error) != HUSK_OK) return fail(error);
  husk_port_properties properties = HUSK_PORT_PROPERTIES_INIT;
  if (husk_ops_add_all(device->engine, &error) != HUSK_OK ||
      husk_engine_properties(device->engine, &properties, &error) != HUSK_OK) {
    husk_engine_release(device->engine);
    device->engine = nullptr;
    return fail(error);
  }
  device->memory_bytes = properties.memory_bytes;
  return nullptr;
}

}  // namespace husk::triton
