#include "program.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include <husk/husk.h>

#include "read/artifact.h"
#include "read/report.h"

namespace husk::test {

using namespace husk::compiler;

std::string program(std::string_view body, std::string_view steps) {
  return fmt::format(R"(hir 1
target cpu host "avx2"
constant weight f32 [4] bytes "00000000000000000000000000000000"
state cache f32 [4] fill 0
function f {{
  input x tensor f32 [0..100, 8]
  input m int 1..64
  input n int
  input t float
  output y tensor f32 rank 2
  variant cpu {{
{}
    buffer x of input bytes mul(size(x, 0), 32)
    buffer y of output bytes mul(size(x, 0), 32)
{}
    return (tensor y f32 [size(x, 0), 8] [8, 1])
  }}
}}
)",
                     body, steps);
}

std::vector<uint8_t> compiled(std::string_view text, const std::filesystem::path& root) {
  auto result = compile_text(text, root);
  if (const Error* error = std::get_if<Error>(&result)) {
    ADD_FAILURE() << describe(*error, "text");
    return {};
  }
  return std::get<std::vector<uint8_t>>(std::move(result));
}

std::string error_of(std::string_view text, const std::filesystem::path& root) {
  const auto result = compile_text(text, root);
  const Error* error = std::get_if<Error>(&result);
  return error ? fmt::format("{}:{}: {}", error->line, error->column, error->text) : "";
}

std::string code_of(std::string_view text, const std::filesystem::path& root) {
  const std::vector<uint8_t> bytes = compiled(text, root);
  if (bytes.empty()) return "";
  std::string error;
  const auto artifact = Artifact::view(bytes, error);
  if (!artifact) {
    ADD_FAILURE() << error;
    return "";
  }
  return report_code(*artifact);
}

std::string scalars_of(std::string_view text) {
  std::istringstream lines(code_of(text));
  std::string out, line;
  while (std::getline(lines, line)) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin != std::string::npos && (line[begin] == '%' || line.compare(begin, 5, "check") == 0))
      out += line.substr(begin) + "\n";
  }
  return out;
}

Folder::Folder() {
  std::string name = (std::filesystem::temp_directory_path() / "husk_test_XXXXXX").string();
  if (!mkdtemp(name.data())) ADD_FAILURE() << "cannot make " << name;
  path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path Folder::file(const std::string& name, std::string_view content) const {
  std::ofstream(path_ / name, std::ios::binary) << content;
  return path_ / name;
}

std::string Folder::read(const std::string& name) const {
  std::ifstream file(path_ / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string safetensors(std::string_view header, std::string_view data) {
  const uint64_t size = header.size();
  std::string out(8, '\0');
  memcpy(out.data(), &size, 8);
  return out.append(header).append(data);
}

}  // namespace husk::test
