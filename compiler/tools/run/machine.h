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
  // outlive the machine. `verify_content` is husk_engine_options.verify_content. Throws exit_usage
  // or exit_load.
  Machine(const std::string& name, uint32_t threads, const husk_cuda_options& options,
          bool verify_content);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void* stream() const { return stream_; }
  const husk_port_properties& properties() const { return properties_; }

  // Opens an artifact. If its constants are verified and stderr is a terminal, a bar shows the
  // progress. Throws exit_load.
  husk_program* program_open(const std::string& path);

  // Allocates memory of the device, at least one byte. The machine frees it.
  void* allocate(uint64_t size);
  void upload(void* to, const std::vector<unsigned char>& bytes);
  void download(std::vector<unsigned char>& bytes, const void* from);

 private:
  void open(int32_t index);
  static int32_t show_progress(void* machine, uint64_t done, uint64_t total);
  void close();

  husk_port port_{};
  husk_cuda_options options_ = HUSK_CUDA_OPTIONS_INIT;
  bool verify_content_;
  bool bar_shown_ = false;  // the cursor is behind the bar of the progress
  husk_threads threads_{};
  husk_engine* engine_ = nullptr;
  void* device_ = nullptr;  // a second handle of the device; it shares memory with the engine's
  void* stream_ = nullptr;
  husk_port_properties properties_ = HUSK_PORT_PROPERTIES_INIT;
  std::vector<void*> memory_;
};

}  // namespace husk::run
