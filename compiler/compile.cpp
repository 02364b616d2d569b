#include "compile.h"

#include <husk/husk.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>

#include "ir/failure.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "passes/check.h"
#include "passes/lower.h"
#include "passes/place.h"
#include "write/artifact.h"

namespace husk::compiler {
namespace {

struct Compiled {
  Sources sources;
  std::vector<uint8_t> metadata;
  Summary summary;
};

Compiled build(std::string_view text, const std::filesystem::path& root) {
  const Program program = parse(text);
  check(program);
  ProgramRows rows = lower(program);
  Sources sources(program, root);
  place(*fb::GetProgram(make_metadata(program, rows, sources).data()), rows);
  std::vector<uint8_t> metadata = make_metadata(program, rows, sources);
  Summary s;
  s.functions = rows.functions.size();
  for (const auto& variants : rows.functions) {
    for (const VariantRows& v : variants) {
      s.steps += v.steps.size();
      s.registers += v.scalars.size();
    }
  }
  s.metadata_bytes = metadata.size();
  s.image_bytes = sources.image_bytes();
  s.constant_bytes = sources.constant_bytes();
  s.file_bytes = file_bytes(metadata, sources.blobs());
  return {std::move(sources), std::move(metadata), s};
}

// Turns what the passes throw into an Error.
template <class F>
auto guarded(F work) -> Result<decltype(work())> {
  try {
    return work();
  } catch (const Failure& failure) {
    return Error{failure.place.line, failure.place.column, failure.text};
  } catch (const std::bad_alloc&) {
    return Error{0, 0, "out of memory"};
  } catch (const std::exception& other) {
    return Error{0, 0, other.what()};
  }
}

std::string read_text(const std::filesystem::path& path) {
  std::string error;
  const Mapping file(path, error);
  if (!error.empty()) throw Failure{{}, error};
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::vector<uint8_t> in_memory(std::string_view text, const std::filesystem::path& root) {
  const Compiled made = build(text, root);
  std::vector<uint8_t> out;
  out.reserve(made.summary.file_bytes);
  write_artifact(made.metadata, made.sources.blobs(),
                 [&](std::span<const uint8_t> bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); });
  return out;
}

// A file beside its final name, which it takes only when it is whole.
class Draft {
 public:
  explicit Draft(const std::filesystem::path& path) : path_(path), draft_(path.string() + ".part") {
    file_ = fopen(draft_.c_str(), "wb");
    if (!file_) fail({}, "cannot write {}: {}", draft_.string(), strerror(errno));
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    if (file_) fclose(file_);
    std::error_code ignored;
    if (!kept_) std::filesystem::remove(draft_, ignored);
  }

  void write(std::span<const uint8_t> bytes) {
    if (!bytes.empty() && fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail_to_write();
  }
  const std::filesystem::path& close() {
    FILE* file = file_;
    file_ = nullptr;
    if (fclose(file) != 0) fail_to_write();
    return draft_;
  }
  void keep() {
    std::error_code error;
    std::filesystem::rename(draft_, path_, error);
    if (error) fail({}, "cannot write {}: {}", path_.string(), error.message());
    kept_ = true;
  }

 private:
  [[noreturn]] void fail_to_write() { fail({}, "cannot write {}: {}", draft_.string(), strerror(errno)); }

  std::filesystem::path path_, draft_;
  FILE* file_ = nullptr;
  bool kept_ = false;
};

// What the runtime would refuse must not leave the compiler.
void verify_file(const std::filesystem::path& path) {
  std::string text;
  const Mapping file(path, text);
  if (!text.empty()) throw Failure{{}, text};
  husk_error error = {};
  if (husk_program_verify(file.bytes().data(), file.bytes().size(), &error) != HUSK_OK)
    fail({}, "the artifact that was made is refused ({}): this is a defect of the compiler", error.text);
}

}  // namespace

std::string describe(const Error& error, std::string_view name) {
  if (!error.line) return fmt::format("{}: {}", name, error.text);
  return fmt::format("{}:{}:{}: {}", name, error.line, error.column, error.text);
}

Result<std::vector<uint8_t>> compile_text(std::string_view text, const std::filesystem::path& root) {
  return guarded([&] { return in_memory(text, root); });
}

Result<std::vector<uint8_t>> compile(const std::filesystem::path& path) {
  return guarded([&] { return in_memory(read_text(path), path.parent_path()); });
}

Result<Summary> compile_file(const std::filesystem::path& path, const std::filesystem::path& out,
                             const std::filesystem::path& root) {
  return guarded([&] {
    std::error_code none;
    if (std::filesystem::equivalent(path, out, none)) fail({}, "the output would overwrite the input");
    const Compiled made = build(read_text(path), root.empty() ? path.parent_path() : root);
    Draft draft(out);
    write_artifact(made.metadata, made.sources.blobs(), [&](std::span<const uint8_t> bytes) { draft.write(bytes); });
    verify_file(draft.close());
    draft.keep();
    return made.summary;
  });
}

Result<uint64_t> compile_object(const std::filesystem::path& path, const std::filesystem::path& out,
                                const std::filesystem::path& root, const std::string& symbol, Machine machine) {
  return guarded([&] {
    const std::vector<uint8_t> artifact = in_memory(read_text(path), root.empty() ? path.parent_path() : root);
    husk_error error = {};
    if (husk_program_verify(artifact.data(), artifact.size(), &error) != HUSK_OK)
      fail({}, "the artifact that was made is refused ({}): this is a defect of the compiler", error.text);
    Draft draft(out);
    draft.write(make_object(artifact, symbol, machine));
    draft.close();
    draft.keep();
    return static_cast<uint64_t>(artifact.size());
  });
}

Result<std::string> format_text(std::string_view text) {
  return guarded([&] { return print(parse(text)); });
}

Result<std::string> format_file(const std::filesystem::path& path) {
  return guarded([&] { return print(parse(read_text(path))); });
}

}  // namespace husk::compiler
