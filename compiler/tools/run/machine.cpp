#include "run/machine.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include <husk/ops.h>
#include <husk/port_cuda.h>
#include <husk/port_host.h>
#include <husk/ports.h>
#include <husk/weights.h>

#include "run/run_error.h"

namespace husk::run {

namespace {

const husk_allocator process_memory = {
    nullptr,
    [](void*, size_t size, size_t align) {
      align = std::max(align, sizeof(void*));
      return std::aligned_alloc(align, (size + align - 1) / align * align);
    },
    [](void*, void* pointer) { std::free(pointer); },
};

int32_t index_from(const std::string& name, size_t colon) {
  int32_t index = 0;
  const char *begin = name.data() + colon + 1, *end = name.data() + name.size();
  const auto [last, error] = std::from_chars(begin, end, index);
  if (error != std::errc() || last != end || index < 0)
    fail(exit_usage, "--device={}: {} is not the number of a device", name,
         std::string(begin, end));
  return index;
}

}  // namespace

std::string device_names() {
  std::string names, last;
  const auto add = [&](std::string name) {
    if (!last.empty()) names += (names.empty() ? "" : ", ") + last;
    last = std::move(name);
  };
  for (uint32_t i = 0; const husk_port* port = husk_port_at(i); ++i) {
    add(port->name);
    if (port != husk_port_host()) add(std::string(port->name) + ":N");
  }
  return names + " or " + last;
}

Machine::Machine(const MachineOptions& options) : options_(options) {
  const std::string& name = options_.device;
  const size_t colon = name.find(':');
  const husk_port* port = husk_port_find(name.c_str());
  if (!port) fail(exit_usage, "--device={}: unknown device: write {}", name, device_names());
  port_ = *port;
  if (port == husk_port_cuda()) port_.user = &options_.cuda;
  if (options_.change_port) options_.change_port(port_);
  husk_error error;
  if (options_.threads != 1) {
    check(husk_host_threads_create(options_.threads, nullptr, &threads_, &error), error,
          exit_usage);
  }
  try {
    open(colon == name.npos ? 0 : index_from(name, colon));
  } catch (...) {
    close();
    throw;
  }
}

Machine::~Machine() { close(); }

bool Machine::is_host() const { return port_.open == husk_port_host()->open; }

void Machine::log_warning(void* machine, int32_t level, const char* text) {
  if (level < HUSK_LOG_WARNING) return;
  fmt::print(stderr, "{}: warning: {}\n", static_cast<Machine*>(machine)->options_.tool, text);
}

void Machine::open(int32_t index) {
  husk_error error;
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.device_index = index;
  options.port = &port_;
  options.log = log_warning;
  options.log_user = this;
  if (threads_.parallel) options.threads = &threads_;
  options.allow_host_images = 1;     // the user of this tool trusts the artifact
  options.require_op_contracts = 1;  // the tool registers no ops of its own
  options.verify_content = options_.verify_content;
  options.rank = options_.rank.rank;
  options.world = options_.rank.world;
  options.group = options_.rank.group;
  options.group_timeout_ms = options_.timeout;
  if (isatty(STDERR_FILENO)) options.progress = show_progress;
  options.progress_user = this;
  check(husk_engine_create(&options, &engine_, &error), error, exit_load);
  check(husk_ops_add_all(engine_, &error), error, exit_load);
  check(husk_engine_properties(engine_, &properties_, &error), error, exit_load);
  check(port_.open(port_.user, index, &process_memory, nullptr, &device_, &error), error,
        exit_load);
  check(port_.stream_create(device_, &stream_, &error), error, exit_load);
}

void Machine::close() {
  if (device_) {
    for (void* memory : memory_) port_.free(device_, memory);
    for (void* memory : host_memory_) port_.free_host(device_, memory);
    for (void* stream : streams_) port_.stream_destroy(device_, stream);
    if (stream_) port_.stream_destroy(device_, stream_);
    port_.close(device_);
  }
  husk_engine_release(engine_);
  husk_host_threads_release(&threads_);
}

int32_t Machine::show_progress(void* machine, uint64_t done, uint64_t total) {
  constexpr int width = 40;
  const double part = total ? static_cast<double>(done) / static_cast<double>(total) : 1;
  const int filled = static_cast<int>(part * width);
  fmt::print(stderr, "\rverifying [{:#<{}}{:.<{}}] {:3.0f} %", "", filled, "", width - filled,
             part * 100);
  static_cast<Machine*>(machine)->bar_shown_ = true;
  return 0;
}

husk_program* Machine::program_open(const std::string& path) {
  husk_program* program = nullptr;
  husk_error error;
  const char* folder = options_.weights.empty() ? nullptr : options_.weights.c_str();
  const husk_status status = husk_weights_open(engine_, path.c_str(), folder, &program, &error);
  if (bar_shown_) fmt::print(stderr, "\n");
  bar_shown_ = false;
  check(status, error, exit_load);
  return program;
}

void* Machine::stream_create() {
  husk_error error;
  void* stream = nullptr;
  streams_.reserve(streams_.size() + 1);
  check(port_.stream_create(device_, &stream, &error), error, exit_run);
  streams_.push_back(stream);
  return stream;
}

void* Machine::allocate(uint64_t size, bool on_host) {
  husk_error error;
  void* memory = nullptr;
  auto& all = on_host ? host_memory_ : memory_;
  const auto alloc = on_host ? port_.alloc_host : port_.alloc;
  all.reserve(all.size() + 1);
  check(alloc(device_, std::max<uint64_t>(size, 1), &memory, &error), error, exit_run);
  all.push_back(memory);
  return memory;
}

void Machine::upload(void* to, const std::vector<unsigned char>& bytes) {
  husk_error error;
  if (bytes.empty()) return;
  check(port_.upload(device_, stream_, to, bytes.data(), bytes.size(), &error), error, exit_run);
  // Runs may use other streams.
  check(port_.stream_wait(device_, stream_, &error), error, exit_run);
}

void Machine::download(std::vector<unsigned char>& bytes, const void* from) {
  husk_error error;
  if (bytes.empty()) return;
  check(port_.download(device_, stream_, bytes.data(), from, bytes.size(), &error), error,
        exit_run);
}

}  // namespace husk::run
