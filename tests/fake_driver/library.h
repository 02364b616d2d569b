// Loaded images and their kernels.
#pragma once

#include "state.h"

namespace fake {

struct Function;

struct Library : Object {
  Library() : Object("library", true) {}
  void* handle = nullptr;
  const char* code = nullptr;  // the caller's bytes, if the caller promised to preserve them
  std::vector<char> bytes;
  std::map<std::string, struct Kernel*> kernels;
  CUresult late_error = CUDA_SUCCESS;  // the image's error, which the first look-up in it returns
  bool exchanges = false;              // the text of the port's own kernel
  char* log = nullptr;                 // the caller's buffer for messages of the compiler
  size_t log_size = 0;
  void check_preserved(const char* call) const;
};

struct Kernel : Object {
  Kernel(Library& owner, std::string symbol)
      : Object("kernel", false), library(owner), name(std::move(symbol)) {}
  Library& library;
  std::string name;
  void (*entry)(const fake_grid*, void**) = nullptr;
  const uint32_t* sizes = nullptr;
  uint32_t param_count = 0;
  uint32_t max_threads = 1024;
  Function* function = nullptr;
};

struct Function : Object {
  explicit Function(Kernel& of) : Object("function", false), kernel(of) {}
  Kernel& kernel;
  bool loaded = false, non_portable_cluster = false;
  int dynamic_shared = 48 * 1024;
};

// Grid, block and attributes of a launch, on a stream or in a graph.
struct LaunchShape {
  std::array<uint32_t, 3> grid, block;
  uint32_t shared_bytes;
  uint32_t cluster;
  bool programmatic = false;  // on a stream only
  bool set_attribute(CUlaunchAttributeID id, const CUlaunchAttributeValue& value);
};

struct Launch;
// Checks and copies shape and parameters, as the driver does during the call.
CUresult make_launch(const Call& call, CUfunction function, const LaunchShape& shape, void** params,
                     Launch* out);
// Makes `task` a task that runs the launch.
void fill_kernel_task(const Call& call, Launch launch, Task* task);

}  // namespace fake
