// Files whose metadata take as long to verify as a file of their size can.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace husk::bench {

struct HostileFile {
  std::string name;
  bool valid;  // a file that is refused was looked at as a whole before
  std::vector<uint8_t> bytes;
};

// Files with about `metadata` bytes of metadata.
std::vector<HostileFile> hostile_files(uint32_t metadata);

}  // namespace husk::bench
