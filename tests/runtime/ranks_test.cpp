// Files that hold the artifacts of all ranks: what is in them, and how damaged ones are refused.
#include "write/ranks.h"

#include <cstring>
#include <filesystem>
#include <thread>

#include "compile.h"
#include "content_hash.h"
#include "edited_artifact.h"
#include "fixture.h"
#include "ir/compile_error.h"
#include "model/container.h"

namespace husk::test {
namespace {

using compiler::Artifact;

// y = x + 1 + rank on each of two ranks, with a constant that both have and one that is a shard.
std::string program(uint32_t rank, const std::string& set = std::string(64, 'a'), int world = 2) {
  return "world " + std::to_string(world) + " rank " + std::to_string(rank) + " set \"" + set +
         "\"\nconstant same f32 [1] bytes \"0000803f\"\nconstant own f32 [1] bytes \"" +
         (rank == 0 ? "00000000" : "0000803f") + "\"\nconstant shard f32 [1] bytes \"" +
         (rank == 0 ? "00000040" : "00004040") + R"("
function f {
  output y tensor f32 rank 1
  output z tensor f32 rank 1
  variant cpu {
    buffer y of output bytes 4
    buffer z of output bytes 4
    copy (write y, read same)
    copy (write z, read shard)
    return (tensor y f32 [1] [1], tensor z f32 [1] [1])
  }
}
)";
}

std::vector<uint8_t> joined(const std::vector<std::vector<uint8_t>>& files,
                            uint64_t* shared = nullptr) {
  std::vector<std::unique_ptr<Artifact>> artifacts;
  std::string error;
  for (const auto& file : files) {
    artifacts.push_back(Artifact::view(file, error));
    EXPECT_TRUE(artifacts.back()) << error;
  }
  std::vector<uint8_t> out;
  const compiler::RanksBytes sizes = compiler::write_ranks(artifacts, compiler::memory_sink(out));
  EXPECT_EQ(sizes.file, out.size());
  if (shared) *shared = sizes.shared;
  return out;
}

std::vector<uint8_t> both() { return joined({artifact(program(0)), artifact(program(1))}); }

husk_engine_options options_of(uint32_t rank, uint32_t world = 2) {
  husk_engine_options options = Machine::defaults();
  options.rank = rank;
  options.world = world;
  options.verify_content = 1;
  return options;
}

TEST(Ranks, EachOpensItsOwnArtifact) {
  const std::vector<uint8_t> file = both();
  husk_error error = {};
  EXPECT_EQ(husk_program_verify(Aligned(file).data(), file.size(), &error), HUSK_OK) << error.text;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Machine m(file, options_of(rank));
    ASSERT_NE(m.session, nullptr) << m.error.text;
    Tensor y(HUSK_F32, {1}), z(HUSK_F32, {1});
    ASSERT_EQ(m.run({}, {y.value(), z.value()}), HUSK_OK) << m.error.text;
    EXPECT_EQ(y.as<float>()[0], 1.0f);
    EXPECT_EQ(z.as<float>()[0], rank == 0 ? 2.0f : 3.0f);
  }
}

// Ranks share what is equal, under other names too: the image, and the constant of 1.
TEST(Ranks, HaveOnceWhatIsEqual) {
  uint64_t shared = 0, image = 0;
  const std::vector<uint8_t> file = joined({artifact(program(0)), artifact(program(1))}, &shared);
  std::vector<const uint8_t*> places[2];
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Container container;
    container.borrow(file.data(), file.size(), nullptr, nullptr);
    ASSERT_FALSE(failed(container.read(*default_allocator(), 0, rank, nullptr)));
    ASSERT_FALSE(failed(container.parse(nullptr)));
    EXPECT_EQ(container.ranks(), 2u);
    EXPECT_EQ(container.rank(), rank);
    image = container.program()->images()->Get(0)->blob()->size();
    places[rank].push_back(container.blob(container.program()->images()->Get(0)->blob()));
    for (const fb::Constant* constant : *container.program()->constants())
      places[rank].push_back(container.blob(constant->blob()));
  }
  EXPECT_EQ(places[0][0], places[1][0]);
  EXPECT_EQ(places[0][1], places[1][1]);
  EXPECT_EQ(places[1][1], places[1][2]);
  EXPECT_NE(places[0][2], places[1][2]);
  EXPECT_NE(places[0][3], places[1][3]);
  EXPECT_EQ(shared, image + 2 * sizeof(float));
}

// The application accepts one hash, whatever the rank is.
TEST(Ranks, HaveOneContentHash) {
  const std::vector<uint8_t> file = both();
  for (uint32_t rank = 0; rank < 2; ++rank) {
    uint8_t seen[32] = {};
    husk_engine_options options = options_of(rank);
    options.accept_user = seen;
    options.accept = [](void* user, const uint8_t* hash) -> int32_t {
      std::memcpy(user, hash, 32);
      return 1;
    };
    Machine m(file, options);
    ASSERT_NE(m.program, nullptr) << m.error.text;
    EXPECT_EQ(std::memcmp(seen, file.data() + 32, 32), 0);
  }
}

TEST(Ranks, AreRefusedByAnotherWorld) {
  const std::vector<uint8_t> file = both();
  for (const auto& [rank, world] : {std::pair{0u, 1u}, {0u, 3u}, {2u, 3u}}) {
    Machine m(file, options_of(rank, world));
    EXPECT_EQ(m.program, nullptr);
    EXPECT_EQ(m.error.text, "the artifact is for rank 0 of 2, the engine is rank " +
                                std::to_string(rank) + " of " + std::to_string(world) +
                                ": open it on each of the ranks with husk_engine_options.rank, "
                                "world and group");
  }
}

RankRow row_of(const std::vector<uint8_t>& file, uint32_t rank) {
  RankRow row;
  std::memcpy(&row, file.data() + kHeaderBytes + rank * sizeof row, sizeof row);
  return row;
}

// Gives the row of a rank other values, and corrects the hash of the rows.
std::vector<uint8_t> with_row(uint32_t rank, const RankRow& row) {
  std::vector<uint8_t> file = both();
  std::memcpy(file.data() + kHeaderBytes + rank * sizeof row, &row, sizeof row);
  write_hash(file);
  return file;
}

TEST(Ranks, RowsOutsideOfTheFileAreRefused) {
  const std::vector<uint8_t> file = both();
  const char* const text = "the row of rank 1 does not fit the file";
  RankRow row = row_of(file, 1);
  for (const uint64_t offset :
       {row.offset + 1, row.offset + 64, uint64_t{1} << 40, ~uint64_t{0} - 4095, ~uint64_t{0}}) {
    row.offset = offset;
    EXPECT_EQ(verify_error(with_row(1, row)), text) << offset;
  }
  row.offset = (file.size() - 1) / 4096 * 4096;  // the last blob
  EXPECT_EQ(verify_error(with_row(1, row)),
            "not a Husk artifact: no header of 64 bytes with its magic");
  row.offset = 0;  // the rows themselves
  EXPECT_EQ(verify_error(with_row(1, row)), text);
  for (const uint32_t bytes : {0u, 79u, 81u}) {
    std::vector<uint8_t> other = file;
    std::memcpy(other.data() + 12, &bytes, sizeof bytes);
    write_hash(other);
    EXPECT_EQ(verify_error(other), "the row of rank 0 does not fit the file") << bytes;
  }
}

TEST(Ranks, ArtifactsInWrongPlacesAreRefused) {
  const std::vector<uint8_t> file = both();
  EXPECT_EQ(verify_error(with_row(1, row_of(file, 0))),
            "in the place of rank 1 of 2 is an artifact of rank 0 of 2");
  RankRow row = row_of(file, 1);
  row.hash[31] ^= 1;
  EXPECT_EQ(verify_error(with_row(1, row)), "the row of rank 1 does not fit the file");
  std::vector<uint8_t> other = file;
  other[kHeaderBytes + 8] ^= 1;  // without the hash of the rows
  EXPECT_EQ(verify_error(other),
            "the metadata does not match its hash: the file was changed or damaged");
  other = file;
  other[row_of(file, 1).offset + kHeaderBytes + 100] ^= 1;
  EXPECT_EQ(verify_error(other),
            "the metadata does not match its hash: the file was changed or damaged");
  other = file;
  other.pop_back();
  EXPECT_NE(verify_error(other).find("the artifact is truncated"), std::string::npos);
  // One rank of a file of three.
  const std::string text = "in the place of rank 0 of 1 is an artifact of rank 0 of 2";
  other = file;
  const uint32_t bytes = sizeof(RankRow);
  std::memcpy(other.data() + 12, &bytes, sizeof bytes);
  write_hash(other);
  EXPECT_EQ(verify_error(other), text);
}

std::string refusal(const std::vector<std::vector<uint8_t>>& files) {
  try {
    joined(files);
  } catch (const compiler::CompileError& error) {
    return error.text;
  }
  return "";
}

TEST(Ranks, OthersAreNotJoined) {
  const auto first = artifact(program(0)), second = artifact(program(1));
  EXPECT_EQ(refusal({second, first}),
            "artifact 0 of 2 is that of rank 1 of 2: name those of all ranks, in order");
  EXPECT_EQ(refusal({first}),
            "artifact 0 of 1 is that of rank 0 of 2: name those of all ranks, in order");
  EXPECT_EQ(refusal({first, artifact(program(1, std::string(64, 'b')))}),
            "the artifacts of rank 0 and rank 1 are of different exports");
  EXPECT_EQ(refusal({both(), second}), "artifact 0 is not that of one of several ranks");
  EXPECT_EQ(refusal({artifact("function f { variant cpu { return () } }\n"), second}),
            "artifact 0 is not that of one of several ranks");
  std::vector<uint8_t> damaged = second;
  damaged.back() ^= 1;
  EXPECT_EQ(refusal({first, damaged}),
            "the artifact of rank 1 does not match its hashes: it was damaged");
}

}  // namespace
}  // namespace husk::test
