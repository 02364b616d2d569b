// Runs a fuzzer without libFuzzer, on files and on mutants of them, which a fixed seed determines.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "seed_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MUTANTS FILE_OR_FOLDER...\n", argv[0]);
    return 2;
  }
  const int mutants = std::atoi(argv[1]);
  std::mt19937 random(1);
  for (const auto& [name, seed] : husk::fuzz::read_seeds(argv + 2, argv + argc)) {
    LLVMFuzzerTestOneInput(seed.data(), seed.size());
    if (seed.size() <= 64) continue;
    // A file of all ranks has the metadata of each between other bytes.
    const bool has_ranks = seed[24] & 4;
    const size_t metadata = has_ranks
                                ? seed.size()
                                : std::min<size_t>(seed.size(), 64 + (seed[12] | seed[13] << 8 |
                                                                      seed[14] << 16));
    for (int n = 0; n < mutants; ++n) {
      std::vector<uint8_t> mutant = seed;
      for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
        uint8_t& byte = mutant[64 + random() % (metadata - 64)];
        switch (random() % 4) {
          case 0: byte = static_cast<uint8_t>(random()); break;
          case 1: ++byte; break;
          case 2: --byte; break;
          default: byte ^= static_cast<uint8_t>(1u << random() % 8);
        }
      }
      LLVMFuzzerTestOneInput(mutant.data(), mutant.size());
    }
    if (mutants) std::printf("%s: %d mutants\n", name.c_str(), mutants);
  }
  return 0;
}
