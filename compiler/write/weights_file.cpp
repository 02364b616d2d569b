#include "write/weights_file.h"

#include <cstring>

#include "base/align.h"
#include "ir/compile_error.h"
#include "ir/op_table.h"
#include "model/container.h"
#include "read/artifact.h"

namespace husk::compiler {
namespace {

// The header without its length, which is a multiple of kBlobAlign together with it.
std::string make_header(const Program& program, const std::vector<Content>& constants) {
  SafetensorsHeader header;
  uint64_t end = 0;
  for (size_t i = 0; i < constants.size(); ++i) {
    const Constant& constant = program.constants[i];
    if (!constant.folded_by.text.empty()) continue;
    const uint64_t begin = constants[i].size() ? align_up(end, kBlobAlign) : end;
    // No name of a constant has a slash.
    if (begin > end)
      header.add(fmt::format("padding/{}", end), HUSK_U8, {static_cast<int64_t>(begin - end)}, end);
    if (!header.add(constant.name.text, constant.dtype, constant.dims, begin))
      fail(constant.bytes.place,
           "constant '{}' is {}, which safetensors lacks: leave the weights "
           "inside of the artifact",
           constant.name.text, dtype_name(constant.dtype));
    end = begin + constants[i].size();
  }
  std::string text = header.text();
  text.resize(align_up(8 + text.size(), kBlobAlign) - 8, ' ');
  return text;
}

std::filesystem::path folder_of(const std::filesystem::path& artifact) {
  std::error_code missing;
  const std::filesystem::path target = std::filesystem::canonical(artifact, missing);
  return (missing ? artifact : target).parent_path();
}

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

WeightsFile::WeightsFile(const Program& program, const std::vector<Content>& constants,
                         const std::filesystem::path& artifact)
    : folder_(folder_of(artifact)), file_(folder_ / "weights" HUSK_WEIGHTS_ENDING) {
  const std::string header = make_header(program, constants);
  const uint64_t length = header.size();
  uint8_t digits[sizeof(length)];
  memcpy(digits, &length, sizeof(length));  // all supported platforms are little-endian
  write(digits);
  write(bytes_of(header));
  Blake2b hash = hash_;
  uint8_t digest[32];
  hash.finish(digest);
  memcpy(row_.header_hash, digest, sizeof(row_.header_hash));
}

fb::Blob WeightsFile::add(const Content& content) {
  static constexpr uint8_t kZeros[kBlobAlign] = {};
  Blake2b hash;
  uint64_t offset = 0;
  if (content.size()) {
    offset = align_up(at_, kBlobAlign);
    write({kZeros, static_cast<size_t>(offset - at_)});
    content.each([&](std::span<const uint8_t> part) {
      hash.update(part.data(), part.size());
      write(part);
    });
  }
  uint8_t digest[32];
  hash.finish(digest);
  fb::Hash bytes;
  memcpy(&bytes, digest, sizeof(digest));
  return fb::Blob(offset, content.size(), bytes);
}

WeightsRow WeightsFile::close() {
  file_.close();
  row_.magic = kWeightsMagic;
  row_.bytes = at_;
  hash_.finish(row_.hash);
  return row_;
}

void WeightsFile::finish() {
  file_.finish_as(folder_ / (hexadecimal(row_.hash, kWeightsNameBytes) + HUSK_WEIGHTS_ENDING));
}

void WeightsFile::write(std::span<const uint8_t> bytes) {
  hash_.update(bytes.data(), bytes.size());
  file_.write(bytes);
  at_ += bytes.size();
}

}  // namespace husk::compiler
