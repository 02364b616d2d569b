// The compiler as a library: text form in, artifact out.
//
// Every function here may be called from any thread; none keeps state or changes its arguments. Nothing throws: a
// problem comes back as an Error, which names the place in the text (1-based; line 0 where it is not of the text, as
// with a file that cannot be written) and what to do.
#ifndef HUSK_COMPILER_COMPILE_H
#define HUSK_COMPILER_COMPILE_H

#include "write/object.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace husk::compiler {

struct Error {
  uint32_t line = 0;
  uint32_t column = 0;
  std::string text;
};

// "name:12:7: text", or "name: text" without a place.
std::string describe(const Error& error, std::string_view name);

template <class T>
using Result = std::variant<T, Error>;   // std::get_if<Error>(&result) says whether it failed

// What was made, for one line of output.
struct Summary {
  uint64_t functions = 0;
  uint64_t steps = 0;            // over all variants
  uint64_t registers = 0;        // scalar ops, guards among them, over all variants
  uint64_t metadata_bytes = 0;
  uint64_t image_bytes = 0;      // as stored: equal blobs once
  uint64_t constant_bytes = 0;
  uint64_t file_bytes = 0;
};

// The artifact of a program in text form, in memory. Images and constants are looked for under `root`.
Result<std::vector<uint8_t>> compile_text(std::string_view text, const std::filesystem::path& root);

// The same for a file; its folder is the root.
Result<std::vector<uint8_t>> compile(const std::filesystem::path& path);

// The same, streamed into the file `out`: constants are mapped and never copied as a whole. On failure `out` is as it
// was. An empty `root` is the folder of `path`.
Result<Summary> compile_file(const std::filesystem::path& path, const std::filesystem::path& out,
                             const std::filesystem::path& root = {});

// The text as the printer writes it: one statement a line, no comments.
// The artifact as an object file for `machine`, under the C name `symbol`, for husk_program_link. Returns its bytes.
Result<uint64_t> compile_object(const std::filesystem::path& path, const std::filesystem::path& out,
                                const std::filesystem::path& root, const std::string& symbol, Machine machine);

Result<std::string> format_text(std::string_view text);
Result<std::string> format_file(const std::filesystem::path& path);

}  // namespace husk::compiler

#endif
