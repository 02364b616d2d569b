// The bytes of a file, mapped read-only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace husk::compiler {

class Mapping {
 public:
  // If the file cannot be mapped, the mapping is empty and `error` is not.
  Mapping(const std::filesystem::path& path, std::string& error);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace husk::compiler
