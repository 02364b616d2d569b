// The compiler as a library: it turns a program in text form into an artifact.
//
// The functions may be called from any thread; they keep no state and do not change their
// arguments. They do not throw: they return an Error, which says what is wrong and what to do.
#ifndef HUSK_COMPILER_COMPILE_H
#define HUSK_COMPILER_COMPILE_H

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "write/object.h"

namespace husk::compiler {

struct Error {
  uint32_t line = 0;  // in the text, from 1; 0 if the error is not in the text
  uint32_t column = 0;
  std::string text;
};

// "name:12:7: text", or "name: text" if the error has no place in the text.
std::string describe(const Error& error, std::string_view name);

template <class T>
using Result = std::variant<T, Error>;  // failed if std::get_if<Error>(&result) is not null

// The sizes of an artifact, for one line of output.
struct Summary {
  uint64_t functions = 0;
  uint64_t steps = 0;      // over all variants
  uint64_t registers = 0;  // scalar ops including guards, over all variants
  uint64_t metadata_bytes = 0;
  uint64_t image_bytes = 0;  // as stored: equal blobs count once
  uint64_t constant_bytes = 0;
  uint64_t file_bytes = 0;  // of the artifact, without a file of weights beside it
  std::string weights;      // the name of that file; empty if there is none
};

// Compiles a program in text form to an artifact in memory. Paths in the text are relative to
// `root`.
Result<std::vector<uint8_t>> compile_text(std::string_view text, const std::filesystem::path& root);

// Compiles a file to an artifact in memory. Paths in the text are relative to the file's folder.
Result<std::vector<uint8_t>> compile(const std::filesystem::path& path);

// A safetensors file that comes through a pipe. Its tensors are in the order of the constants.
struct PipedFile {
  std::string name;  // in the text; if it is empty, there is no such file
  int file = -1;     // a descriptor, which stays open
};

// Where the constants of an artifact lie: in it, or in a file of weights beside it.
enum class Weights { inside, beside };

// Compiles the file `path` to the file `out`. Constants are read and written in parts, so they need
// no memory of their own, and none is written twice. The output is written beside `out` and
// renamed, so that `out` is unchanged if an error occurs; a pipe or a device is written directly.
// Paths in the text are relative to `root`, or to the folder of `path` if `root` is empty.
Result<Summary> compile_file(const std::filesystem::path& path, const std::filesystem::path& out,
                             const std::filesystem::path& root = {}, const PipedFile& piped = {},
                             Weights weights = Weights::inside);

struct ObjectSummary {
  uint64_t artifact_bytes = 0;
  std::vector<std::string> linked;  // names of host images whose kernels are code of the object
  std::vector<std::string> loaded;  // names of host images that are loaded at run time
  bool foreign = false;             // all host images, at least one, are for other machines
};

// Compiles the file `path`, which may also be an artifact, to the object file `out` for `machine`,
// which defines the artifact as the C symbol `symbol` for husk_program_link.
Result<ObjectSummary> compile_object(const std::filesystem::path& path,
                                     const std::filesystem::path& out,
                                     const std::filesystem::path& root, const std::string& symbol,
                                     Machine machine);

// The sizes of a file of all ranks.
struct RanksSummary {
  uint64_t file_bytes = 0;
  uint64_t shared_bytes = 0;  // what images and constants take less than in a file for each rank
};

// Joins the artifacts of all ranks of a program, those of rank 0, 1 and so on, into the file `out`
// (FORMAT.md, "All ranks in one file"). What several ranks have is stored once.
Result<RanksSummary> join_ranks(const std::vector<std::filesystem::path>& artifacts,
                                const std::filesystem::path& out);

// The program as the printer writes it: one statement on each line, no comments.
Result<std::string> format_text(std::string_view text);
Result<std::string> format_file(const std::filesystem::path& path);

}  // namespace husk::compiler

#endif
