// Fuzzes the compiler with arbitrary bytes as the text of a program. An invalid text must give an
// error with a place. A valid one must give an artifact that the runtime accepts, and must be
// printed as a text with the same meaning.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include <husk/husk.h>

#include "compile.h"
#include "ir/compile_error.h"
#include "ir/parser.h"
#include "ir/printer.h"

namespace {

using namespace husk::compiler;

[[noreturn]] void defect(const char* what, const std::string& text) {
  std::fprintf(stderr, "%s: %s\n", what, text.c_str());
  std::abort();
}

// Whether the program reads no files but the image of the seeds.
bool reads_only_seed_files(const Program& program) {
  for (const Image& image : program.images)
    if (image.file.text != "test_kernels.so" && image.file.text != "missing.so") return false;
  for (const Constant& constant : program.constants)
    if (constant.in_file) return false;
  return true;
}

void check_artifact(const std::vector<uint8_t>& bytes) {
  const std::unique_ptr<uint8_t, decltype(&std::free)> copy(
      static_cast<uint8_t*>(std::aligned_alloc(64, (bytes.size() + 63) / 64 * 64)), std::free);
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  husk_error error = {};
  if (husk_program_verify(copy.get(), bytes.size(), &error) != HUSK_OK)
    defect("the artifact is refused", error.text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Program tree;
  try {
    tree = parse(text);
  } catch (const CompileError& error) {
    if (error.place.line == 0 || error.text.empty())
      defect("an error without its place", error.text);
    return 0;
  }
  const std::string printed = print(tree);
  try {
    if (!(parse(printed) == tree)) defect("the printed text means something else", printed);
  } catch (const CompileError& error) {
    defect("the printed text is refused", error.text);
  }
  if (!reads_only_seed_files(tree)) return 0;
  static const char* const environment_root = std::getenv("HUSK_FUZZ_ROOT");
  const char* const root = environment_root ? environment_root : HUSK_FUZZ_ROOT;
  const auto artifact = compile_text(text, root);
  if (const Error* error = std::get_if<Error>(&artifact)) {
    if (error->line == 0) defect("an error without its place", error->text);
    return 0;
  }
  check_artifact(std::get<0>(artifact));
  const auto again = compile_text(printed, root);
  if (again.index() != 0 || std::get<0>(again) != std::get<0>(artifact))
    defect("the printed text makes another artifact", printed);
  return 0;
}
