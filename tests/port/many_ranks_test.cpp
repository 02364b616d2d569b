// Groups of four and eight ranks on the fake driver: each operator, dtype and size, and each way to
// fail.
#include <signal.h>

#include <cmath>

#include "group_case.h"

namespace husk::port_test {
namespace {

// Element i of a rank: sums and averages of eight such numbers are exact in each dtype.
double element_of(size_t rank, size_t i) { return static_cast<double>(i % 5 + rank % 2); }

template <class T>
T as_number(double value) {
  return static_cast<T>(value);
}
// f16 and bf16 of numbers that they have exactly.
template <int kMantissa, int kBias>
uint16_t as_small_float(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent) * 2 - 1;
  return static_cast<uint16_t>((exponent - 1 + kBias) << kMantissa |
                               static_cast<int>(fraction * (1 << kMantissa)));
}

enum class Reach { nccl, memory, meeting };

class CudaManyRanks : public CudaGroup,
                      public testing::WithParamInterface<std::tuple<uint32_t, Reach>> {
 protected:
  void SetUp() override {
    setenv("FAKE_PEERS", reach() == Reach::nccl ? "0" : "1", 1);
    CudaGroup::SetUp();
    if (IsSkipped() || reach() != Reach::meeting) return;
    ASSERT_EQ(cuda::make_meeting_id(&id, false, &error), HUSK_OK) << error.text;
  }
  void TearDown() override {
    CudaGroup::TearDown();
    unsetenv("FAKE_NCCL_TIMEOUT");
  }
  static uint32_t world() { return std::get<0>(GetParam()); }
  static Reach reach() { return std::get<1>(GetParam()); }
  static std::vector<int64_t> all_ranks() {
    std::vector<int64_t> ranks;
    for (uint32_t rank = 0; rank < world(); ++rank) ranks.push_back(rank);
    return ranks;
  }

  template <class T>
  Vector<T> numbers(int32_t dtype, size_t size, T (*encode)(double), size_t rank) {
    std::vector<T> content(size + 1);  // a size of 0 has an address too
    for (size_t i = 0; i < size; ++i) content[i] = encode(element_of(rank, i));
    Vector<T> x = vector(dtype, content);
    x.size = static_cast<int64_t>(size);
    return x;
  }
  static double of_all(const char* how, size_t i) {
    const double low = element_of(0, i), high = element_of(1, i), half = world() / 2;
    if (!strcmp(how, "sum")) return half * (low + high);
    if (!strcmp(how, "avg")) return (low + high) / 2;
    return strcmp(how, "min") ? high : low;
  }
  template <class T>
  void expect_each(const Vector<T>& x, T (*encode)(double),
                   const std::function<double(size_t)>& right) {
    const std::vector<T> found = values(x);
    for (size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], encode(right(i))) << i;
  }
  void done(const char* name, const std::vector<husk_op_arg>& args) {
    for (const bool prepares : {true, false})
      ASSERT_EQ(call(name, args, prepares), HUSK_OK) << name << ": " << error.text;
  }

  template <class T>
  void computes(uint32_t rank, int32_t dtype, T (*encode)(double), bool is_float,
                const std::vector<size_t>& sizes) {
    SCOPED_TRACE(testing::Message() << "rank " << rank << ", dtype " << dtype);
    const std::vector<int64_t> all = all_ranks(), none;
    const bool has_nccl = reach() != Reach::meeting;
    const bool reduces = has_nccl || (is_float && dtype != HUSK_F64);
    for (const size_t n : sizes) {
      SCOPED_TRACE(n);
      const Vector<T> one = numbers(dtype, n, encode, rank), out = numbers(dtype, n, encode, 0),
                      parts = numbers(dtype, n * world(), encode, rank),
                      wide = numbers(dtype, n * world(), encode, 0);
      for (const char* how : {"sum", "avg", "min", "max"}) {
        if (!reduces || (!is_float && !strcmp(how, "avg"))) continue;
        done("husk::all_reduce", {one.arg(), text(how), ints(all), out.arg(), token()});
        expect_each<T>(out, encode, [&](size_t i) { return of_all(how, i); });
        done("husk::reduce_scatter_tensor",
             {parts.arg(), text(how), ints(all), out.arg(), token()});
        expect_each<T>(out, encode, [&](size_t i) { return of_all(how, rank * n + i); });
      }
      done("husk::all_gather_into_tensor", {one.arg(), ints(all), wide.arg(), token()});
      expect_each<T>(wide, encode, [&](size_t i) { return element_of(i / n, i % n); });
      done("husk::all_to_all_single",
           {parts.arg(), ints(none), ints(none), ints(all), wide.arg(), token()});
      expect_each<T>(wide, encode, [&](size_t i) { return element_of(i / n, rank * n + i % n); });
      if (has_nccl) {
        done("husk::broadcast", {one.arg(), integer(3), ints(all), out.arg(), token()});
        expect_each<T>(out, encode, [&](size_t i) { return element_of(3, i); });
      }
      ASSERT_EQ(wait(), HUSK_OK) << error.text;
      free_memory();
    }
  }

  // Runs `body` as each rank, of which the last one is a process that may be killed; the failures
  // of the others count.
  void while_the_last_ends(const std::function<void(uint32_t rank)>& body, uint32_t timeout) {
    std::vector<pid_t> children;
    uint32_t rank = 0;
    for (uint32_t other = 1; other < world() && rank == 0; ++other) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) rank = other;
      children.push_back(child);
    }
    ASSERT_EQ(join(rank, world(), timeout), HUSK_OK) << error.text;
    body(rank);
    leave();
    if (rank > 0) end_of(0);
    for (const pid_t child : children) {
      if (child != children.back()) {
        end_of(child);
        continue;
      }
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_TRUE(WIFSIGNALED(status)) << status;
    }
  }
  husk_status sum_of_all(int64_t size = 3) {
    const std::vector<int64_t> all = all_ranks();
    Vector<float> x = vector(HUSK_F32, std::vector<float>(static_cast<size_t>(size), 1));
    return call("husk::all_reduce", {x.arg(), text("sum"), ints(all), x.arg(), token()});
  }
};

std::string name_of_ranks(const testing::TestParamInfo<std::tuple<uint32_t, Reach>>& parameter) {
  const auto [world, reach] = parameter.param;
  const char* ways[] = {"NCCL", "TheirMemory", "AMeeting"};
  return std::to_string(world) + "By" + ways[static_cast<int>(reach)];
}
INSTANTIATE_TEST_SUITE_P(Of, CudaManyRanks,
                         testing::Combine(testing::Values(4u, 8u),
                                          testing::Values(Reach::nccl, Reach::memory,
                                                          Reach::meeting)),
                         name_of_ranks);

// None, one, odd ones, and one that takes several exchanges or goes to NCCL.
TEST_P(CudaManyRanks, ComputeEachOperatorDtypeAndSize) {
  on_ranks(world(), [&](uint32_t rank) {
    const std::vector<size_t> few = {0, 1, 5, 1023};
    computes<float>(rank, HUSK_F32, as_number, true, {0, 1, 3, 511, (1 << 16) + 3});
    computes<uint16_t>(rank, HUSK_F16, as_small_float<10, 15>, true, few);
    computes<uint16_t>(rank, HUSK_BF16, as_small_float<7, 127>, true, few);
    computes<double>(rank, HUSK_F64, as_number, true, few);
    computes<int8_t>(rank, HUSK_I8, as_number, false, few);
    computes<uint8_t>(rank, HUSK_U8, as_number, false, few);
    computes<int32_t>(rank, HUSK_I32, as_number, false, few);
    computes<uint32_t>(rank, HUSK_U32, as_number, false, few);
    computes<int64_t>(rank, HUSK_I64, as_number, false, few);
    computes<uint64_t>(rank, HUSK_U64, as_number, false, few);
  });
  EXPECT_EQ(fake().live_objects(), 0u);
  EXPECT_EQ(memory.live, 0);
}

// The other ranks wait for one that is killed, and get a status.
TEST_P(CudaManyRanks, AKilledRankEndsTheWaitOfAll) {
  const auto begin = std::chrono::steady_clock::now();
  while_the_last_ends(
      [&](uint32_t rank) {
        ASSERT_EQ(sum_of_all(), HUSK_OK) << error.text;
        ASSERT_EQ(wait(), HUSK_OK) << error.text;
        setenv("FAKE_NCCL_TIMEOUT", "20", 1);  // the fake driver waits so long when it is asked
        if (rank == world() - 1) kill(getpid(), SIGKILL);
        const husk_status called = sum_of_all();
        EXPECT_EQ(called == HUSK_OK ? wait() : called, HUSK_DEVICE);
        EXPECT_EQ(sum_of_all(), HUSK_DEVICE);
        EXPECT_TRUE(error_says("of no more use")) << error.text;
      },
      2000);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

// The programs of one rank are others.
TEST_P(CudaManyRanks, DifferentFilesAreNoticedByAll) {
  on_ranks(world(), [&](uint32_t rank) {
    uint8_t bytes[32] = {7};
    EXPECT_EQ(port->agree(device, bytes, &error), HUSK_OK) << error.text;
    bytes[31] = rank == 2;
    EXPECT_EQ(port->agree(device, bytes, &error), HUSK_INVALID_ARGUMENT);
    EXPECT_TRUE(error_says("have different ones")) << error.text;
    EXPECT_EQ(sum_of_all(), HUSK_OK) << error.text;
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
  });
}

// Runs `join_it` in a process for each rank, and counts those that have joined. Nobody waits for
// ever.
class CudaJoining : public CudaManyRanks {
 protected:
  uint32_t joined(uint32_t count, const std::function<husk_status(uint32_t number)>& join_it) {
    std::vector<pid_t> children;
    for (uint32_t number = 0; number < count; ++number) {
      const pid_t child = fork();
      if (child == 0) _exit(join_it(number) == HUSK_OK ? 1 : 0);
      children.push_back(child);
    }
    uint32_t out = 0;
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_TRUE(WIFEXITED(status)) << status;
      out += WIFEXITED(status) && WEXITSTATUS(status) == 1;
    }
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Of, CudaJoining,
                         testing::Combine(testing::Values(4u, 8u),
                                          testing::Values(Reach::memory, Reach::meeting)),
                         name_of_ranks);

TEST_P(CudaJoining, ARankThatDoesNotComeIsMissedByAll) {
  setenv("FAKE_NCCL_TIMEOUT", "600", 1);
  EXPECT_EQ(joined(world() - 1, [&](uint32_t rank) { return join(rank, world(), 300); }), 0u);
}

TEST_P(CudaJoining, AWrongWorldIsAStatusOnAllRanks) {
  setenv("FAKE_NCCL_TIMEOUT", "600", 1);
  const auto join_it = [&](uint32_t rank) {
    return join(rank, rank == 2 ? world() + 1 : world(), 500);
  };
  EXPECT_EQ(joined(world(), join_it), 0u);
}

// Two engines take the place of one rank: no more than one of them joins.
TEST_P(CudaJoining, AnIdThatIsUsedTwice) {
  setenv("FAKE_NCCL_TIMEOUT", "600", 1);
  const auto join_it = [&](uint32_t number) {
    return join(number < world() ? number : 1, world(), 1500);
  };
  EXPECT_LE(joined(world() + 1, join_it), world());
}

// A rank that comes when the others have given up has what they sent before, and no more.
TEST_P(CudaJoining, ALateRankEndsTheWaitOfAll) {
  on_ranks(world(), [&](uint32_t rank) {
    ASSERT_EQ(sum_of_all(), HUSK_OK) << error.text;
    ASSERT_EQ(wait(), HUSK_OK) << error.text;
    cuda::as_device(device).group->timeout_ms = kShort;
    setenv("FAKE_NCCL_TIMEOUT", "2", 1);  // the fake driver waits so long when it is asked
    const bool is_late = rank == world() - 1;
    if (is_late) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    const auto summed = [&] {
      const husk_status called = sum_of_all();
      return called == HUSK_OK ? wait() : called;
    };
    const husk_status first = summed();
    EXPECT_TRUE(first == HUSK_DEVICE || (is_late && first == HUSK_OK)) << first;
    EXPECT_EQ(summed(), HUSK_DEVICE);
  });
}

}  // namespace
}  // namespace husk::port_test
