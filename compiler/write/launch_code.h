// Straight-line machine code that calls kernels one after another (husk_linked_launches).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "write/object.h"

namespace husk::compiler {

// The most calls of one LaunchCode, and the limit of the distances between their parameters. With
// these, all jumps and offsets fit their instructions.
constexpr uint32_t kMaxLaunchCalls = 4096, kMaxParamsOffset = 1u << 20;

struct LaunchCode {
  std::vector<uint8_t> bytes;
  std::vector<uint64_t> calls;  // by call: where `bytes` receive the address of the kernel
};

// The code that calls a kernel for each of `params`, the distances in bytes between the parameters
// of the first call and those of each call. The linker writes the addresses of the kernels
// (call_relocation).
LaunchCode make_launch_code(Machine machine, std::span<const uint32_t> params);

// The relocation of a call: its type, and the addend.
struct CallRelocation {
  uint32_t type;
  int64_t addend;
};
CallRelocation call_relocation(Machine machine);

}  // namespace husk::compiler
