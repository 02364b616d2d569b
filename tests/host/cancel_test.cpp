// Long calls ask husk_op_context.cancel from time to time, and end after its answer.
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>

#include "core/sort_range.h"
#include "correct_calls.h"
#include "grown.h"
#include "host_device.h"

namespace husk::host_test {
namespace {

// Answers 1 to question number `last`, counted from 1.
struct Answers {
  int64_t last;
  int64_t asked = 0;
  std::thread::id asker = std::this_thread::get_id();

  static int32_t answer(void* user) {
    auto* self = static_cast<Answers*>(user);
    EXPECT_EQ(std::this_thread::get_id(), self->asker);
    return ++self->asked == self->last;
  }
};

constexpr int64_t kGrown = int64_t{1} << 34;  // elements, which nobody waits for

class Cancel : public HostDevice {
 protected:
  // Runs a call whose question number `answers.last` gets the answer 1.
  husk_status run(const Call& op_call, Answers& answers, const husk_threads* threads = nullptr) {
    const husk_op& row = op(op_call.name);
    husk_op_context context = context_of(row, threads);
    context.cancel = Answers::answer;
    context.cancel_user = &answers;
    error = {};
    return row.call(&context, op_call.args.data(), static_cast<uint32_t>(op_call.args.size()),
                    &error);
  }
  void expect_end(const Call& op_call, int64_t last, const husk_threads* threads = nullptr) {
    Answers answers{last};
    ASSERT_EQ(run(op_call, answers, threads), HUSK_CANCELLED) << op_call.name << ": " << error.text;
    EXPECT_EQ(answers.asked, last) << op_call.name;
    EXPECT_EQ(error.text, op_call.name + ": husk_op_context.cancel ended the call");
  }
};

// Ends the process if an operator works for long without a question. The limit is processor time of
// the process, which does not depend on what else the machine does, and 20,000 times what an
// operator may do between two questions.
class Watchdog {
 public:
  static constexpr time_t kLimit = 5;  // seconds
  explicit Watchdog(const std::string& operator_name) {
    snprintf(name, sizeof name, "%s does not ask whether the call is to end\n",
             operator_name.c_str());
    signal(SIGPROF, [](int) {
      if (write(STDERR_FILENO, name, strlen(name)) > 0) abort();
    });
  }
  ~Watchdog() {
    set(0);
    signal(SIGPROF, SIG_DFL);
  }
  static void set(time_t seconds) {
    const itimerval limit{{0, 0}, {seconds, 0}};
    setitimer(ITIMER_PROF, &limit, nullptr);
  }

 private:
  static inline char name[200];
};

// Keys that are decided while they are compared, so that every pivot is a bad one. Source: M. D.
// McIlroy, "A killer adversary for quicksort", Software: Practice and Experience 29 (1999).
struct BadKeys {
  explicit BadKeys(int64_t count) : keys(count, count) {}
  bool less(int64_t a, int64_t b) {
    ++comparisons;
    const int64_t undecided = static_cast<int64_t>(keys.size());
    if (keys[a] == undecided && keys[b] == undecided) keys[a == candidate ? a : b] = decided++;
    if (keys[a] == undecided) candidate = a;
    if (keys[b] == undecided) candidate = b;
    return keys[a] < keys[b];
  }
  std::vector<int64_t> keys;
  int64_t decided = 0, candidate = 0, comparisons = 0;
};

TEST(SortRange, TakesFewStepsWhateverThePivots) {
  husk_op_context context = HUSK_OP_CONTEXT_INIT;
  host::Cancellation cancellation(context);
  constexpr int64_t kCount = 20000;
  BadKeys keys(kCount);
  std::vector<int64_t> order(kCount);
  for (int64_t i = 0; i < kCount; ++i) order[i] = i;
  const auto less = [&](int64_t a, int64_t b) { return keys.less(a, b); };
  host::sort_range(cancellation, order.begin(), kCount, less, 16);
  for (int64_t i = 1; i < kCount; ++i) EXPECT_LT(keys.keys[order[i - 1]], keys.keys[order[i]]);
  EXPECT_LT(keys.comparisons, 100 * kCount);
}

TEST(SortRange, SortsWithAndWithoutSplits) {
  husk_op_context context = HUSK_OP_CONTEXT_INIT;
  host::Cancellation cancellation(context);
  for (int64_t count : {0, 1, 2, 3, 17, 1000, 5000}) {
    for (int64_t step : {1, -1, 7919}) {
      std::vector<int64_t> numbers(count);
      for (int64_t i = 0; i < count; ++i) numbers[i] = (i * step % 5003 + 5003) % 5003;
      std::vector<int64_t> sorted = numbers;
      std::sort(sorted.begin(), sorted.end());
      host::sort_range(cancellation, numbers.begin(), count, std::less<int64_t>(), 4);
      EXPECT_EQ(numbers, sorted);
    }
  }
}

// Only the thread that called the op asks.
TEST_F(Cancel, EndsAllThreads) {
  const auto parallel = [](void*, uint32_t n, void (*body)(void*, uint32_t), void* argument) {
    std::vector<std::thread> others;
    for (uint32_t i = 1; i < n; ++i) others.emplace_back(body, argument, i);
    body(argument, 0);
    for (std::thread& other : others) other.join();
  };
  const husk_threads threads{nullptr, 3, parallel};
  std::deque<Call> calls;
  add_endless_calls(calls);
  for (const Call& op_call : calls) {
    const bool is_parallel = op_call.name == "aten::mm" || op_call.name == "aten::convolution" ||
                             op_call.name == "aten::_scaled_dot_product_flash_attention_for_cpu";
    if (is_parallel) expect_end(op_call, 2, &threads);
  }
}

// A context of an application of an earlier version ends before `cancel`.
TEST_F(Cancel, IsOptional) {
  std::deque<Call> calls;
  Call& fill =
      calls.emplace_back("aten::fill_.Scalar").repeated(HUSK_F32, {int64_t{1} << 19}).number(2);
  const husk_op& row = op(fill.name);
  Answers answers{1};
  husk_op_context context = context_of(row);
  context.cancel_user = &answers;
  EXPECT_EQ(row.call(&context, fill.args.data(), 2, &error), HUSK_OK) << error.text;
  context.cancel = Answers::answer;
  context.struct_size = offsetof(husk_op_context, cancel);
  EXPECT_EQ(row.call(&context, fill.args.data(), 2, &error), HUSK_OK) << error.text;
  EXPECT_EQ(answers.asked, 0);
  context.struct_size = sizeof context;
  EXPECT_EQ(row.call(&context, fill.args.data(), 2, &error), HUSK_CANCELLED);
}

TEST_F(Cancel, EndsCallsWithoutEnd) {
  std::deque<Call> calls;
  add_endless_calls(calls);
  for (const Call& op_call : calls) {
    SCOPED_TRACE(op_call.name);
    expect_end(op_call, 2);
  }
}

// Loops over a few elements do not report them, but one in another is long.
TEST_F(Cancel, ShortLoopsInOneAnotherAreReported) {
  // A row of results takes 16 rows of 1024 numbers, and 16 weights for each of 256 results.
  Call call("aten::_upsample_bicubic2d_aa");
  call.f32({1, 16, 1024, 1024}).list({256, 256}).number(0).none(2).f32({1, 16, 256, 256});
  Answers nobody{-1};
  ASSERT_EQ(run(call, nobody), HUSK_OK) << error.text;
  EXPECT_GE(nobody.asked, (int64_t{1} << 24) / host::kWorkBetweenQuestions);
}

// Each size of a correct call, each two sizes, and each dimension of a tensor become large, in
// turn. An operator refuses such a call, or ends soon after it was told to.
TEST_F(Cancel, EndsWhateverIsLarge) {
#if defined(HUSK_SANITIZED) || defined(HUSK_EMULATED)
  GTEST_SKIP() << "emulated and sanitized code is up to twenty times slower, and asks as often";
#endif
  std::deque<Call> calls;
  add_correct_calls(calls);
  int64_t ended = 0;
  const auto run_grown = [&](const Call& call, const auto& grow) {
    const Grown grown(call, grow);
    const husk_op& row = op(call.name);
    Answers answers{2};
    husk_op_context context = context_of(row);
    context.cancel = [](void* user) {
      Watchdog::set(Watchdog::kLimit);
      return Answers::answer(user);
    };
    context.cancel_user = &answers;
    error = {};
    Watchdog::set(Watchdog::kLimit);
    ended += row.call(&context, grown.args.data(), static_cast<uint32_t>(grown.args.size()),
                      &error) == HUSK_CANCELLED;
    Watchdog::set(0);
    EXPECT_LE(answers.asked, 2) << call.name;
  };
  for (const Call& call : calls) {
    SCOPED_TRACE(call.name);
    const Watchdog watchdog(call.name);
    std::set<int64_t> sizes;
    std::set<std::pair<size_t, int32_t>> dims;
    const Grown same(call, [&](size_t index, int32_t d, int64_t size) {
      if (d >= 0) dims.insert({index, d});
      if (d >= 0 && size > 1) sizes.insert(size);
      return size;
    });
    for (const auto& one : dims) {
      run_grown(call, [&](size_t index, int32_t d, int64_t size) {
        return one == std::pair(index, d) ? kGrown : size;
      });
    }
    for (const int64_t first : sizes) {
      for (const int64_t second : sizes) {
        if (second < first) continue;
        const int64_t large = first == second ? kGrown : int64_t{1} << 20;
        run_grown(call, [&](size_t, int32_t, int64_t size) {
          return size == first || size == second ? large : size;
        });
      }
    }
  }
  EXPECT_GT(ended, 100);
}

// The calls take minutes where a processor is emulated, so parts of them are tests of their own,
// which run beside each other.
constexpr size_t kParts = 4;
class CancelPart : public Cancel, public testing::WithParamInterface<size_t> {};
INSTANTIATE_TEST_SUITE_P(Parts, CancelPart, testing::Range(size_t{0}, kParts));

TEST_P(CancelPart, EndsEachPassOfALongCall) {
  std::deque<Call> calls;
  add_long_calls(calls);
  for (size_t i = GetParam(); i < calls.size(); i += kParts) {
    const Call& op_call = calls[i];
    Answers nobody{-1};
    ASSERT_EQ(run(op_call, nobody), HUSK_OK) << error.text;
    ASSERT_GT(nobody.asked, 0) << op_call.name;
    const int64_t step = nobody.asked / 3 + 1;
    for (int64_t last = 1; last <= nobody.asked; last += step) expect_end(op_call, last);
    expect_end(op_call, nobody.asked);
  }
}

}  // namespace
}  // namespace husk::host_test
