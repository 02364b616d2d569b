// Groups of four ranks on the host: each operator, dtype and size, and each way to fail.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>

#include "group_case.h"

namespace husk::test {
namespace {

constexpr uint32_t kWorld = 4;
const std::vector<int64_t> kNone;
const std::vector<size_t> kFewSizes = {0, 1, 5, 1023};
// More than an area of shared memory.
constexpr size_t kLargeSize = 66001;

// Element i of a rank: sums, products and averages of four such numbers are exact in each dtype.
double exact_element(uint32_t rank, size_t i) { return static_cast<double>(i % 3 + rank % 2); }
double exact_reduced(const std::string& how, size_t i) {
  const double low = exact_element(0, i), high = exact_element(1, i);
  if (how == "sum") return 2 * (low + high);
  if (how == "avg") return (low + high) / 2;
  if (how == "product") return low * low * high * high;
  return how == "min" ? low : high;
}

template <class T>
T exact(double value) {
  return static_cast<T>(value);
}
// f16 and bf16 of numbers that they have exactly.
template <int kMantissa, int kBias>
uint16_t small_float(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent) * 2 - 1;
  return static_cast<uint16_t>((exponent - 1 + kBias) << kMantissa |
                               static_cast<int>(fraction * (1 << kMantissa)));
}

template <class T>
using Encode = T (*)(double);

template <class T>
void fill(Vector<T>& x, uint32_t rank, size_t first, Encode<T> encode) {
  for (size_t i = 0; i < x.values.size(); ++i) x.values[i] = encode(exact_element(rank, first + i));
}

template <class T>
void computes(husk_dtype dtype, Encode<T> encode, bool is_float,
              const std::vector<size_t>& sizes = kFewSizes) {
  SCOPED_TRACE(husk_dtype_name(dtype));
  in_group(kWorld, [&](Rank& rank) {
    const auto ranks = everyone(kWorld);
    const auto done = [&](const char* name, const std::vector<husk_op_arg>& args) {
      ASSERT_EQ(rank.call(name, args), HUSK_OK) << name << ": " << rank.error.text;
    };
    for (const size_t n : sizes) {
      SCOPED_TRACE(n);
      Vector<T> one(dtype, n), out(dtype, n), all(dtype, n * kWorld), moved(dtype, n * kWorld);
      fill(one, rank.number, 0, encode);
      for (const std::string how : {"sum", "avg", "product", "min", "max"}) {
        if (how == "avg" && !is_float) continue;
        done("husk::all_reduce",
             {one.arg(), text(how.c_str()), ints(ranks), out.arg(HUSK_ACCESS_WRITE), token()});
        for (size_t i = 0; i < n; ++i)
          ASSERT_EQ(out.values[i], encode(exact_reduced(how, i))) << how;
        fill(all, rank.number, 0, encode);
        done("husk::reduce_scatter_tensor",
             {all.arg(), text(how.c_str()), ints(ranks), out.arg(HUSK_ACCESS_WRITE), token()});
        for (size_t i = 0; i < n; ++i)
          ASSERT_EQ(out.values[i], encode(exact_reduced(how, rank.number * n + i))) << how;
      }
      done("husk::all_gather_into_tensor",
           {one.arg(), ints(ranks), all.arg(HUSK_ACCESS_WRITE), token()});
      for (size_t i = 0; i < all.values.size(); ++i)
        ASSERT_EQ(all.values[i], encode(exact_element(static_cast<uint32_t>(i / n), i % n)));
      fill(all, rank.number, 0, encode);
      done("husk::all_to_all_single", {all.arg(), ints(kNone), ints(kNone), ints(ranks),
                                       moved.arg(HUSK_ACCESS_WRITE), token()});
      for (size_t i = 0; i < moved.values.size(); ++i)
        ASSERT_EQ(moved.values[i],
                  encode(exact_element(static_cast<uint32_t>(i / n), rank.number * n + i % n)));
      done("husk::broadcast",
           {one.arg(), number(3), ints(ranks), out.arg(HUSK_ACCESS_WRITE), token()});
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(out.values[i], encode(exact_element(3, i)));
      // From each rank to the next one: rank 3 begins, so that nobody waits in a circle.
      const int64_t next = (rank.number + 1) % kWorld, before = (rank.number + 3) % kWorld;
      const auto send = [&] { done("husk::send", {one.arg(), number(next), token()}); };
      if (rank.number == 3) send();
      done("husk::recv", {number(before), out.arg(HUSK_ACCESS_WRITE), token()});
      if (rank.number != 3) send();
      for (size_t i = 0; i < n; ++i)
        ASSERT_EQ(out.values[i], encode(exact_element(static_cast<uint32_t>(before), i)));
    }
  });
}

TEST(FourRanks, ComputeEachOperatorDtypeAndSize) {
  computes<float>(HUSK_F32, exact, true, {0, 1, 5, 1023, kLargeSize});
  computes<double>(HUSK_F64, exact, true);
  computes<uint16_t>(HUSK_F16, small_float<10, 15>, true);
  computes<uint16_t>(HUSK_BF16, small_float<7, 127>, true);
  computes<int8_t>(HUSK_I8, exact, false);
  computes<uint8_t>(HUSK_U8, exact, false);
  computes<int16_t>(HUSK_I16, exact, false);
  computes<uint16_t>(HUSK_U16, exact, false);
  computes<int32_t>(HUSK_I32, exact, false);
  computes<uint32_t>(HUSK_U32, exact, false);
  computes<int64_t>(HUSK_I64, exact, false);
  computes<uint64_t>(HUSK_U64, exact, false);
}

// Three ranks wait for one that is killed: each gets a status, long before the deadline.
TEST(FourRanks, AKilledProcessIsMissedByAll) {
  const husk_group_id id = new_id();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Rank rank(id, 3, kWorld);
    if (rank.joined != HUSK_OK || sum(rank) != HUSK_OK) _exit(1);
    kill(getpid(), SIGKILL);
  }
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (uint32_t number = 0; number < 3; ++number)
    threads.emplace_back([&, number] {
      Rank rank(id, number, kWorld);
      ASSERT_EQ(rank.joined, HUSK_OK) << rank.error.text;
      ASSERT_EQ(sum(rank), HUSK_OK) << rank.error.text;
      EXPECT_EQ(sum(rank), HUSK_DEVICE);
      EXPECT_TRUE(std::strstr(rank.error.text, "rank 3 is a process that has ended"))
          << rank.error.text;
      EXPECT_EQ(sum(rank), HUSK_DEVICE);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(FourRanks, ALateRankEndsTheCallsOfAll) {
  in_group(
      kWorld,
      [](Rank& rank) {
        ASSERT_EQ(rank.agree(1), HUSK_OK) << rank.error.text;
        if (rank.number == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        EXPECT_EQ(sum(rank), HUSK_DEVICE);
        EXPECT_TRUE(std::strstr(rank.error.text, "rank 2 did not come")) << rank.error.text;
        EXPECT_EQ(sum(rank), HUSK_DEVICE);
      },
      500);
}

// One rank of four calls something else, or has another size.
TEST(FourRanks, AnotherCallFailsOnAllRanks) {
  for (const bool by_size : {true, false})
    in_group(kWorld, [&](Rank& rank) {
      const bool is_other = rank.number == 1;
      EXPECT_NE(by_size ? sum(rank, is_other ? 4 : 3) : sum(rank, 3, is_other ? "max" : "sum"),
                HUSK_OK);
      EXPECT_EQ(sum(rank), HUSK_DEVICE);
      EXPECT_TRUE(std::strstr(rank.error.text, "of no more use")) << rank.error.text;
    });
}

TEST(FourRanks, FilesOfDifferentExportsAreNoticedByAll) {
  in_group(kWorld, [](Rank& rank) {
    EXPECT_EQ(rank.agree(rank.number == 2 ? 8 : 7), HUSK_INVALID_ARGUMENT);
    EXPECT_TRUE(std::strstr(rank.error.text, "have different ones")) << rank.error.text;
    EXPECT_EQ(rank.agree(7), HUSK_OK) << rank.error.text;
    EXPECT_EQ(sum(rank), HUSK_OK) << rank.error.text;
  });
}

// A rank that takes the world for another one: nobody waits for ever.
TEST(FourRanks, HaveOneWorld) {
  const husk_group_id id = new_id();
  std::atomic<int> named = 0;
  std::vector<std::thread> threads;
  for (uint32_t number = 0; number < kWorld; ++number)
    threads.emplace_back([&, number] {
      Rank rank(id, number, number == 3 ? 5 : kWorld, 1000);
      EXPECT_NE(rank.joined, HUSK_OK);
      named += std::strstr(rank.error.text, "world") != nullptr;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(named, 1);
}

TEST(FourRanks, AnIdServesOnce) {
  const husk_group_id id = new_id();
  std::atomic<uint32_t> joined = 0, tried = 0;
  std::vector<std::thread> threads;
  for (uint32_t number = 0; number < kWorld; ++number)
    threads.emplace_back([&, number] {
      Rank rank(id, number, kWorld);
      ASSERT_EQ(rank.joined, HUSK_OK) << rank.error.text;
      ++joined;
      while (joined < kWorld) std::this_thread::yield();
      Rank second(id, (number + 1) % kWorld, kWorld);
      EXPECT_EQ(second.joined, HUSK_INVALID_ARGUMENT);
      EXPECT_TRUE(std::strstr(second.error.text, "has joined with this id already"))
          << second.error.text;
      ++tried;
      while (tried < kWorld) std::this_thread::yield();
      EXPECT_EQ(sum(rank), HUSK_OK) << rank.error.text;  // the group goes on
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(FourRanks, AMissingRankIsNamedByAll) {
  const husk_group_id id = new_id();
  std::vector<std::thread> threads;
  for (uint32_t number = 0; number < 3; ++number)
    threads.emplace_back([&, number] {
      Rank rank(id, number, kWorld, 200);
      EXPECT_EQ(rank.joined, HUSK_DEVICE);
      EXPECT_TRUE(std::strstr(rank.error.text, "rank 3 did not come")) << rank.error.text;
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace husk::test
