// Files for several ranks, each of which an engine of its own opens on the host.
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "fixture.h"
#include "group_id.h"

namespace husk::test {
namespace {

const std::string kSet(64, 'a');

// y = the sum of x over two ranks, as the file of a rank.
std::string two_ranks(uint32_t rank, const std::string& set = kSet) {
  return "world 2 rank " + std::to_string(rank) + " set \"" + set + R"("
function f {
  input x tensor f32 [4]
  output y tensor f32 rank 1
  variant cpu {
    buffer x of input bytes 16
    buffer y of output bytes 16
    buffer order bytes 1
    extern "husk::all_reduce" (read tensor x f32 [4] [1], "sum", [0, 1],
      write tensor y f32 [4] [1], write tensor order u8 [1] [1])
    return (tensor y f32 [4] [1])
  }
}
)";
}

husk_engine_options options_of(uint32_t rank, const husk_group_id* id, uint32_t world = 2) {
  husk_engine_options options = Machine::defaults();
  options.rank = rank;
  options.world = world;
  options.group = id;
  options.group_timeout_ms = 20000;
  return options;
}

void on_two_threads(const std::function<void(uint32_t rank)>& body) {
  std::thread other([&] { body(1); });
  body(0);
  other.join();
}

TEST(World, EnginesOfOneProcessRunTheirFiles) {
  const husk_group_id id = new_id();
  const std::vector<uint8_t> files[] = {artifact(two_ranks(0)), artifact(two_ranks(1))};
  on_two_threads([&](uint32_t rank) {
    Machine m(files[rank], options_of(rank, &id));
    ASSERT_NE(m.session, nullptr) << m.error.text;
    float data[4] = {1.0f + static_cast<float>(rank), 2, 3, 4};
    Tensor x(HUSK_F32, {4}, data), y(HUSK_F32, {4});
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(m.run({x.value()}, {y.value()}), HUSK_OK) << m.error.text;
      EXPECT_EQ(y.as<float>()[0], 3.0f);
      EXPECT_EQ(y.as<float>()[3], 8.0f);
    }
  });
}

// golden/ranks_0_7.husk has both ranks, golden/ranks_0_7.rank0.hir and .rank1.hir, in format 0.7.
TEST(World, AFileOfAllRanksRunsInLaterVersions) {
  std::ifstream stream(HUSK_SOURCE "/tests/runtime/golden/ranks_0_7.husk", std::ios::binary);
  const std::vector<uint8_t> file{std::istreambuf_iterator<char>(stream),
                                  std::istreambuf_iterator<char>()};
  ASSERT_EQ(file.size(), 20484u);
  ASSERT_EQ(file[10], 7) << "the minor version";
  const husk_group_id id = new_id();
  on_two_threads([&](uint32_t rank) {
    Machine m(file, options_of(rank, &id));
    ASSERT_NE(m.session, nullptr) << m.error.text;
    float data[4] = {1.0f + static_cast<float>(rank), 2, 3, 4};
    Tensor x(HUSK_F32, {4}, data), y(HUSK_F32, {4}), z(HUSK_F32, {2});
    ASSERT_EQ(m.run({x.value()}, {y.value(), z.value()}), HUSK_OK) << m.error.text;
    const float sums[4] = {3 + 1, 4 + 2, 6 + 3, 8 + 4}, shards[2] = {10, 20};
    EXPECT_EQ(std::memcmp(y.as<float>(), sums, sizeof sums), 0);
    EXPECT_EQ(std::memcmp(z.as<float>(), shards, sizeof shards), 0);
  });
}

TEST(World, AFileForTwoRanksDoesNotOpenAlone) {
  Machine m(artifact(two_ranks(1)));
  EXPECT_EQ(m.program, nullptr);
  EXPECT_STREQ(m.error.text,
               "the artifact is for rank 1 of 2, the engine is rank 0 of 1: open it on each of the "
               "ranks with husk_engine_options.rank, world and group");
  EXPECT_EQ(m.error.code, HUSK_INVALID_ARGUMENT);
}

// The other rank hears of it at once, and the group is still good for the right files.
TEST(World, OtherFilesAreRefusedOnAllRanks) {
  const husk_group_id id = new_id();
  const std::vector<uint8_t> files[] = {artifact(two_ranks(0)), artifact(two_ranks(1))},
                             other_set = artifact(two_ranks(1, std::string(64, 'b')));
  on_two_threads([&](uint32_t rank) {
    husk_engine_options options = options_of(rank, &id);
    husk_engine* engine = nullptr;
    husk_error error = {};
    ASSERT_EQ(husk_engine_create(&options, &engine, &error), HUSK_OK) << error.text;
    ASSERT_EQ(husk_ops_add_all(engine, &error), HUSK_OK);
    const auto load = [&](const std::vector<uint8_t>& file) {
      const Aligned bytes(file);
      husk_program* program = nullptr;
      const husk_status status = husk_program_load(engine, bytes.data(), bytes.size(), nullptr,
                                                   nullptr, &program, &error);
      husk_program_release(program);
      return status;
    };
    EXPECT_EQ(load(rank == 0 ? files[0] : other_set), HUSK_INVALID_ARGUMENT);
    EXPECT_STREQ(error.text, rank == 0
                                 ? "the files of the ranks: rank 0 and rank 1 have different ones"
                                 : "the files of the ranks: rank 1 and rank 0 have different ones");
    // Both ranks open the file of rank 0.
    EXPECT_EQ(load(files[0]), HUSK_INVALID_ARGUMENT);
    EXPECT_TRUE(std::strstr(error.text, rank == 0 ? "have different ones"
                                                  : "for rank 0 of 2, the engine is rank 1 of 2"))
        << error.text;
    EXPECT_EQ(load(files[rank]), HUSK_OK) << error.text;
    husk_engine_release(engine);
  });
}

TEST(World, APortWithoutGroupsSaysSo) {
  husk_port port = *husk_port_host();
  port.group_id = nullptr;
  port.join = nullptr;
  husk_group_id id = new_id();
  husk_error error = {};
  EXPECT_EQ(husk_group_id_create(&port, &id, &error), HUSK_UNSUPPORTED);
  const std::string text =
      "port 'host' has no groups of ranks (husk_port.join): leave husk_engine_options.group NULL "
      "and register ops that communicate";
  EXPECT_EQ(error.text, text);
  EXPECT_EQ(id.bytes[0] | id.bytes[127], 0);
  husk_engine_options options = options_of(0, &id);
  options.port = &port;
  husk_engine* engine = nullptr;
  EXPECT_EQ(husk_engine_create(&options, &engine, &error), HUSK_UNSUPPORTED);
  EXPECT_EQ(error.text, text);
  EXPECT_EQ(engine, nullptr);
  port.struct_size = offsetof(husk_port, group_id);  // a port of an earlier version
  EXPECT_EQ(husk_group_id_create(&port, &id, nullptr), HUSK_UNSUPPORTED);
  EXPECT_EQ(husk_group_id_create(nullptr, &id, &error), HUSK_INVALID_ARGUMENT);
  EXPECT_EQ(husk_group_id_create(&port, nullptr, &error), HUSK_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace husk::test
