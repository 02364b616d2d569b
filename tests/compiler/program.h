// Programs and helpers for the tests of the compiler.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "compile.h"

namespace husk::test {

// A program with one function `f` for the host: x f32 [0..100, 8], m int 1..64, n int, t float in,
// y f32 of rank 2 out. `body` is inserted before the buffers of x and y, `steps` after them.
std::string program(std::string_view body, std::string_view steps = "");

// The bytes of the artifact. An error is a test failure; the result is empty then.
std::vector<uint8_t> compiled(std::string_view text,
                              const std::filesystem::path& root = "/nowhere");

// The error as "line:column: text"; empty if the program compiles.
std::string error_of(std::string_view text, const std::filesystem::path& root = "/nowhere");

// The disassembly of all variants. The runtime's verifier must accept the artifact.
std::string code_of(std::string_view text, const std::filesystem::path& root = "/nowhere");

// The scalar ops of code_of(text): one on each line, without indentation, buffers and steps.
std::string scalars_of(std::string_view text);

// A temporary folder, which the destructor removes.
class Folder {
 public:
  Folder();
  ~Folder();
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path file(const std::string& name, std::string_view content) const;
  std::string read(const std::string& name) const;

 private:
  std::filesystem::path path_;
};

// The bytes of a safetensors file with this JSON header and this data.
std::string safetensors(std::string_view header, std::string_view data);

}  // namespace husk::test
