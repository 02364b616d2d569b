// Files of artifacts, for programs that try mutants of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace husk::fuzz {

struct SeedFile {
  std::string name;
  std::vector<uint8_t> bytes;
};

// Reads the files, and all files of the folders, in the order of their names.
inline std::vector<SeedFile> read_seeds(char** first, char** end) {
  std::vector<std::filesystem::path> paths;
  for (; first != end; ++first) {
    if (!std::filesystem::is_directory(*first)) {
      paths.emplace_back(*first);
      continue;
    }
    const size_t old_size = paths.size();
    for (const auto& entry : std::filesystem::directory_iterator(*first))
      if (entry.is_regular_file()) paths.push_back(entry.path());
    std::sort(paths.begin() + static_cast<std::ptrdiff_t>(old_size), paths.end());
  }
  std::vector<SeedFile> seeds;
  for (const std::filesystem::path& path : paths) {
    std::ifstream stream(path, std::ios::binary);
    seeds.push_back({path.filename().string(),
                     std::vector<uint8_t>((std::istreambuf_iterator<char>(stream)), {})});
  }
  return seeds;
}

}  // namespace husk::fuzz
