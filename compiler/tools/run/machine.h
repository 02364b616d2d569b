// A device: its port, an engine on it, a stream, and memory for inputs and outputs.
#pragma once

#include <husk/husk.h>
#include <husk/port_cuda.h>

#include <string>
#include <vector>

namespace husk::run {

class Machine {
 public:
  // `name` is "host", "cuda" or "cuda:N"; `threads` are for kernels and ops of the host, 0: one for each CPU; `options` are
  // for CUDA, and what they point to outlives the machine. Fails (exit_usage, exit_load).
  Machine(const std::string& name, uint32_t threads, const husk_cuda_options& options);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  husk_engine* engine() const { return engine_; }
  void* stream() const { return stream_; }
  const husk_port_properties& properties() const { return properties_; }

  // Memory of the device, released with the machine; of at least one byte, so that it has an address.
  void* allocate(uint64_t size);
  void upload(void* to, const std::vector<unsigned char>& bytes);
  void download(std::vector<unsigned char>& bytes, const void* from);

 private:
  void open(int32_t index);
  void close();

  husk_port port_{};
  husk_cuda_options options_{};
  husk_threads threads_{};
  husk_engine* engine_ = nullptr;
  void* device_ = nullptr;   // beside the engine's own: memory of one is memory of the other
  void* stream_ = nullptr;
  husk_port_properties properties_{};
  std::vector<void*> memory_;
};

}  // namespace husk::run
