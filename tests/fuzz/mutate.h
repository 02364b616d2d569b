// Artifacts whose metadata a fuzzer may bend: the header is made right again, so that the bent rows are reached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace husk::fuzz {

// A copy aligned to 4096 bytes whose sizes and content hash fit its bytes; empty if it is too short for a header.
struct Artifact {
  Artifact(const uint8_t* data, size_t size);
  ~Artifact();
  Artifact(const Artifact&) = delete;
  Artifact& operator=(const Artifact&) = delete;
  uint8_t* data = nullptr;
  size_t size = 0;
};

// What fuzz_run.cpp made of the artifacts that verified.
struct Runs {
  uint64_t loaded = 0, sessions = 0, finished = 0, refused = 0;
};
Runs& runs();

}  // namespace husk::fuzz
