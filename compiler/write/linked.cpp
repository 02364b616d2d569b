#include "write/linked.h"

#include <algorithm>
#include <utility>

#include <husk/detail/linked.h>
#include <husk/port.h>

#include "ir/compile_error.h"
#include "read/artifact.h"
#include "write/artifact.h"
#include "write/launch_code.h"

namespace husk::compiler {
namespace {

// The symbols of an image that ports look for. Fails if the object lacks a kernel.
std::set<std::string> exports(const fb::Program& program, uint32_t image,
                              const Relocatable& object) {
  std::set<std::string> out = {"husk_texts", "husk_text_count", "husk_image_threads"};
  for (uint32_t k = 0; k < count(program.kernels()); ++k) {
    const fb::Kernel* kernel = program.kernels()->Get(k);
    if (kernel->image() != image) continue;
    const std::string symbol = kernel->symbol()->str();
    const bool defined = std::any_of(
        object.symbols.begin(), object.symbols.end(), [&](const Relocatable::Symbol& each) {
          return each.name == symbol && each.row.st_shndx != SHN_UNDEF &&
                 ELF64_ST_TYPE(each.row.st_info) == STT_FUNC;
        });
    if (!defined)
      fail({}, "kernel '{}': the object of image '{}' defines no function '{}'",
           kernel->name()->str(), program.images()->Get(image)->name()->str(), symbol);
    out.insert(symbol);
  }
  return out;
}

constexpr size_t kNotLinked = SIZE_MAX;

// Returns whether the grid of a launch is 1 1 1 for all inputs.
bool is_one_call(const Code& code, const fb::Instruction& step) {
  for (uint32_t i = step.b(); i < step.b() + 3; ++i) {
    const uint32_t reg = code.arguments[i].index();
    const fb::Instruction& size = code.scalars[reg];
    // A constant of a segment that is skipped is 0.
    if (static_cast<Scalar>(size.op()) != Scalar::op_const || immediate(size) != 1 ||
        code.segments[code.segment_of(reg)].when() != kNone)
      return false;
  }
  return true;
}

// Adds the rows of launches of a variant. `linked` has the index among the kernel objects for each
// image, or kNotLinked.
void add_rows(const Code& code, const std::vector<size_t>& linked, uint32_t function,
              uint32_t variant, std::vector<LaunchRow>& out) {
  for (const fb::Segment& segment : code.segments) {
    bool in_row = false;
    uint32_t first = 0;  // the first argument of the row
    for (uint32_t s = segment.step_begin(); s < segment.step_end(); ++s) {
      const fb::Instruction& step = code.steps[s];
      const bool is_launch = static_cast<Step>(step.op()) == Step::op_launch;
      const fb::Kernel* kernel = is_launch ? code.program->kernels()->Get(step.a()) : nullptr;
      if (!kernel || linked[kernel->image()] == kNotLinked || !is_one_call(code, step)) {
        in_row = false;
        continue;
      }
      constexpr uint32_t kPointer = sizeof(void*);  // `params` has one for each argument
      if (!in_row || out.back().calls.size() == kMaxLaunchCalls ||
          step.b() - first >= kMaxParamsOffset / kPointer) {
        first = step.b();
        out.push_back({function, variant, s, {}});
        in_row = true;
      }
      out.back().calls.push_back(
          {linked[kernel->image()], kernel->symbol()->str(), (step.b() - first) * kPointer});
    }
  }
}

}  // namespace

LinkedArtifact take_kernels(std::span<const uint8_t> bytes, Machine machine) {
  std::string error;
  const auto artifact = Artifact::view(bytes, error);
  if (!artifact) fail({}, "{}", error);
  const fb::Program& program = artifact->program();
  const uint8_t* const blobs_begin = bytes.data() + bytes.size() - artifact->blob_bytes();
  LinkedArtifact out;
  std::vector<std::span<const uint8_t>> contents;
  std::vector<size_t> linked(count(program.images()), kNotLinked);  // by image
  for (uint32_t i = 0; i < count(program.images()); ++i) {
    const fb::Image* image = program.images()->Get(i);
    const std::string name = image->name()->str();
    std::span<const uint8_t> content = {blobs_begin + image->blob()->offset(),
                                        static_cast<size_t>(image->blob()->size())};
    if (image->format() == HUSK_IMAGE_ELF) {
      if (elf_machine(content) != static_cast<uint16_t>(machine)) {
        out.foreign = true;
        content = {};
      } else if (const auto object = find_object(content, name)) {
        if (elf_machine(*object) != static_cast<uint16_t>(machine))
          fail({}, "image '{}': its object is for another machine than the image", name);
        Relocatable code = read_relocatable(*object, name);
        linked[i] = out.kernels.size();
        out.kernels.push_back({name, exports(program, i, code), std::move(code)});
        content = {};
      } else {
        out.loaded.push_back(name);
      }
    }
    contents.push_back(content);
  }
  out.foreign = out.foreign && out.kernels.empty() && out.loaded.empty();
  if (out.kernels.empty()) {
    out.bytes.assign(bytes.begin(), bytes.end());
    return out;
  }
  for (uint32_t f = 0; f < count(program.functions()); ++f) {
    const fb::Function* function = program.functions()->Get(f);
    for (uint32_t v = 0; v < count(function->variants()); ++v)
      add_rows(Code(&program, function, function->variants()->Get(v)), linked, f, v, out.launches);
  }
  const size_t images = contents.size();
  for (uint32_t i = 0; i < count(program.constants()); ++i) {
    const fb::Blob* blob = program.constants()->Get(i)->blob();
    contents.emplace_back(blobs_begin + blob->offset(), static_cast<size_t>(blob->size()));
  }
  const size_t constants = contents.size() - images;
  for (uint32_t i = 0; i < count(program.packed()); ++i) {
    const fb::Blob& blob = program.packed()->Get(i)->blob();
    contents.emplace_back(blobs_begin + blob.offset(), static_cast<size_t>(blob.size()));
  }
  const uint8_t* const metadata_begin = bytes.data() + kHeaderBytes;
  std::vector<uint8_t> metadata(metadata_begin, metadata_begin + artifact->metadata_bytes());
  const Sink sink = memory_sink(out.bytes);
  Blobs blobs(sink, blob_base(metadata));
  const std::vector<fb::Blob*> rows = blob_rows(metadata);
  for (size_t i = 0; i < rows.size(); ++i)
    *rows[i] = blobs.add({contents[i]},
                         i >= images && i < images + constants ? kBlobAlign : kImageAlign);
  out.bytes.resize(blobs.file_bytes());
  write_head(metadata, out.bytes.size(), detail::kLinkedFeature, sink);
  return out;
}

}  // namespace husk::compiler
