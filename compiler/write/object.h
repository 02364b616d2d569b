// Writes an artifact as an object file, for applications that link it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "write/relocatable.h"

namespace husk::compiler {

enum class Machine : uint16_t { x86_64 = 62, aarch64 = 183 };  // e_machine of the ELF specification

// The machine called "x86-64" or "aarch64".
std::optional<Machine> machine_of(std::string_view name);

// A C identifier made from the name of a file: "my-model.husk" gives husk_my_model.
std::string symbol_of(std::string_view file);

// The kernels of an image, which become code of the object file.
struct KernelObject {
  std::string name;               // of the image's row
  std::set<std::string> exports;  // the symbols that ports look for, if the object defines them
  Relocatable object;
};

// Launches of a variant that follow one another, and become straight-line code of the object file.
struct LaunchRow {
  struct Call {
    size_t image;        // the kernel's, among the kernel objects
    std::string symbol;  // of the kernel
    uint32_t params;     // bytes between the parameters of the first call and those of this one
  };
  uint32_t function, variant, first_step;
  std::vector<Call> calls;
};

// A relocatable little-endian ELF file for `machine`. Its read-only data is `bytes`, aligned to
// 4096; the symbol `symbol` names it. If there are kernels, the offset of the table of kernels and
// launches follows it (husk/detail/linked.h). All symbols of the kernels become local, so that
// several such files can be linked into one program. Throws a CompileError if a kernel object has
// something that cannot be copied.
std::vector<uint8_t> make_object(std::span<const uint8_t> bytes, const std::string& symbol,
                                 Machine machine, const std::vector<KernelObject>& kernels = {},
                                 const std::vector<LaunchRow>& launches = {});

}  // namespace husk::compiler
