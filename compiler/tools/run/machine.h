// A device with its port, an engine, a stream, and memory for inputs and outputs.
#pragma once

#include <string>
#include <vector>

#include <husk/husk.h>
#include <husk/port_cuda.h>

#include "run/ranks.h"

namespace husk::run {

struct MachineOptions {
  std::string tool = "husk-run";  // the program's name, for warnings
  std::string device = "host";    // the name of a port, or NAME:N
  uint32_t threads = 1;           // for kernels and ops of the host; 0 means one for each CPU
  husk_cuda_options cuda = HUSK_CUDA_OPTIONS_INIT;  // its strings must outlive the machine
  bool verify_content = false;                      // husk_engine_options.verify_content
  RankOptions rank;      // the engine's place among those of several ranks
  uint32_t timeout = 0;  // husk_engine_options.group_timeout_ms
  std::string weights;   // the folder of weights that lie beside artifacts; empty: that of each
  void (*change_port)(husk_port& port) = nullptr;  // called before the port is used; may be null
};

// The devices that a command line can name: "host, cuda or cuda:N".
std::string device_names();

class Machine {
 public:
  // Throws exit_usage or exit_load.
  explicit Machine(const MachineOptions& options);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  husk_engine* engine() const { return engine_; }
  void* stream() const { return stream_; }
  // Creates another stream, which the machine destroys. Throws exit_run.
  void* stream_create();
  bool is_host() const;
  const husk_port_properties& properties() const { return properties_; }

  // Opens an artifact. If its constants are verified and stderr is a terminal, a bar shows the
  // progress. Throws exit_load.
  husk_program* program_open(const std::string& path);

  // Allocates memory of the device, or of the host beside it, at least one byte. The machine frees
  // it.
  void* allocate(uint64_t size, bool on_host);
  void upload(void* to, const std::vector<unsigned char>& bytes);
  void download(std::vector<unsigned char>& bytes, const void* from);

 private:
  void open(int32_t index);
  static int32_t show_progress(void* machine, uint64_t done, uint64_t total);
  void close();

  static void log_warning(void* machine, int32_t level, const char* text);

  MachineOptions options_;
  husk_port port_{};
  bool bar_shown_ = false;  // the cursor is behind the bar of the progress
  husk_threads threads_{};
  husk_engine* engine_ = nullptr;
  void* device_ = nullptr;  // a second handle of the device; it shares memory with the engine's
  void* stream_ = nullptr;
  std::vector<void*> streams_;  // of stream_create
  husk_port_properties properties_ = HUSK_PORT_PROPERTIES_INIT;
  std::vector<void*> memory_, host_memory_;
};

}  // namespace husk::run
