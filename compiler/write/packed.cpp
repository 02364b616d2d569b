#include "write/packed.h"

#include <algorithm>
#include <cstring>

#include "base/align.h"
#include "base/blake2b.h"
#include "ir/compile_error.h"
#include "model/container.h"
#include "model/weights_row.h"
#include "write/artifact.h"
#include "write/mapping.h"

namespace husk::compiler {
namespace {

using flatbuffers::uoffset_t;
using flatbuffers::voffset_t;

template <class T>
void put(std::vector<uint8_t>& out, size_t at, T value) {
  memcpy(out.data() + at, &value, sizeof(value));
}

// The metadata with other packed copies. A new root table stands before the old metadata and names
// its rows, so that nothing in them moves; the old root table stays unused.
std::vector<uint8_t> replace_packed(std::span<const uint8_t> old,
                                    const std::vector<fb::PackedCopy>& rows) {
  constexpr size_t kFields = (fb::Program::VT_PACKED - fb::Program::VT_PRODUCER) / 2 + 1,
                   kTable = align_up(8 + sizeof(voffset_t) * (kFields + 2), 4),
                   kTableBytes = sizeof(uoffset_t) * (kFields + 1),
                   kElements = align_up(kTable + kTableBytes + sizeof(uoffset_t), 8);
  const auto* program = reinterpret_cast<const flatbuffers::Table*>(fb::GetProgram(old.data()));
  const size_t begin = kElements + rows.size() * sizeof(fb::PackedCopy);  // of the old metadata
  std::vector<uint8_t> out(begin + old.size());
  put(out, 0, static_cast<uoffset_t>(kTable));
  memcpy(out.data() + 4, fb::ProgramIdentifier(), 4);
  put(out, 8, static_cast<voffset_t>(sizeof(voffset_t) * (kFields + 2)));
  put(out, 10, static_cast<voffset_t>(kTableBytes));
  put(out, kTable, static_cast<flatbuffers::soffset_t>(kTable - 8));
  for (size_t i = 0; i < kFields; ++i) {
    const auto field = static_cast<voffset_t>(fb::Program::VT_PRODUCER + 2 * i);
    const size_t at = kTable + sizeof(uoffset_t) * (i + 1);
    size_t target = kElements - sizeof(uoffset_t);  // the length of the rows
    if (field != fb::Program::VT_PACKED) {
      const auto* named = program->GetPointer<const uint8_t*>(field);  // all fields are references
      if (!named) continue;
      target = begin + static_cast<size_t>(named - old.data());
    }
    put(out, 8 + field, static_cast<voffset_t>(at - kTable));
    put(out, at, static_cast<uoffset_t>(target - at));
  }
  put(out, kElements - sizeof(uoffset_t), static_cast<uoffset_t>(rows.size()));
  if (!rows.empty()) memcpy(out.data() + kElements, rows.data(), begin - kElements);
  memcpy(out.data() + begin, old.data(), old.size());
  if (out.size() > INT32_MAX)
    fail({}, "the metadata has {} bytes, 2^31-1 are the most", out.size());
  return out;
}

fb::Hash hash_of(std::span<const uint8_t> bytes) {
  Blake2b hash;
  fb::Hash out;
  hash.update(bytes.data(), bytes.size());
  hash.finish(reinterpret_cast<uint8_t*>(&out));
  return out;
}

}  // namespace

void write_packed(const std::filesystem::path& input, const std::vector<PackedContent>& copies,
                  OutputFile& out) {
  std::string error;
  const Mapping mapping(input, error);
  if (!error.empty()) throw CompileError{{}, error};
  const std::span<const uint8_t> file = mapping.bytes();
  uint32_t metadata_bytes;
  uint64_t features;
  memcpy(&metadata_bytes, file.data() + 12, sizeof(metadata_bytes));
  memcpy(&features, file.data() + 24, sizeof(features));
  // Rows are read in place, at addresses that are multiples of 8, as in the file.
  const std::span<const uint8_t> old = file.subspan(kHeaderBytes, metadata_bytes);
  const uint64_t old_base = align_up(kHeaderBytes + metadata_bytes, kBlobAlign);
  const bool beside = features & kWeightsFeature;
  const uint64_t old_end = file.size() - (beside ? sizeof(WeightsRow) : 0);
  const std::span<const uint8_t> blobs = old_end > old_base
                                             ? file.subspan(old_base, old_end - old_base)
                                             : std::span<const uint8_t>();

  std::vector<fb::PackedCopy> rows;
  if (const auto* packed = fb::GetProgram(old.data())->packed())
    for (const fb::PackedCopy* row : *packed) rows.push_back(*row);
  std::vector<std::span<const uint8_t>> contents;  // of the new rows
  const size_t kept = rows.size();
  uint64_t end = blobs.size();
  for (const PackedContent& copy : copies) {
    fb::Hash key;
    memcpy(&key, copy.key.data(), sizeof(key));
    const bool known = std::any_of(rows.begin(), rows.end(), [&](const fb::PackedCopy& row) {
      return memcmp(&row.key(), &key, sizeof(key)) == 0;
    });
    if (known) continue;
    const uint64_t offset = align_up(end, kImageAlign);
    rows.emplace_back(key, fb::Blob(offset, copy.bytes.size(), hash_of(copy.bytes)));
    contents.push_back(copy.bytes);
    end = offset + copy.bytes.size();
  }
  std::vector<fb::PackedCopy> sorted = rows;
  std::sort(sorted.begin(), sorted.end(), [](const fb::PackedCopy& a, const fb::PackedCopy& b) {
    return memcmp(&a.key(), &b.key(), sizeof(fb::Hash)) < 0;
  });
  std::vector<uint8_t> metadata = contents.empty() ? std::vector<uint8_t>(old.begin(), old.end())
                                                   : replace_packed(old, sorted);
  const uint64_t base = blob_base(metadata);
  const Sink sink = [&](uint64_t at, std::span<const uint8_t> bytes) { out.write_at(at, bytes); };
  if (!blobs.empty()) sink(base, blobs);
  for (size_t i = 0; i < contents.size(); ++i)
    sink(base + rows[kept + i].blob().offset(), contents[i]);
  uint64_t bytes = base + end, whole = bytes;
  if (beside) {
    WeightsRow last;
    memcpy(&last, file.data() + old_end, sizeof(last));
    bytes = align_up(bytes, sizeof(last)) + sizeof(last);
    sink(bytes - sizeof(last), {reinterpret_cast<const uint8_t*>(&last), sizeof(last)});
    const uint64_t begin = align_up(bytes, kWeightsAlign);
    whole = begin + last.bytes;
    // The constants lie in the file of weights, whose place in the whole counts from the blob base.
    const uint64_t moved = begin - base - (align_up(file.size(), kWeightsAlign) - old_base);
    const std::vector<fb::Blob*> blob = blob_rows(metadata);
    const fb::Program* program = fb::GetProgram(metadata.data());
    for (uint32_t i = 0; i < count(program->constants()); ++i) {
      fb::Blob& row = *blob[count(program->images()) + i];
      if (row.size()) row = fb::Blob(row.offset() + moved, row.size(), row.hash());
    }
  }
  out.resize(bytes);
  write_head(metadata, whole, features, sink);
}

}  // namespace husk::compiler
