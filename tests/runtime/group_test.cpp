// Groups of ranks: the operators that ranks compute together on the host, between threads and
// between processes. world_test.cpp has files for several ranks.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "group_case.h"

namespace husk::test {
namespace {

// Sizes around the areas of 256 KiB, among them none and one.
constexpr size_t kSizes[] = {0, 1, 3, 65537, 150001};

template <class T>
T element(uint32_t rank, size_t i) {
  return static_cast<T>((rank * 7 + i * 3) % 11 + 1);
}

template <class T>
T reduced(const char* how, uint32_t world, size_t i) {
  T value = element<T>(0, i);
  for (uint32_t r = 1; r < world; ++r) {
    const T other = element<T>(r, i);
    if (!strcmp(how, "product"))
      value = static_cast<T>(value * other);
    else if (!strcmp(how, "min"))
      value = std::min(value, other);
    else if (!strcmp(how, "max"))
      value = std::max(value, other);
    else
      value = static_cast<T>(value + other);
  }
  return strcmp(how, "avg") ? value : static_cast<T>(value / static_cast<T>(world));
}

template <class T>
void reduces(husk_dtype dtype, uint32_t world) {
  SCOPED_TRACE(husk_dtype_name(dtype));
  in_group(world, [&](Rank& rank) {
    const auto ranks = everyone(world);
    for (const size_t n : kSizes)
      for (const char* how : {"sum", "avg", "product", "min", "max"}) {
        Vector<T> in(dtype, n), out(dtype, n), parts(dtype, n * world), part(dtype, n);
        for (size_t i = 0; i < n; ++i) in.values[i] = element<T>(rank.number, i);
        for (size_t i = 0; i < n * world; ++i) parts.values[i] = element<T>(rank.number, i);
        ASSERT_EQ(rank.call("husk::all_reduce", {in.arg(), text(how), ints(ranks),
                                                 out.arg(HUSK_ACCESS_WRITE), token()}),
                  HUSK_OK)
            << rank.error.text;
        ASSERT_EQ(rank.call("husk::reduce_scatter_tensor", {parts.arg(), text(how), ints(ranks),
                                                            part.arg(HUSK_ACCESS_WRITE), token()}),
                  HUSK_OK)
            << rank.error.text;
        for (size_t i = 0; i < n; ++i) {
          ASSERT_EQ(out.values[i], reduced<T>(how, world, i)) << how << " " << i << " of " << n;
          ASSERT_EQ(part.values[i], reduced<T>(how, world, rank.number * n + i)) << how << " " << i;
        }
        // With a residual, in place.
        const std::vector<husk_op_arg> args = {
            in.arg(), text(how), ints(ranks), in.arg(HUSK_ACCESS_WRITE), token(), part.arg()};
        ASSERT_EQ(rank.call("husk::all_reduce", args), HUSK_OK);
        for (size_t i = 0; i < n; ++i)
          ASSERT_EQ(in.values[i], static_cast<T>(out.values[i] + part.values[i]))
              << how << " " << i;
      }
  });
}

TEST(Group, ReducesEachDtypeInTheOrderOfTheRanks) {
  reduces<float>(HUSK_F32, 2);
  reduces<double>(HUSK_F64, 3);
  reduces<int8_t>(HUSK_I8, 2);
  reduces<uint8_t>(HUSK_U8, 2);
  reduces<int16_t>(HUSK_I16, 2);
  reduces<uint16_t>(HUSK_U16, 2);
  reduces<int32_t>(HUSK_I32, 2);
  reduces<uint32_t>(HUSK_U32, 2);
  reduces<int64_t>(HUSK_I64, 2);
  reduces<uint64_t>(HUSK_U64, 2);
}

// If each sum were rounded, 1 + 2^-9 would stay 1 in bf16 each time. The sum of all is 1 + 3 *
// 2^-9, which rounds to 1 + 2^-7. A residual of 2^-8 makes 1 + 2^-6 of that, to even, where it
// would make 1 + 2^-7 of the sum before it is rounded.
TEST(Group, HalvesAreSummedInFloatAndRoundedOnce) {
  in_group(4, [](Rank& rank) {
    Vector<uint16_t> bf16(HUSK_BF16, 1), f16(HUSK_F16, 1);
    bf16.values[0] = rank.number == 0 ? 0x3f80 : 0x3b00;  // 1, 2^-9
    f16.values[0] = rank.number == 0 ? 0x3c00 : 0x1000;   // 1, 2^-11
    const auto ranks = everyone(4);
    Vector<uint16_t> residual(HUSK_BF16, 1), added(HUSK_BF16, 1);
    residual.values[0] = 0x3b80;
    ASSERT_EQ(
        rank.call("husk::all_reduce", {bf16.arg(), text("sum"), ints(ranks),
                                       added.arg(HUSK_ACCESS_WRITE), token(), residual.arg()}),
        HUSK_OK)
        << rank.error.text;
    EXPECT_EQ(added.values[0], 0x3f82);
    for (Vector<uint16_t>* x : {&bf16, &f16})
      ASSERT_EQ(rank.call("husk::all_reduce",
                          {x->arg(), text("sum"), ints(ranks), x->arg(HUSK_ACCESS_WRITE), token()}),
                HUSK_OK)
          << rank.error.text;
    EXPECT_EQ(bf16.values[0], 0x3f81);
    EXPECT_EQ(f16.values[0], 0x3c02);  // 1 + 3 * 2^-11 lies in the middle, ties to even
  });
}

TEST(Group, BoolsComplexNumbersAndNaNs) {
  in_group(2, [](Rank& rank) {
    const auto ranks = everyone(2);
    Bytes flags(HUSK_BOOL, 4), out(HUSK_BOOL, 4);
    for (uint8_t i = 0; i < 4; ++i) flags.values[i] = rank.number == 0 ? i & 1 : i >> 1;
    const auto reduce = [&](const char* how, husk_op_arg in, husk_op_arg to) {
      return rank.call("husk::all_reduce", {in, text(how), ints(ranks), to, token()});
    };
    ASSERT_EQ(reduce("sum", flags.arg(), out.arg(HUSK_ACCESS_WRITE)), HUSK_OK);
    EXPECT_EQ(out.values, (std::vector<uint8_t>{0, 1, 1, 1}));
    ASSERT_EQ(reduce("product", flags.arg(), out.arg(HUSK_ACCESS_WRITE)), HUSK_OK);
    EXPECT_EQ(out.values, (std::vector<uint8_t>{0, 0, 0, 1}));
    EXPECT_EQ(reduce("avg", flags.arg(), out.arg(HUSK_ACCESS_WRITE)), HUSK_UNSUPPORTED);

    Vector<std::array<float, 2>> c(HUSK_C64, 1);
    c.values[0] = {1.0f + static_cast<float>(rank.number), 4.0f};
    ASSERT_EQ(reduce("avg", c.arg(), c.arg(HUSK_ACCESS_WRITE)), HUSK_OK);
    EXPECT_EQ(c.values[0], (std::array<float, 2>{1.5f, 4.0f}));
    EXPECT_EQ(reduce("max", c.arg(), c.arg(HUSK_ACCESS_WRITE)), HUSK_UNSUPPORTED);
    EXPECT_STREQ(rank.error.text,
                 "husk::all_reduce: argument self has dtype c64 (14), which this op does not take");

    for (const char* how : {"min", "max"}) {
      Vector<float> x(HUSK_F32, 2);
      x.values = {rank.number == 0 ? NAN : 1.0f, rank.number == 1 ? NAN : 1.0f};
      ASSERT_EQ(reduce(how, x.arg(), x.arg(HUSK_ACCESS_WRITE)), HUSK_OK);
      EXPECT_TRUE(std::isnan(x.values[0]) && std::isnan(x.values[1])) << how;
    }
  });
}

TEST(Group, GathersBroadcastsAndSends) {
  in_group(3, [](Rank& rank) {
    const auto ranks = everyone(3);
    for (const size_t n : kSizes) {
      Vector<int32_t> in(HUSK_I32, n), all(HUSK_I32, 3 * n), out(HUSK_I32, n);
      for (size_t i = 0; i < n; ++i) in.values[i] = element<int32_t>(rank.number, i);
      ASSERT_EQ(rank.call("husk::all_gather_into_tensor",
                          {in.arg(), ints(ranks), all.arg(HUSK_ACCESS_WRITE), token()}),
                HUSK_OK)
          << rank.error.text;
      for (uint32_t r = 0; r < 3; ++r)
        for (size_t i = 0; i < n; ++i) ASSERT_EQ(all.values[r * n + i], element<int32_t>(r, i));
      ASSERT_EQ(rank.call("husk::broadcast",
                          {in.arg(), number(1), ints(ranks), out.arg(HUSK_ACCESS_WRITE), token()}),
                HUSK_OK)
          << rank.error.text;
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(out.values[i], element<int32_t>(1, i));
      // From 0 to 1 to 2.
      if (rank.number > 0) {
        ASSERT_EQ(
            rank.call("husk::recv", {number(rank.number - 1), out.arg(HUSK_ACCESS_WRITE), token()}),
            HUSK_OK)
            << rank.error.text;
      }
      Vector<int32_t>& sent = rank.number > 0 ? out : in;
      if (rank.number < 2) {
        ASSERT_EQ(rank.call("husk::send", {sent.arg(), number(rank.number + 1), token()}), HUSK_OK)
            << rank.error.text;
      }
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(sent.values[i], element<int32_t>(0, i));
    }
  });
}

// Rank r sends r + 2 * to rows of 30,000 numbers to each rank.
TEST(Group, ExchangesPartsOfDifferentSizes) {
  in_group(3, [](Rank& rank) {
    const auto rows = [](uint32_t from, uint32_t to) { return int64_t{from} + 2 * to; };
    constexpr int64_t kRow = 30000;
    std::vector<int64_t> sent, received;
    int64_t in_rows = 0, out_rows = 0;
    for (uint32_t other = 0; other < 3; ++other) {
      sent.push_back(rows(rank.number, other));
      received.push_back(rows(other, rank.number));
      in_rows += sent.back();
      out_rows += received.back();
    }
    const auto matrix = [](Vector<int64_t>& v, std::vector<int64_t>& sizes,
                           const std::vector<int64_t>& strides, int32_t access) {
      husk_op_arg arg = v.arg(access);
      arg.rank = 2;
      arg.sizes = sizes.data();
      arg.strides = strides.data();
      return arg;
    };
    Vector<int64_t> in(HUSK_I64, static_cast<size_t>(in_rows * kRow)),
        out(HUSK_I64, static_cast<size_t>(out_rows * kRow));
    int64_t at = 0;
    for (uint32_t to = 0; to < 3; ++to)
      for (int64_t i = 0; i < rows(rank.number, to) * kRow; ++i)
        in.values[static_cast<size_t>(at++)] = rank.number * 100000000 + to * 10000000 + i;
    std::vector<int64_t> in_sizes = {in_rows, kRow}, out_sizes = {out_rows, kRow};
    const std::vector<int64_t> strides = {kRow, 1};
    const auto ranks = everyone(3);
    ASSERT_EQ(
        rank.call("husk::all_to_all_single",
                  {matrix(in, in_sizes, strides, HUSK_ACCESS_READ), ints(received), ints(sent),
                   ints(ranks), matrix(out, out_sizes, strides, HUSK_ACCESS_WRITE), token()}),
        HUSK_OK)
        << rank.error.text;
    at = 0;
    for (uint32_t from = 0; from < 3; ++from)
      for (int64_t i = 0; i < rows(from, rank.number) * kRow; ++i)
        ASSERT_EQ(out.values[static_cast<size_t>(at++)],
                  from * 100000000 + rank.number * 10000000 + i);
    // Equal parts need no sizes.
    Vector<float> x(HUSK_F32, 3), y(HUSK_F32, 3);
    for (uint32_t to = 0; to < 3; ++to) x.values[to] = static_cast<float>(10 * rank.number + to);
    const std::vector<int64_t> none;
    ASSERT_EQ(rank.call("husk::all_to_all_single", {x.arg(), ints(none), ints(none), ints(ranks),
                                                    y.arg(HUSK_ACCESS_WRITE), token()}),
              HUSK_OK)
        << rank.error.text;
    for (uint32_t from = 0; from < 3; ++from)
      EXPECT_EQ(y.values[from], static_cast<float>(10 * from + rank.number));
  });
}

TEST(Group, PartsThatDoNotFitAreRefusedOnAllRanks) {
  in_group(2, [](Rank& rank) {
    Vector<float> x(HUSK_F32, 4), y(HUSK_F32, 4);
    const auto ranks = everyone(2);
    const std::vector<int64_t> sent = {2, 2},
                               received = rank.number == 0 ? std::vector<int64_t>{3, 1} : sent;
    EXPECT_NE(
        rank.call("husk::all_to_all_single", {x.arg(), ints(received), ints(sent), ints(ranks),
                                              y.arg(HUSK_ACCESS_WRITE), token()}),
        HUSK_OK);
    if (rank.number == 0)
      EXPECT_STREQ(rank.error.text,
                   "husk::all_to_all_single: another rank sends a part that differs from "
                   "output_sizes");
    else
      EXPECT_NE(std::strstr(rank.error.text, "rank 0 refused the call"), nullptr)
          << rank.error.text;
  });
}

// Two pairs, one after the other, and the same numbers from run to run.
TEST(Group, SomeRanksOfAGroup) {
  in_group(4, [](Rank& rank) {
    const std::vector<int64_t> pair = rank.number < 2 ? std::vector<int64_t>{0, 1}
                                                      : std::vector<int64_t>{3, 2};
    Vector<float> x(HUSK_F32, 5), first(HUSK_F32, 5), again(HUSK_F32, 5);
    for (size_t i = 0; i < 5; ++i) x.values[i] = 0.1f * static_cast<float>(rank.number + i);
    for (Vector<float>* out : {&first, &again})
      ASSERT_EQ(rank.call("husk::all_reduce",
                          {x.arg(), text("sum"), ints(pair), out->arg(HUSK_ACCESS_WRITE), token()}),
                HUSK_OK)
          << rank.error.text;
    EXPECT_EQ(first.values, again.values);
    const uint32_t base = rank.number < 2 ? 0 : 2;
    EXPECT_EQ(first.values[0],
              0.1f * static_cast<float>(base) + 0.1f * static_cast<float>(base + 1));
    const auto ranks = everyone(4);
    ASSERT_EQ(rank.call("husk::all_reduce",
                        {x.arg(), text("sum"), ints(ranks), x.arg(HUSK_ACCESS_WRITE), token()}),
              HUSK_OK)
        << rank.error.text;
  });
}

// The error text of a call on rank 0 of two, which fails before it meets anybody.
std::string refusal(const char* op, const std::vector<husk_op_arg>& args) {
  std::string text;
  in_group(2, [&](Rank& rank) {
    if (rank.number != 0) return;
    EXPECT_NE(rank.call(op, args), HUSK_OK);
    text = rank.error.text;
  });
  return text;
}

TEST(Group, WrongArgumentsAreNamed) {
  Vector<float> x(HUSK_F32, 4), y(HUSK_F32, 4), three(HUSK_F32, 3);
  const std::vector<int64_t> both = {0, 1}, none, twice = {0, 0}, far = {0, 2}, other = {1};
  const husk_op_arg in = x.arg(), out = y.arg(HUSK_ACCESS_WRITE), t = token();
  const auto reduce = [&](const std::vector<int64_t>& ranks, const char* how = "sum") {
    return refusal("husk::all_reduce", {in, text(how), ints(ranks), out, t});
  };
  const std::string of = "husk::all_reduce: argument ";
  EXPECT_EQ(reduce(none), of + "ranks must name 1 to 64 ranks");
  EXPECT_EQ(reduce(twice), of + "ranks names a rank twice");
  EXPECT_EQ(reduce(far), of + "ranks names a rank that does not exist");
  EXPECT_EQ(reduce(other), of + "ranks does not name the rank of this engine");
  EXPECT_EQ(reduce(both, "xor"), of + "reduce is not sum, avg, product, min or max");
  husk_op_arg strided = out;
  const int64_t two = 2;
  strided.strides = &two;
  EXPECT_EQ(refusal("husk::all_reduce", {in, text("sum"), ints(both), strided, t}),
            of + "out is not contiguous");
  EXPECT_EQ(refusal("husk::all_reduce", {in, text("sum"), ints(both), out, t, three.arg()}),
            of + "residual has size 3 along 0, out has 4");
  EXPECT_EQ(refusal("husk::all_gather_into_tensor", {in, ints(both), out, t}),
            "husk::all_gather_into_tensor: argument out does not have as many elements as `self` "
            "on all ranks");
  EXPECT_EQ(refusal("husk::reduce_scatter_tensor",
                    {in, text("sum"), ints(both), three.arg(HUSK_ACCESS_WRITE), t}),
            "husk::reduce_scatter_tensor: argument out does not have the elements of `self` "
            "divided by the ranks");
  EXPECT_EQ(refusal("husk::broadcast", {in, number(2), ints(both), out, t}),
            "husk::broadcast: argument source is none of the ranks");
  EXPECT_EQ(refusal("husk::send", {in, number(0), t}),
            "husk::send: argument to is not another rank of the group");
  EXPECT_EQ(refusal("husk::recv", {number(2), out, t}),
            "husk::recv: argument from is not another rank of the group");
  const auto exchange = [&](const std::vector<int64_t>& sizes) {
    return refusal("husk::all_to_all_single", {in, ints(none), ints(sizes), ints(both), out, t});
  };
  EXPECT_EQ(exchange({4}),
            "husk::all_to_all_single: argument input_sizes has no size for each rank");
  for (const auto& sizes : {std::vector<int64_t>{1, 2}, {5, -1}, {4, 1}})
    EXPECT_EQ(exchange(sizes),
              "husk::all_to_all_single: argument input_sizes does not add up to the tensor");
}

TEST(Group, AnEngineAloneHasNone) {
  Rank rank(husk_group_id{}, 0, 1);  // which is refused, and leaves the device without a group
  EXPECT_EQ(rank.joined, HUSK_INVALID_ARGUMENT);
  EXPECT_STREQ(rank.error.text, "host group: rank 0 of 1; it has 2 to 64 ranks");
  Vector<float> x(HUSK_F32, 4);
  const std::vector<int64_t> ranks = {0};
  EXPECT_EQ(rank.call("husk::all_reduce",
                      {x.arg(), text("sum"), ints(ranks), x.arg(HUSK_ACCESS_WRITE), token()}),
            HUSK_INVALID_ARGUMENT);
  EXPECT_STREQ(rank.error.text,
               "husk::all_reduce: argument self belongs to a group of ranks, and the engine has "
               "joined none: husk_engine_options.group");
}

TEST(Group, DifferentCallsFailOnAllRanks) {
  for (const bool by_size : {true, false})
    in_group(2, [&](Rank& rank) {
      const bool is_first = rank.number == 0;
      EXPECT_NE(by_size ? sum(rank, is_first ? 3 : 4) : sum(rank, 3, is_first ? "sum" : "max"),
                HUSK_OK);
      EXPECT_TRUE(std::strstr(rank.error.text, "makes another call")) << rank.error.text;
      EXPECT_EQ(sum(rank), HUSK_DEVICE);
      EXPECT_TRUE(std::strstr(rank.error.text, "the group of ranks is of no more use"))
          << rank.error.text;
    });
}

TEST(Group, ALateRankEndsTheCallsOfAll) {
  in_group(
      3,
      [](Rank& rank) {
        if (rank.number == 2) std::this_thread::sleep_for(std::chrono::milliseconds(250));
        EXPECT_EQ(sum(rank), HUSK_DEVICE);
        EXPECT_TRUE(std::strstr(rank.error.text, rank.number == 2 ? "rank 2 did not come in time"
                                                                  : "rank 2 did not come"))
            << rank.error.text;
      },
      50);
}

TEST(Group, ARankThatLeavesEndsTheCallsOfAll) {
  in_group(2, [](Rank& rank) {
    ASSERT_EQ(sum(rank), HUSK_OK) << rank.error.text;
    if (rank.number == 1) return;
    EXPECT_EQ(sum(rank), HUSK_DEVICE);
    EXPECT_STREQ(rank.error.text, "husk::all_reduce: rank 1 has left the group");
  });
}

TEST(Group, AWaitCanBeCancelled) {
  in_group(2, [](Rank& rank) {
    if (rank.number == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_EQ(sum(rank), HUSK_DEVICE);
      EXPECT_TRUE(std::strstr(rank.error.text, "rank 0 was cancelled")) << rank.error.text;
      return;
    }
    rank.cancel = [](void*) { return 1; };
    EXPECT_EQ(sum(rank), HUSK_CANCELLED);
  });
}

TEST(Group, RanksThatDoNotComeAreMissed) {
  Rank alone(new_id(), 0, 2, 50);
  EXPECT_EQ(alone.joined, HUSK_DEVICE);
  EXPECT_STREQ(alone.error.text,
               "husk_engine_create: rank 1 did not come within 50 ms "
               "(husk_engine_options.group_timeout_ms)");
}

TEST(Group, AnIdServesOnce) {
  const husk_group_id id = new_id();
  std::thread other([&] {
    Rank rank(id, 1, 2);
    EXPECT_EQ(rank.joined, HUSK_OK) << rank.error.text;
    EXPECT_EQ(sum(rank), HUSK_OK) << rank.error.text;
  });
  Rank rank(id, 0, 2);
  EXPECT_EQ(rank.joined, HUSK_OK) << rank.error.text;
  Rank second(id, 0, 2);
  EXPECT_EQ(second.joined, HUSK_INVALID_ARGUMENT);
  EXPECT_STREQ(second.error.text,
               "host group: rank 0 has joined with this id already: each rank joins once, and "
               "each group has an id of its own (husk_group_id_create)");
  EXPECT_EQ(sum(rank), HUSK_OK) << rank.error.text;  // the group goes on
  other.join();
}

TEST(Group, RanksHaveOneWorld) {
  const husk_group_id id = new_id();
  std::thread other([&] {
    Rank rank(id, 0, 2);
    EXPECT_EQ(rank.joined, HUSK_DEVICE);
    EXPECT_TRUE(std::strstr(rank.error.text, "rank 1 has another world")) << rank.error.text;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  Rank rank(id, 1, 3);
  EXPECT_EQ(rank.joined, HUSK_INVALID_ARGUMENT);
  EXPECT_STREQ(rank.error.text,
               "host group: rank 1 has a world of 3, another rank one of 2: give all ranks the "
               "same husk_engine_options.world");
  other.join();
}

TEST(Group, RanksAgree) {
  in_group(2, [](Rank& rank) {
    EXPECT_EQ(rank.agree(7), HUSK_OK) << rank.error.text;
    EXPECT_EQ(rank.agree(static_cast<uint8_t>(rank.number)), HUSK_INVALID_ARGUMENT);
    EXPECT_EQ(sum(rank), HUSK_OK) << rank.error.text;
  });
}

// Processes: one is killed while the other waits for it.
TEST(Group, ADeadProcessIsMissedAtOnce) {
  const husk_group_id id = new_id();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Rank rank(id, 1, 2);
    if (rank.joined != HUSK_OK || sum(rank) != HUSK_OK) _exit(1);
    for (;;) pause();
  }
  Rank rank(id, 0, 2);
  ASSERT_EQ(rank.joined, HUSK_OK) << rank.error.text;
  ASSERT_EQ(sum(rank), HUSK_OK) << rank.error.text;
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kill(child, SIGKILL);
  });
  EXPECT_EQ(sum(rank), HUSK_DEVICE);
  EXPECT_STREQ(rank.error.text, "husk::all_reduce: rank 1 is a process that has ended");
  killer.join();
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
}

// A segment that another process has begun, and not finished.
TEST(Group, ASegmentThatIsNotFinished) {
  for (const off_t size : {off_t{0}, off_t{4} << 20}) {
    const husk_group_id id = new_id();
    std::string name = "/husk-";
    for (int i = 0; i < 16; ++i) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", id.bytes[i]);
      name += digits;
    }
    const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    ASSERT_GE(file, 0);
    ASSERT_EQ(ftruncate(file, size), 0);
    Rank rank(id, 0, 2, 30);
    EXPECT_EQ(rank.joined, HUSK_DEVICE);
    EXPECT_STREQ(
        rank.error.text,
        "host group: the rank that came first did not make the shared memory within 30 ms");
    close(file);
    shm_unlink(name.c_str());
  }
}

// Without memory for the segment, in a process with a limit.
TEST(Group, NoMemory) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    Rank rank(new_id(), 0, 2);
    const bool good = rank.joined == HUSK_OUT_OF_MEMORY &&
                      std::strstr(rank.error.text, " bytes of shared memory: ");
    _exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);

  static bool has_memory;  // for the handle of the device alone
  has_memory = true;
  const husk_allocator allocator = {nullptr,
                                    [](void*, size_t size, size_t) {
                                      return std::exchange(has_memory, false) ? std::malloc(size)
                                                                              : nullptr;
                                    },
                                    [](void*, void* memory) { std::free(memory); }};
  void* device = nullptr;
  husk_error error = {};
  ASSERT_EQ(husk_port_host()->open(nullptr, 0, &allocator, nullptr, &device, &error), HUSK_OK);
  const husk_group_id id = new_id();
  const husk_port_group group = {sizeof group, 0, 2, 50, &id, nullptr, nullptr};
  EXPECT_EQ(husk_port_host()->join(device, &group, &error), HUSK_OUT_OF_MEMORY);
  EXPECT_STREQ(error.text, "host group: no memory for its handle");
  husk_port_group smaller = group;
  smaller.struct_size = offsetof(husk_port_group, timeout_ms);
  EXPECT_EQ(husk_port_host()->join(device, &smaller, &error), HUSK_INVALID_ARGUMENT);
  husk_port_host()->close(device);
}

// A rank may come to its last call, and leave the group, while another one that waits for it has
// yielded its core.
TEST(Group, RanksMayLeaveAfterTheirLastCall) {
  std::atomic<bool> done = false;
  std::vector<std::thread> others;
  for (int i = 0; i < 4; ++i)
    others.emplace_back([&] {
      while (!done) sched_yield();
    });
  for (int i = 0; i < 200; ++i)
    in_group(2, [](Rank& rank) { EXPECT_EQ(sum(rank), HUSK_OK) << rank.error.text; });
  done = true;
  for (std::thread& other : others) other.join();
}

std::string path_of(const husk_group_id& id) {
  std::string path = "/dev/shm/husk-";
  for (int i = 0; i < 16; ++i) {
    char digits[3];
    snprintf(digits, sizeof digits, "%02x", id.bytes[i]);
    path += digits;
  }
  return path;
}

// Ranks that are killed leave a name, which goes when another group begins. That of a group with a
// rank that lives stays.
TEST(Group, NamesOfKilledRanksGo) {
  const husk_group_id killed = new_id(), living = new_id(), next = new_id();
  int joined[2];
  ASSERT_EQ(pipe(joined), 0);
  const auto start = [&](const husk_group_id& id, uint32_t number) {
    const pid_t child = fork();
    if (child != 0) return child;
    Rank rank(id, number, 2);
    if (rank.joined != HUSK_OK || write(joined[1], "", 1) != 1) _exit(1);
    for (;;) pause();
  };
  const auto end = [](pid_t child) {
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
  };
  const pid_t one = start(killed, 0), other = start(killed, 1), third = start(living, 1);
  Rank fourth(living, 0, 2);
  ASSERT_EQ(fourth.joined, HUSK_OK) << fourth.error.text;
  for (int i = 0; i < 3; ++i) {
    char byte = 0;
    EXPECT_EQ(read(joined[0], &byte, 1), 1);
  }
  end(one);
  end(other);
  end(third);
  EXPECT_TRUE(std::filesystem::exists(path_of(killed)));
  {
    Rank alone(next, 0, 2, 30);
    EXPECT_EQ(alone.joined, HUSK_DEVICE);
  }
  EXPECT_FALSE(std::filesystem::exists(path_of(killed)));
  EXPECT_TRUE(std::filesystem::exists(path_of(living)));
  fourth.leave();
  EXPECT_FALSE(std::filesystem::exists(path_of(living)));
  close(joined[0]);
  close(joined[1]);
}

// Nothing stays in /dev/shm.
TEST(Group, NamesOfSharedMemoryGo) {
  const husk_group_id id = new_id();
  const std::string path = path_of(id);
  const auto join = [&](uint32_t number) {
    Rank rank(id, number, 2);
    ASSERT_EQ(rank.joined, HUSK_OK) << rank.error.text;
    EXPECT_TRUE(std::filesystem::exists(path)) << path;
    EXPECT_EQ(sum(rank), HUSK_OK);
  };
  std::thread other(join, 1);
  join(0);
  other.join();
  EXPECT_FALSE(std::filesystem::exists(path)) << path;
}

}  // namespace
}  // namespace husk::test
