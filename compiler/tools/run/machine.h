// A device with its port, an engine, a stream, and memory for inputs and outputs.
#pragma once

#include <string>
#include <vector>

#include <husk/husk.h>
#include <husk/port_cuda.h>

namespace husk::run {

class Machine {
 public:
  // `name` is "host", "cuda" or "cuda:N". `threads` is the number of threads for kernels and ops of
  // the host; 0 means one for each CPU. `options` are for CUDA; the strings that they point to must
  // outlive the machine. Throws exit_usage or exit_load.
  Machine(const std::string& name, uint32_t threads, const husk_cuda_options& options);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  husk_engine* engine() const { return engine_; }
  void* stream() const { return stream_; }
  const husk_port_properties& properties() const { return properties_; }

  // Allocates memory of the device, at least one byte. The machine frees it.
  void* allocate(uint64_t size);
  void upload(void* to, const std::vector<unsigned char>& bytes);
  void download(std::vector<unsigned char>& bytes, const void* from);

 private:
  void open(int32_t index);
  void close();

  husk_port port_{};
  husk_cuda_options options_ = HUSK_CUDA_OPTIONS_INIT;
  husk_threads threads_{};
  husk_engine* engine_ = nullptr;
  void* device_ = nullptr;  // a second handle of the device; it shares memory with the engine's
  void* stream_ = nullptr;
  husk_port_properties properties_ = HUSK_PORT_PROPERTIES_INIT;
  std::vector<void*> memory_;
};

}  // namespace husk::run
