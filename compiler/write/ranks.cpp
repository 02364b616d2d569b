#include "write/ranks.h"

#include <cstring>

#include "base/align.h"
#include "base/blake2b.h"
#include "ir/compile_error.h"
#include "write/artifact.h"

namespace husk::compiler {
namespace {

// The artifact of a rank, whose metadata get the new places of its blobs.
struct Part {
  std::vector<uint8_t> metadata;
  std::vector<fb::Blob*> blobs;  // rows of the metadata
  uint64_t begin = 0;            // in the file
};

// Whether a row stands for bytes that the file has: all do but folded constants. The rows are those
// of images, of constants and of packed copies.
bool is_stored(const fb::Program& program, size_t row) {
  const uint32_t images = count(program.images()), copies = images + count(program.constants());
  return row < images || row >= copies ||
         program.constants()->Get(static_cast<uint32_t>(row - images))->folded_by() == kNone;
}

void check_ranks(std::span<const std::unique_ptr<Artifact>> artifacts) {
  for (size_t rank = 0; rank < artifacts.size(); ++rank) {
    const Artifact& artifact = *artifacts[rank];
    const fb::World* world = artifact.program().world();
    if (!world || artifact.ranks())
      fail({}, "artifact {} is not that of one of several ranks", rank);
    if (world->size() != artifacts.size() || world->rank() != rank)
      fail({}, "artifact {} of {} is that of rank {} of {}: name those of all ranks, in order",
           rank, artifacts.size(), world->rank(), world->size());
    const fb::World* first = artifacts[0]->program().world();
    if (memcmp(world->set(), first->set(), sizeof(fb::Hash)) != 0)
      fail({}, "the artifacts of rank 0 and rank {} are of different exports", rank);
    if (!artifact.weights().empty())
      fail({}, "the weights of rank {} lie beside its artifact: compile it with --weights=inside",
           rank);
  }
}

}  // namespace

RanksBytes write_ranks(std::span<const std::unique_ptr<Artifact>> artifacts, const Sink& sink) {
  check_ranks(artifacts);
  std::vector<Part> parts(artifacts.size());
  uint64_t end = align_up(kHeaderBytes + parts.size() * sizeof(RankRow), kBlobAlign);
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const std::span<const uint8_t> bytes = artifacts[rank]->metadata();
    Part& part = parts[rank];
    part.metadata.assign(bytes.begin(), bytes.end());
    part.blobs = blob_rows(part.metadata);
    part.begin = end;
    end += blob_base(part.metadata);
  }

  // Images come first, since they are small and their places need not be pages.
  RanksBytes sizes;
  Blobs blobs(sink, end);
  for (const bool images : {true, false}) {
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      const Artifact& artifact = *artifacts[rank];
      const uint32_t first_constant = count(artifact.program().images());
      for (size_t row = 0; row < parts[rank].blobs.size(); ++row) {
        if ((row < first_constant) != images || !is_stored(artifact.program(), row)) continue;
        fb::Blob& blob = *parts[rank].blobs[row];
        const fb::Blob place = blobs.add({artifact.bytes(blob)}, images ? kImageAlign : kBlobAlign);
        if (memcmp(&place.hash(), &blob.hash(), sizeof(fb::Hash)) != 0)
          fail({}, "the artifact of rank {} does not match its hashes: it was damaged", rank);
        const uint64_t base = parts[rank].begin + blob_base(parts[rank].metadata);
        const uint64_t offset = place.size() ? end + place.offset() - base : 0;
        sizes.shared += place.size();
        blob = fb::Blob(offset, place.size(), place.hash());
      }
    }
  }
  sizes.file = blobs.file_bytes();
  sizes.shared -= blobs.stored_bytes();

  std::vector<uint8_t> rows;
  for (const Part& part : parts) {
    RankRow row = {part.begin, {}};
    Blake2b hash;
    hash.update(part.metadata.data(), part.metadata.size());
    hash.finish(row.hash);
    const auto* bytes = reinterpret_cast<const uint8_t*>(&row);
    rows.insert(rows.end(), bytes, bytes + sizeof(row));
    write_head(part.metadata, sizes.file - part.begin, 0,
               [&](uint64_t at, std::span<const uint8_t> some) { sink(part.begin + at, some); });
  }
  write_head(rows, sizes.file, kRanksFeature, sink);
  return sizes;
}

}  // namespace husk::compiler
