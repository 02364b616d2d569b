// The inputs of a program, from a file that tests/gpu/aoti.py writes:
//   function NAME
//   i64 FILE 2 32           an input: its type, the file of its bytes, its sizes
#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace husk::gpu {

struct Input {
  std::string type;
  std::vector<char> bytes;
  std::vector<int64_t> sizes;
};

struct Inputs {
  std::string function;
  std::vector<Input> inputs;

  // Returns false if a file cannot be read.
  bool read(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
      std::istringstream words(line);
      Input input;
      std::string name;
      words >> input.type >> name;
      if (input.type == "function") {
        function = name;
        continue;
      }
      for (int64_t n; words >> n;) input.sizes.push_back(n);
      std::ifstream data(path.substr(0, path.rfind('/') + 1) + name, std::ios::binary);
      if (!data) return false;
      input.bytes.assign(std::istreambuf_iterator<char>(data), {});
      inputs.push_back(std::move(input));
    }
    return !function.empty();
  }
};

// MiB of this process that are resident: all of them, and those that no file backs.
struct Resident {
  double all = 0, anonymous = 0;

  static Resident now() {
    Resident resident;
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line)) {
      long kib = 0;
      if (std::sscanf(line.c_str(), "VmRSS: %ld kB", &kib) == 1)
        resident.all = static_cast<double>(kib) / 1024;
      if (std::sscanf(line.c_str(), "RssAnon: %ld kB", &kib) == 1)
        resident.anonymous = static_cast<double>(kib) / 1024;
    }
    return resident;
  }
  void print(const char* when, const Resident& than) const {
    std::printf("  resident %-22s %8.1f MiB (%8.1f without files'), %+.1f (%+.1f)\n", when, all,
                anonymous, all - than.all, anonymous - than.anonymous);
  }
};

}  // namespace husk::gpu
