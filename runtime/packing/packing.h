// The copies of constants that the operators of a CPU make of an artifact, for the tool that writes
// them to a file (husk-pack).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <husk/husk.h>

namespace husk::packing {

// The names of the sets of features of this machine's architecture (cpus.def), in small letters.
std::vector<std::string> set_names();
// Returns whether the CPU of this machine has the features of a set.
bool has_set(const std::string& name);

struct Copy {
  std::array<uint8_t, 32> key;  // FORMAT.md, "Packed copies"
  std::span<const uint8_t> bytes;
};

// A program that is open on the CPU, with its copies.
class Opened {
 public:
  Opened() = default;
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened();
  // Opens the artifact at `path` as rank `rank` of `world`. If `set` is not empty, operators use
  // the features of this set only, which the CPU must have.
  husk_status open(const char* path, const std::string& set, uint32_t rank, uint32_t world,
                   husk_error* error);
  // The copies that files may have. They live as long as the object.
  std::vector<Copy> copies() const;

 private:
  husk_threads threads_ = {};
  husk_engine* engine_ = nullptr;
  husk_program* program_ = nullptr;
};

}  // namespace husk::packing
