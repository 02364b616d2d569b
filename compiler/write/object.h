// Writes an artifact as an object file, for applications that link it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace husk::compiler {

enum class Machine : uint16_t { x86_64 = 62, aarch64 = 183 };  // e_machine of the ELF specification

// The machine called "x86-64" or "aarch64".
std::optional<Machine> machine_of(std::string_view name);

// A C identifier made from the name of a file: "my-model.husk" gives husk_my_model.
std::string symbol_of(std::string_view file);

// A relocatable little-endian ELF file for `machine`. Its read-only data is `bytes`, aligned to
// 4096; the symbol `symbol` names it.
std::vector<uint8_t> make_object(std::span<const uint8_t> bytes, const std::string& symbol,
                                 Machine machine);

}  // namespace husk::compiler
