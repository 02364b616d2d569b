#include "compile.h"

#include <cstring>
#include <new>
#include <optional>
#include <system_error>

#include "base/align.h"
#include "ir/compile_error.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "passes/check.h"
#include "passes/lower.h"
#include "passes/order_placement.h"
#include "read/artifact.h"
#include "weights/joined_file.h"
#include "write/artifact.h"
#include "write/linked.h"
#include "write/output_file.h"
#include "write/ranks.h"
#include "write/weights_file.h"

namespace husk::compiler {
namespace {

// Compiles a program and writes the artifact, in parts, to `sink`. What `sink` has written ends at
// Summary::file_bytes.
// The constants go to `beside`, which is made for them if it is not null.
Summary build(std::string_view text, const std::filesystem::path& root, const PipedFile& piped,
              const Sink& sink, std::optional<WeightsFile>* beside = nullptr,
              const std::filesystem::path& out = {}) {
  const Program program = parse(text);
  check(program);
  ProgramRows rows = lower(program);
  TensorStream stream(piped.file, piped.name);
  const Sources sources(program, root, piped.name.empty() ? nullptr : &stream);
  order_placement(program, rows);
  std::vector<uint8_t> metadata = make_metadata(program, rows);
  const std::vector<fb::Blob*> blob = blob_rows(metadata);
  Blobs blobs(sink, blob_base(metadata));
  Summary s;
  size_t row = 0;
  for (const Content& image : sources.images()) *blob[row++] = blobs.add(image, kImageAlign);
  s.image_bytes = blobs.stored_bytes();
  uint64_t bytes = 0, features = 0;  // of the header
  if (beside) {
    beside->emplace(program, sources.constants(), out);
    s.file_bytes = align_up(blobs.file_bytes(), sizeof(WeightsRow)) + sizeof(WeightsRow);
    const uint64_t begin = align_up(s.file_bytes, kWeightsAlign);
    for (const Content& constant : sources.constants()) {
      const fb::Blob place = (*beside)->add(constant);
      const uint64_t offset = place.size() ? begin - blob_base(metadata) + place.offset() : 0;
      *blob[row++] = fb::Blob(offset, place.size(), place.hash());
      s.constant_bytes += place.size();
    }
    const WeightsRow last = (*beside)->close();
    sink(s.file_bytes - sizeof(last), {reinterpret_cast<const uint8_t*>(&last), sizeof(last)});
    bytes = begin + last.bytes;
    features = kWeightsFeature;
  } else {
    for (const Content& constant : sources.constants())
      *blob[row++] = blobs.add(constant, kBlobAlign);
    s.constant_bytes = blobs.stored_bytes() - s.image_bytes;
    bytes = s.file_bytes = blobs.file_bytes();
  }
  s.functions = rows.functions.size();
  for (const auto& variants : rows.functions) {
    for (const VariantRows& v : variants) {
      s.steps += v.steps.size();
      s.registers += v.scalars.size();
    }
  }
  s.metadata_bytes = metadata.size();
  write_head(metadata, bytes, features, sink);
  return s;
}

// Calls `work` and turns its exceptions into an Error.
template <class F>
auto guarded(F work) -> Result<decltype(work())> {
  try {
    return work();
  } catch (const CompileError& error) {
    return Error{error.place.line, error.place.column, error.text};
  } catch (const std::bad_alloc&) {
    return Error{0, 0, "out of memory"};
  } catch (const std::exception& other) {
    return Error{0, 0, other.what()};
  }
}

bool is_artifact(std::span<const uint8_t> bytes) {
  return bytes.size() >= sizeof(kMagic) && memcmp(bytes.data(), kMagic, sizeof(kMagic)) == 0;
}

std::string read_text(const std::filesystem::path& path) {
  std::string error;
  const Mapping file(path, error);
  if (!error.empty()) throw CompileError{{}, error};
  if (is_artifact(file.bytes()))
    fail({}, "it is an artifact, not the text of a program; only --emit=obj takes artifacts");
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::vector<uint8_t> in_memory(std::string_view text, const std::filesystem::path& root,
                               const PipedFile& piped = {}, Summary* summary = nullptr) {
  std::vector<uint8_t> out;
  const Summary s = build(text, root, piped, memory_sink(out));
  out.resize(s.file_bytes);
  if (summary) *summary = s;
  return out;
}

void refuse_same_file(const std::filesystem::path& path, const std::filesystem::path& out) {
  std::error_code none;
  if (std::filesystem::equivalent(path, out, none))
    fail({}, "the output would overwrite the input");
}

// Applies the runtime's verifier, so that no file leaves the compiler that the runtime would
// refuse.
[[noreturn]] void refuse_artifact(const std::string& error) {
  fail({}, "the verifier refuses the compiled artifact ({}): this is a defect of the compiler",
       error);
}

void verify(std::span<const uint8_t> artifact) {
  std::string error;
  if (!Artifact::view(artifact, error)) refuse_artifact(error);
}

// Returns the name of the file of weights beside the artifact.
std::string verify_file(const std::filesystem::path& path) {
  std::string error;
  const auto artifact = Artifact::open(path, error, true);
  if (!artifact) refuse_artifact(error);
  return artifact->weights();
}

}  // namespace

std::string describe(const Error& error, std::string_view name) {
  if (!error.line) return fmt::format("{}: {}", name, error.text);
  return fmt::format("{}:{}:{}: {}", name, error.line, error.column, error.text);
}

Result<std::vector<uint8_t>> compile_text(std::string_view text,
                                          const std::filesystem::path& root) {
  return guarded([&] { return in_memory(text, root); });
}

Result<std::vector<uint8_t>> compile(const std::filesystem::path& path) {
  return guarded([&] { return in_memory(read_text(path), path.parent_path()); });
}

Result<Summary> compile_file(const std::filesystem::path& path, const std::filesystem::path& out,
                             const std::filesystem::path& root, const PipedFile& piped,
                             Weights weights) {
  return guarded([&] {
    refuse_same_file(path, out);
    const std::string text = read_text(path);
    const std::filesystem::path folder = root.empty() ? path.parent_path() : root;
    Summary summary;
    if (is_stream(out)) {  // it cannot be read again
      if (weights == Weights::beside)
        fail({}, "{} is no regular file: there is no place beside it for the weights",
             out.string());
      const std::vector<uint8_t> artifact = in_memory(text, folder, piped, &summary);
      verify(artifact);
      OutputFile file(out);
      file.write(artifact);
      file.finish();
      return summary;
    }
    OutputFile file(out);
    std::optional<WeightsFile> beside;
    summary = build(
        text, folder, piped,
        [&](uint64_t at, std::span<const uint8_t> bytes) { file.write_at(at, bytes); },
        weights == Weights::beside ? &beside : nullptr, out);
    file.resize(summary.file_bytes);
    const std::filesystem::path& written = file.close();
    if (beside) beside->finish();
    summary.weights = verify_file(written);
    file.finish();
    return summary;
  });
}

Result<ObjectSummary> compile_object(const std::filesystem::path& path,
                                     const std::filesystem::path& out,
                                     const std::filesystem::path& root, const std::string& symbol,
                                     Machine machine) {
  return guarded([&] {
    refuse_same_file(path, out);
    std::string error;
    const Mapping input(path, error);
    if (!error.empty()) throw CompileError{{}, error};
    std::vector<uint8_t> compiled;
    std::span<const uint8_t> artifact = input.bytes();
    if (weights::lie_beside(path.c_str()))
      fail({}, "its weights lie beside it, and an object file has them inside: compile the .hir");
    if (!is_artifact(artifact)) {
      compiled = in_memory(read_text(path), root.empty() ? path.parent_path() : root);
      verify(compiled);
      artifact = compiled;
    } else if (const auto whole = Artifact::view(artifact, error)) {
      error = whole->ranks() ? "it holds the artifacts of all ranks: compile the file of one rank"
                             : whole->check_blobs();
    }
    if (!error.empty()) fail({}, "{}", error);
    const LinkedArtifact linked = take_kernels(artifact, machine);
    OutputFile file(out);
    file.write(make_object(linked.bytes, symbol, machine, linked.kernels, linked.launches));
    file.finish();
    ObjectSummary summary;
    summary.artifact_bytes = linked.bytes.size();
    for (const KernelObject& each : linked.kernels) summary.linked.push_back(each.name);
    summary.loaded = linked.loaded;
    summary.foreign = linked.foreign;
    return summary;
  });
}

Result<RanksSummary> join_ranks(const std::vector<std::filesystem::path>& artifacts,
                                const std::filesystem::path& out) {
  return guarded([&] {
    std::vector<std::unique_ptr<Artifact>> opened;
    std::string error;
    for (const std::filesystem::path& path : artifacts) {
      refuse_same_file(path, out);
      opened.push_back(Artifact::open(path, error));
      if (!opened.back()) fail({}, "{}: {}", path.string(), error);
    }
    if (is_stream(out)) fail({}, "{} is no regular file", out.string());
    OutputFile file(out);
    const RanksBytes sizes = write_ranks(
        opened, [&](uint64_t at, std::span<const uint8_t> bytes) { file.write_at(at, bytes); });
    file.resize(sizes.file);
    const std::filesystem::path& written = file.close();
    for (uint32_t rank = 0; rank < opened.size(); ++rank)
      if (!Artifact::open(written, error, true, rank)) refuse_artifact(error);
    file.finish();
    return RanksSummary{sizes.file, sizes.shared};
  });
}

Result<std::string> format_text(std::string_view text) {
  return guarded([&] { return print(parse(text)); });
}

Result<std::string> format_file(const std::filesystem::path& path) {
  return guarded([&] { return print(parse(read_text(path))); });
}

}  // namespace husk::compiler
