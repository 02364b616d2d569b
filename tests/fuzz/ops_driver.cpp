// Runs the fuzzer of ops without libFuzzer, on random inputs, which a fixed seed determines.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s INPUTS\n", argv[0]);
    return 2;
  }
  std::mt19937 random(1);
  std::vector<uint8_t> input(16);  // further choices follow from these bytes
  for (int inputs = std::atoi(argv[1]); inputs > 0; --inputs) {
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  return 0;
}
