// Operators of some of the ranks of a group: those of a row or a column of a mesh, or of a pair.
#include <sys/mman.h>

#include <atomic>
#include <numeric>

#include "group_case.h"

namespace husk::port_test {

// How the ranks of a group reach each other; `late` is by a meeting, and by NCCL when it is needed.
enum class Way { nccl, memory, meeting, late };

class CudaParts : public CudaGroup, public testing::WithParamInterface<Way> {
 protected:
  void SetUp() override {
    setenv("FAKE_PEERS", GetParam() == Way::nccl ? "0" : "1", 1);
    CudaGroup::SetUp();
    if (IsSkipped() || GetParam() == Way::nccl || GetParam() == Way::memory) return;
    ASSERT_EQ(cuda::make_meeting_id(&id, GetParam() == Way::late, &error), HUSK_OK) << error.text;
  }
  void TearDown() override {
    CudaGroup::TearDown();
    unsetenv("FAKE_NCCL_TIMEOUT");
  }
  static bool has_nccl() { return GetParam() != Way::meeting; }

  // The sum of a number for each of some ranks.
  template <class T>
  void expect_sum(int32_t dtype, const std::vector<int64_t>& ranks, uint32_t rank, size_t size) {
    SCOPED_TRACE(testing::Message() << "rank " << rank << " of " << testing::PrintToString(ranks));
    const Vector<T> x = vector<T>(dtype, std::vector<T>(size, static_cast<T>(rank + 1)));
    const std::vector<husk_op_arg> args = {x.arg(), text("sum"), ints(ranks), x.arg(), token()};
    ASSERT_EQ(call("husk::all_reduce", args, true), HUSK_OK) << error.text;
    ASSERT_EQ(call("husk::all_reduce", args), HUSK_OK) << error.text;
    const T right = std::accumulate(ranks.begin(), ranks.end(), static_cast<T>(ranks.size()));
    EXPECT_EQ(values(x), std::vector<T>(size, right));
  }

  // Each operator over some ranks.
  void expect_all(const std::vector<int64_t>& ranks, uint32_t rank) {
    SCOPED_TRACE(testing::Message() << "rank " << rank << " of " << testing::PrintToString(ranks));
    const size_t count = ranks.size();
    const auto place = static_cast<size_t>(std::find(ranks.begin(), ranks.end(), int64_t{rank}) -
                                           ranks.begin());
    const float own = static_cast<float>(rank);
    const Vector<float> one = vector<float>(HUSK_F32, {own}),
                        gathered = vector<float>(HUSK_F32, std::vector<float>(count));
    ASSERT_EQ(
        call("husk::all_gather_into_tensor", {one.arg(), ints(ranks), gathered.arg(), token()}),
        HUSK_OK)
        << error.text;
    EXPECT_EQ(values(gathered), std::vector<float>(ranks.begin(), ranks.end()));
    // Element i of rank r is 10 i + r.
    std::vector<float> content(count);
    float sum = 0;
    for (size_t i = 0; i < count; ++i) {
      content[i] = 10 * static_cast<float>(i) + own;
      sum += static_cast<float>(ranks[i]) + 10 * static_cast<float>(place);
    }
    const Vector<float> x = vector<float>(HUSK_F32, content);
    ASSERT_EQ(call("husk::reduce_scatter_tensor",
                   {x.arg(), text("sum"), ints(ranks), one.arg(), token()}),
              HUSK_OK)
        << error.text;
    EXPECT_EQ(values(one), std::vector<float>{sum});
    const std::vector<int64_t> none;
    ASSERT_EQ(call("husk::all_to_all_single",
                   {x.arg(), ints(none), ints(none), ints(ranks), gathered.arg(), token()}),
              HUSK_OK)
        << error.text;
    for (size_t i = 0; i < count; ++i)
      content[i] = 10 * static_cast<float>(place) + static_cast<float>(ranks[i]);
    EXPECT_EQ(values(gathered), content);
    if (!has_nccl()) return;
    // The rank that sends has its number among all ranks.
    const Vector<float> y = vector<float>(HUSK_F32, {own});
    ASSERT_EQ(
        call("husk::broadcast", {y.arg(), integer(ranks.back()), ints(ranks), y.arg(), token()}),
        HUSK_OK)
        << error.text;
    EXPECT_EQ(values(y), std::vector<float>{static_cast<float>(ranks.back())});
    expect_sum<int32_t>(HUSK_I32, ranks, rank, 3);
  }
};

std::string name_of(const testing::TestParamInfo<Way>& way) {
  switch (way.param) {
    case Way::nccl: return "NCCL";
    case Way::memory: return "TheirMemory";
    case Way::meeting: return "AMeeting";
    case Way::late: return "NCCLOpenedLate";
  }
  return {};
}
INSTANTIATE_TEST_SUITE_P(By, CudaParts,
                         testing::Values(Way::nccl, Way::memory, Way::meeting, Way::late), name_of);

TEST_P(CudaParts, RowsAndColumnsOfAMesh) {
  on_ranks(4, [&](uint32_t rank) {
    const int64_t column = rank % 2, row = rank - column;
    const std::vector<int64_t> all = {0, 1, 2, 3}, in_row = {row, row + 1},
                               in_column = {column, column + 2};
    for (int turn = 0; turn < 3; ++turn)
      for (const auto* ranks : {&in_row, &in_column, &all}) {
        expect_sum<float>(HUSK_F32, *ranks, rank, 5);
        expect_all(*ranks, rank);
      }
    expect_sum<float>(HUSK_F32, in_row, rank, (1 << 18) + 5);  // more than 1 MiB
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
    uint8_t bytes[32] = {7};
    EXPECT_EQ(port->agree(device, bytes, &error), HUSK_OK) << error.text;
  });
  EXPECT_EQ(fake().live_objects(), 0u);
  EXPECT_EQ(memory.live, 0);
}

// Some ranks have no part of what others do, or have it in another order.
TEST_P(CudaParts, PairsBesideEachOther) {
  on_ranks(4, [&](uint32_t rank) {
    const std::vector<int64_t> all = {0, 1, 2, 3}, first = {0, 1}, reversed = {3, 2},
                               three = {1, 2, 3};
    if (rank < 2)
      for (int turn = 0; turn < 3; ++turn) expect_all(first, rank);
    expect_sum<float>(HUSK_F32, all, rank, 2);
    if (rank > 0) expect_all(three, rank);
    if (rank > 1) expect_all(reversed, rank);
    const std::vector<int64_t> alone = {rank};
    expect_sum<float>(HUSK_F32, alone, rank, 2);
    expect_all(alone, rank);
    expect_sum<float>(HUSK_F32, all, rank, 2);
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
  });
}

TEST_P(CudaParts, EightRanks) {
  on_ranks(8, [&](uint32_t rank) {
    const int64_t of_pair = rank / 2 * 2;
    const std::vector<int64_t> pair = {of_pair, of_pair + 1};
    std::vector<int64_t> every_other;
    for (int64_t other = rank % 2; other < 8; other += 2) every_other.push_back(other);
    for (int turn = 0; turn < 2; ++turn) {
      expect_all(pair, rank);
      expect_all(every_other, rank);
    }
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
  });
}

// A rank that does not come to its part is a failure of the whole group.
TEST_P(CudaParts, ARankThatDoesNotCome) {
  setenv("FAKE_NCCL_TIMEOUT", "700", 1);
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* is_done = static_cast<std::atomic<bool>*>(shared);
  on_ranks(
      3,
      [&](uint32_t rank) {
        const std::vector<int64_t> all = {0, 1, 2}, pair = {0, 1};
        expect_sum<float>(HUSK_F32, all, rank, 2);
        EXPECT_EQ(wait(), HUSK_OK) << error.text;
        while (rank != 0 && !*is_done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (rank != 0) return;
        const Vector<float> x = vector<float>(HUSK_F32, {1});
        const std::vector<husk_op_arg> args = {x.arg(), text("sum"), ints(pair), x.arg(), token()};
        EXPECT_EQ(call("husk::all_reduce", args, true), HUSK_DEVICE);
        EXPECT_TRUE(strstr(error.text, "group_timeout_ms") || strstr(error.text, "remote error"))
            << error.text;
        EXPECT_EQ(call("husk::all_reduce", args, true), HUSK_DEVICE);
        EXPECT_TRUE(error_says("the group of ranks is of no more use")) << error.text;
        EXPECT_EQ(sum(), HUSK_DEVICE);
        *is_done = true;
      },
      700);
  munmap(shared, 4096);
}

// A resize that runs out of memory, or whose calls fail, ends the group and leaves nothing.
TEST_P(CudaParts, FailuresOfEachCall) {
  if (GetParam() != Way::memory) GTEST_SKIP() << "one way is enough";
  for (const char* function : {"cuMemAlloc", "ncclGetUniqueId", "ncclCommInitRankConfig",
                               "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "ncclSend"}) {
    SCOPED_TRACE(function);
    setenv("FAKE_NCCL_TIMEOUT", "700", 1);
    fake().reset();
    ASSERT_EQ(port->group_id(nullptr, &id, &error), HUSK_OK) << error.text;
    on_ranks(
        2,
        [&](uint32_t rank) {
          ASSERT_EQ(sum(), HUSK_OK) << error.text;
          ASSERT_EQ(wait(), HUSK_OK) << error.text;
          const Vector<float> x = vector<float>(HUSK_F32, {1});
          const std::vector<int64_t> reversed = {1, 0};
          if (rank == 1) fake().fail_call(function, 1, cuda::CUDA_ERROR_OUT_OF_MEMORY);
          EXPECT_NE(call("husk::all_reduce",
                         {x.arg(), text("sum"), ints(reversed), x.arg(), token()}, true),
                    HUSK_OK);
          EXPECT_EQ(sum(), HUSK_DEVICE);
          EXPECT_TRUE(error_says("of no more use")) << error.text;
        },
        700);
    EXPECT_EQ(fake().live_objects(), 0u);
    EXPECT_EQ(memory.live, 0);
    ASSERT_EQ(open(), HUSK_OK) << error.text;
    ASSERT_EQ(port->stream_create(device, &stream, &error), HUSK_OK) << error.text;
  }
}

}  // namespace husk::port_test
