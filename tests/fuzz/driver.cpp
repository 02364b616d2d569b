// Runs a fuzzer without libFuzzer, on files and on mutants of them, which a fixed seed determines.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MUTANTS FILE...\n", argv[0]);
    return 2;
  }
  const int mutants = std::atoi(argv[1]);
  std::mt19937 random(1);
  for (int i = 2; i < argc; ++i) {
    std::ifstream stream(argv[i], std::ios::binary);
    const std::vector<uint8_t> seed((std::istreambuf_iterator<char>(stream)), {});
    if (seed.size() < 64) {
      std::fprintf(stderr, "%s is not an artifact\n", argv[i]);
      return 2;
    }
    LLVMFuzzerTestOneInput(seed.data(), seed.size());
    const size_t metadata = std::min<size_t>(seed.size(),
                                             64 + (seed[12] | seed[13] << 8 | seed[14] << 16));
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
    std::printf("%s: %d mutants\n", argv[i], mutants);
  }
  return 0;
}
