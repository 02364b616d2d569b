// Programs for the compiler's tests.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "compile.h"

namespace husk::test {

// A program with one function `f` for the host: x f32 [0..100, 8], m int 1..64, n int, t float in, y f32 of rank 2 out.
// `body` stands before the buffers of x and y, `steps` behind them.
std::string program(std::string_view body, std::string_view steps = "");

// The bytes of the artifact; a test failure and empty where there is an error.
std::vector<uint8_t> compiled(std::string_view text, const std::filesystem::path& root = "/nowhere");

// "line:column: text" of the error; empty where there is none.
std::string error_of(std::string_view text, const std::filesystem::path& root = "/nowhere");

// The disassembly of all variants, after the runtime has verified the bytes.
std::string code_of(std::string_view text, const std::filesystem::path& root = "/nowhere");

// The register ops of `code`, without buffers and steps, one a line without indentation.
std::string scalars_of(std::string_view text);

// A folder that goes with the test.
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

// The bytes of a safetensors file with these entries of its header, as JSON, and this data.
std::string safetensors(std::string_view header, std::string_view data);

}  // namespace husk::test
