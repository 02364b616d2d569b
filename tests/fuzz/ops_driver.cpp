// Runs the fuzzer of ops without libFuzzer: on files, and on random inputs, which a fixed seed
// determines.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "seed_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s INPUTS [FILE_OR_FOLDER...]\n", argv[0]);
    return 2;
  }
  for (const auto& seed : husk::fuzz::read_seeds(argv + 2, argv + argc))
    LLVMFuzzerTestOneInput(seed.bytes.data(), seed.bytes.size());
  std::mt19937 random(1);
  std::vector<uint8_t> input(16);  // further choices follow from these bytes
  for (int inputs = std::atoi(argv[1]); inputs > 0; --inputs) {
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  return 0;
}
